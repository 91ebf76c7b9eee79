"""The places of the contract every link keeps: protocols and who is on the other side, what one of them cannot do, and
how to speak to all of them alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pytest

from battlebrokers.protocols.base import Bytes2D, Capabilities, Endpoint, Link, LinkOptions, Outgoing, Subscription
from battlebrokers.protocols.registry import capabilities_of, make_link
from battlebrokers.protocols.script import Script
from support.http_hub import http_script
from support.links import Ear, until
from support.websocket_hub import hub_script


@dataclass(frozen=True)
class Place:
    """A protocol and who is on the other side."""

    protocol: str
    version: str = "3.1.1"
    """Of MQTT; of HTTP the way notifications come."""
    broker: str = ""
    transport: str = "tcp"
    """The name of the broker's endpoint."""

    @property
    def script(self) -> Script | None:
        """The dialect, where the protocol says nothing of publishing by itself."""
        if self.protocol == "http":
            return http_script(self.version)
        return hub_script() if self.protocol == "websocket" else None

    @property
    def settings(self) -> dict[str, object]:
        """Options of its links, unless a test says otherwise."""
        # Requests in flight go over connections of their own: order is kept by having one at a time.
        return {"inflight": 1} if self.protocol == "http" else {}

    @property
    def capabilities(self) -> Capabilities:
        if self.script is None:
            return capabilities_of(self.protocol)
        options = LinkOptions("", script=self.script)
        return make_link(self.protocol, Endpoint(self.transport, "127.0.0.1", 1), options, Ear()).capabilities

    @property
    def sure_qos(self) -> int:
        """The QoS that loses nothing, or the only one."""
        return max(self.capabilities.qos & {0, 1})

    def __str__(self) -> str:
        return "-".join(part for part in (self.protocol, self.version, self.broker, self.transport) if part)


PLACES = [
    Place("loopback", "", "", "memory"),
    Place("mqtt", "3.1.1", "mosquitto"),
    Place("mqtt", "5", "mosquitto"),
    Place("mqtt", "3.1.1", "mosquitto", "ws"),
    Place("mqtt", "5", "mosquitto", "ws"),
    Place("mqtt", "3.1.1", "amqtt"),
    Place("mqtt", "3.1.1", "amqtt", "ws"),
    Place("mqtt", "3.1.1", "aedes"),
    Place("mqtt", "3.1.1", "aedes", "ws"),
    Place("mqtt", "3.1.1", "nats"),
    Place("mqtt", "3.1.1", "nats", "ws"),
    Place("mqtt", "3.1.1", "rabbitmq"),
    Place("amqp", "", "rabbitmq", "amqp"),
    Place("coap", "", "libcoap", "udp"),
    Place("udp", "", "", "udp"),
    Place("websocket", "", "hub", "ws"),
    Place("http", "callback", "http-hub"),
    Place("http", "stream", "http-hub"),
    Place("http", "poll", "http-hub"),
]

NOT_SUPPORTED = {
    ("loopback", "retain"): "the loopback keeps no messages",
    ("loopback", "persistent_session"): "the loopback keeps no sessions",
    ("loopback", "will"): "the loopback has no wills",
    ("loopback", "shared_subscription"): "the loopback has no shared groups",
    ("loopback", "window"): "the loopback has no in-flight window",
    ("amqtt", "persistent_session"): "amqtt keeps nothing for an anonymous client that is away",
    ("amqtt", "shared_subscription"): "amqtt takes a shared filter for a plain one that matches nothing",
    ("aedes", "shared_subscription"): "aedes takes a shared filter for a topic of that name",
    ("nats", "shared_subscription"): "NATS takes a shared filter for a topic of that name",
    ("nats", "qos 2"): "NATS before 2.10 has no QoS 2",
    ("nats", "large"): "NATS takes payloads up to 1 MiB",
    ("rabbitmq", "shared_subscription"): "RabbitMQ takes a shared filter for a topic of that name",
    ("rabbitmq", "qos 2"): "RabbitMQ has no QoS 2",
    ("amqtt", "takeover"): "amqtt leaves an older connection with the same client id open",
    ("mosquitto-ws", "large"): "the WebSocket listener of Mosquitto 2.0 stalls while it sends a large message",
    ("amqp", "retain"): "AMQP keeps messages in queues, not at topics",
    ("amqp", "will"): "AMQP has no wills",
    ("amqp", "takeover"): "AMQP has no client ids",
    ("coap", "persistent_session"): "CoAP has no sessions",
    ("coap", "will"): "CoAP has no wills",
    ("coap", "shared_subscription"): "CoAP has no shared groups",
    ("coap", "wildcards"): "a GET names one resource",
    ("coap", "takeover"): "CoAP has no client ids",
    ("coap", "every_message"): "observers are told the latest state, not every one",
    ("udp", "retain"): "datagrams are kept nowhere",
    ("udp", "persistent_session"): "UDP has no sessions",
    ("udp", "will"): "UDP has no wills",
    ("udp", "shared_subscription"): "UDP has no shared groups",
    ("udp", "wildcards"): "a filter is one address",
    ("udp", "window"): "nobody answers datagrams, so none is ever in flight",
    ("udp", "takeover"): "UDP has no client ids",
    ("udp", "large"): "a datagram has at most 65 507 bytes",
    ("websocket", "retain"): "a dialect over WebSocket has no word for keeping messages",
    ("websocket", "persistent_session"): "a WebSocket that is closed is forgotten",
    ("websocket", "will"): "a WebSocket leaves no will",
    ("websocket", "shared_subscription"): "a dialect has no word for shared groups",
    ("websocket", "takeover"): "WebSockets have no client ids",
    ("http", "retain"): "a dialect over HTTP has no word for keeping messages",
    ("http", "persistent_session"): "HTTP has no sessions",
    ("http", "will"): "HTTP has no wills",
    ("http", "shared_subscription"): "a dialect has no word for shared groups",
    ("http", "wildcards"): "a client subscribes to topic by topic",
    ("http", "takeover"): "HTTP has no client ids",
    ("amqtt", "granted_qos"): "amqtt delivers with the publisher's QoS, whatever was granted",
}


def needs(place: Place, feature: str) -> None:
    """Skip, with the reason, what a link or its broker cannot do; the link must say so itself."""
    for who in (place.protocol, place.broker, f"{place.broker}-{place.transport}"):
        reason = NOT_SUPPORTED.get((who, feature))
        if reason:
            if who == place.protocol and hasattr(place.capabilities, feature):
                assert not getattr(place.capabilities, feature)
            pytest.skip(f"{place}: {reason}")
    if hasattr(place.capabilities, feature):
        assert getattr(place.capabilities, feature)


def needs_qos(place: Place, qos: int) -> None:
    if qos not in place.capabilities.qos:
        pytest.skip(f"{place}: {place.protocol} has no QoS {qos}")
    needs(place, f"qos {qos}")


async def subscribed(make, *filters: str, qos: int = 1, **options: object) -> tuple[Link, Ear]:
    link, ear = make(**options)
    await link.open()
    qos = qos if qos in link.capabilities.qos else max(link.capabilities.qos & {0, 1})
    granted = await link.subscribe([Subscription(each, qos) for each in filters])
    assert [answer.qos for answer in granted] == [qos] * len(filters)
    return link, ear


async def send(
    link: Link,
    topic: str,
    payloads: Bytes2D | Sequence[bytes],
    qos: int,
    first_token: int = 0,
    *,
    heard: Ear | None = None,
) -> int:
    """Publish as much at once as the link takes; where only the latest state is told, one after the other was heard."""
    sent = written = 0
    paced = link.capabilities.conflates and heard is not None
    while sent < len(payloads):
        await until(lambda: link.room(qos))
        count = 1 if paced else min(link.room(qos), len(payloads) - sent)
        before = len(heard.messages) if heard is not None else 0
        batch = Outgoing(topic.encode(), payloads[sent : sent + count], qos, False, first_token + sent)
        written += link.publish(batch)
        sent += count
        if paced:
            await until(partial(_heard_more, heard, before))
    return written


def _heard_more(ear: Ear, than: int) -> bool:
    return len(ear.messages) > than
