"""One suite over every link and real brokers: what a link promises is what it does. What one cannot do is said here."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from battlebrokers.contenders.broker_url import parse_broker_url
from battlebrokers.contenders.lifecycle import RunningContender, start_contender
from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Endpoint, Held, Link, LinkOptions, Outgoing, Subscription, Will
from battlebrokers.protocols.registry import capabilities_of, make_link
from support.links import Ear, until

pytestmark = pytest.mark.broker


@dataclass(frozen=True)
class Place:
    """A protocol and who is on the other side."""

    protocol: str
    version: str = "3.1.1"
    broker: str = ""
    transport: str = "tcp"

    def __str__(self) -> str:
        return "-".join(part for part in (self.protocol, self.version, self.broker, self.transport) if part)


PLACES = [
    Place("loopback", ""),
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
    pytest.param(Place("mqtt", "3.1.1", "rabbitmq"), marks=pytest.mark.slow),
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
    ("nats", "many_levels"): "NATS 2.9 refuses filters with # above QoS 0",
    ("nats", "large"): "NATS takes payloads up to 1 MiB",
    ("rabbitmq", "shared_subscription"): "RabbitMQ takes a shared filter for a topic of that name",
    ("rabbitmq", "qos 2"): "RabbitMQ has no QoS 2",
    ("amqtt", "takeover"): "amqtt leaves an older connection with the same client id open",
    ("mosquitto-ws", "large"): "the WebSocket listener of Mosquitto 2.0 stalls while it sends a large message",
    ("amqtt", "granted_qos"): "amqtt delivers with the publisher's QoS, whatever was granted",
}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], RunningContender]]:
    """Each broker is started when it is first needed."""
    running: dict[str, RunningContender] = {}

    def started(name: str) -> RunningContender:
        if name not in running:
            folder: Path = tmp_path_factory.mktemp(name)
            running[name] = start_contender(name, "tuned", folder)
        return running[name]

    yield started
    for broker in running.values():
        broker.stop()


@pytest.fixture(params=PLACES, ids=str)
def place(request: pytest.FixtureRequest) -> Place:
    return request.param


@pytest.fixture
async def make(
    place: Place, brokers: Callable[[str], RunningContender], require_broker: Callable[[str], str]
) -> AsyncIterator[Callable[..., tuple[Link, Ear]]]:
    """A function that makes links to the place, all closed in the end."""
    endpoint = Endpoint("tcp", "memory", 1)
    if place.broker:
        require_broker(place.broker)
        url = parse_broker_url(brokers(place.broker).endpoints[place.transport])
        endpoint = Endpoint(url.transport, url.host, url.port, url.path)
    made: list[Link] = []

    def maker(client_id: str = "", **options: object) -> tuple[Link, Ear]:
        ear = Ear()
        settings = {"version": place.version or "3.1.1", "keep_alive_s": 30, **options}
        name = client_id or f"c-{uuid.uuid4().hex[:12]}"
        link = make_link(place.protocol, endpoint, LinkOptions(name, **settings), ear)  # type: ignore[arg-type]
        made.append(link)
        return link, ear

    yield maker
    for link in made:
        await link.close()


@pytest.fixture
def topic() -> str:
    """A topic nobody else uses."""
    return f"test/{uuid.uuid4().hex[:8]}"


def needs(place: Place, feature: str) -> None:
    """Skip, with the reason, what a link or its broker cannot do; the link must say so itself."""
    for who in (place.protocol, place.broker, f"{place.broker}-{place.transport}"):
        reason = NOT_SUPPORTED.get((who, feature))
        if reason:
            if who == place.protocol and hasattr(capabilities_of(who), feature):
                assert not getattr(capabilities_of(who), feature)
            pytest.skip(f"{place}: {reason}")
    if hasattr(capabilities_of(place.protocol), feature):
        assert getattr(capabilities_of(place.protocol), feature)


async def subscribed(make, *filters: str, qos: int = 1, **options: object) -> tuple[Link, Ear]:
    link, ear = make(**options)
    await link.open()
    granted = await link.subscribe([Subscription(each, qos) for each in filters])
    assert [answer.qos for answer in granted] == [qos] * len(filters)
    return link, ear


async def test_a_link_opens_closes_and_opens_again(make):
    link, ear = make()
    assert link.held is Held.OFFLINE
    assert link.room(0) == link.room(1) == 0
    for _ in range(2):
        before = ear.now_ns()
        opened = await link.open()
        assert not opened.session_present
        assert opened.reason == 0
        assert before <= opened.received_ns <= ear.now_ns()
        assert link.held is Held.NO
        assert link.room(0) > 0
        assert link.room(1) > 0
        await link.close()
        assert link.held is Held.OFFLINE
    link.abort()
    assert not ear.closings
    assert not ear.faults


async def test_nothing_is_sent_while_closed(make, topic: str):
    link, _ = make()
    with pytest.raises(LinkError):
        link.publish(Outgoing(topic.encode(), [b"x"], 0, False, 0))
    with pytest.raises(LinkError):
        await link.subscribe([Subscription(topic)])


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_batches_arrive_whole_in_order_and_once(make, topic: str, qos: int, place: Place):
    needs(place, f"qos {qos}")
    _, ear = await subscribed(make, f"{topic}/+", qos=qos)
    link, sender = make()
    await link.open()
    rows = np.random.default_rng(qos).integers(0, 256, (300, 64), np.uint8)
    several = [bytes([n % 256]) * (n * 7 % 200) for n in range(100)]
    name = f"{topic}/a".encode()
    sent_bytes = link.publish(Outgoing(name, rows, qos, False, 1000))
    sent_bytes += link.publish(Outgoing(name, several, qos, False, 2000))
    sent_bytes += link.publish(Outgoing(name, rows[:1], qos, False, 3000))
    sent_bytes += link.publish(Outgoing(name, rows[:3], qos, False, 4000))
    expected = [row.tobytes() for row in rows] + several + [row.tobytes() for row in (*rows[:1], *rows[:3])]
    await until(lambda: len(ear.messages) >= len(expected))
    assert ear.payloads == expected
    assert {message.qos for message in ear.messages} == {qos}
    assert {message.topic for message in ear.messages} == {name}
    assert not any(message.retain or message.dup for message in ear.messages)
    assert sent_bytes >= sum(map(len, expected)) + len(expected)
    if qos:
        tokens = [*range(1000, 1300), *range(2000, 2100), 3000, *range(4000, 4003)]
        await until(lambda: len(sender.acked) >= len(tokens))
        assert sorted(sender.acked) == tokens
    assert link.unacknowledged == 0
    assert not sender.refused
    assert all(message.wire_size >= len(message.payload) + len(name) for message in ear.messages)


async def test_payloads_may_be_anything(make, topic: str):
    _, ear = await subscribed(make, topic)
    link, _ = make()
    await link.open()
    payloads = [b"", b"\x00", b"\xff" * 3, bytes(range(256)), b"x" * 127, b"x" * 128, b"x" * 16_384]
    for token, payload in enumerate(payloads):
        link.publish(Outgoing(topic.encode(), [payload], 1, False, token))
    await until(lambda: len(ear.messages) == len(payloads))
    assert ear.payloads == payloads


async def test_a_large_message_arrives_whole(make, topic: str, place: Place):
    needs(place, "large")
    _, ear = await subscribed(make, topic)
    link, sender = make()
    await link.open()
    payload = np.random.default_rng(1).integers(0, 256, (1, 2 << 20), np.uint8)
    link.publish(Outgoing(topic.encode(), payload, 1, False, 5))
    await until(lambda: ear.messages and sender.acked)
    assert ear.payloads == [payload.tobytes()]
    assert sender.acked == [5]


async def test_only_who_asked_receives_until_he_stops(make, topic: str, place: Place):
    needs(place, "many_levels")
    asking, ear = await subscribed(make, f"{topic}/+/temperature", f"{topic}/all/#")
    _, deaf = await subscribed(make, f"{topic}/other")
    link, sender = make()
    await link.open()
    for last in ("kitchen/temperature", "kitchen/humidity", "all", "all/x/y", "kitchen/x/temperature"):
        link.publish(Outgoing(f"{topic}/{last}".encode(), [last.encode()], 1, False, 0))
    await until(lambda: len(ear.messages) == 3)
    assert ear.payloads == [b"kitchen/temperature", b"all", b"all/x/y"]
    await asking.unsubscribe([Subscription(f"{topic}/all/#")])
    for last in ("all/z", "bath/temperature"):
        link.publish(Outgoing(f"{topic}/{last}".encode(), [last.encode()], 1, False, 0))
    await until(lambda: len(ear.messages) == 4 and len(sender.acked) == 7)
    assert ear.payloads[-1] == b"bath/temperature"
    assert not deaf.messages


async def test_the_granted_qos_is_the_upper_bound(make, topic: str, place: Place):
    needs(place, "granted_qos")
    needs(place, "qos 2")
    _, ear = await subscribed(make, topic, qos=1)
    link, _ = make()
    await link.open()
    for qos in (0, 1, 2):
        link.publish(Outgoing(topic.encode(), [b"%d" % qos], qos, False, qos))
    await until(lambda: len(ear.messages) == 3)
    assert sorted((message.payload, message.qos) for message in ear.messages) == [(b"0", 0), (b"1", 1), (b"2", 1)]


async def test_the_window_is_kept_and_every_hold_ends(make, topic: str, place: Place):
    needs(place, "window")
    link, sender = make(inflight=7)
    await link.open()
    owed = list(range(500))
    most = 0

    def push(_: Link) -> None:
        nonlocal most
        while owed and link.room(1):
            count = min(link.room(1), len(owed), 3)
            batch = [owed.pop(0) for _ in range(count)]
            link.publish(Outgoing(topic.encode(), [b"%d" % each for each in batch], 1, False, batch[0]))
            most = max(most, link.unacknowledged)

    sender.on_writable = push
    push(link)
    assert link.held is Held.WINDOW
    await until(lambda: len(sender.acked) == 500)
    assert sorted(sender.acked) == list(range(500))
    assert most == 7
    assert sender.writable_calls > 10


async def test_a_slow_reader_loses_nothing(make, topic: str):
    reading, ear = await subscribed(make, topic, qos=1)
    link, sender = make()
    await link.open()
    reading.pause_reading()
    link.publish(Outgoing(topic.encode(), np.zeros((200, 100), np.uint8), 1, False, 0))
    await until(lambda: len(sender.acked) == 200)
    assert not ear.messages
    reading.resume_reading()
    await until(lambda: len(ear.messages) == 200)


async def test_a_retained_message_meets_those_who_come_later(make, topic: str, place: Place):
    needs(place, "retain")
    link, sender = make()
    await link.open()
    for token, payload in enumerate((b"old", b"kept")):
        link.publish(Outgoing(topic.encode(), [payload], 1, True, token))
    await until(lambda: len(sender.acked) == 2)
    _, ear = await subscribed(make, topic)
    await until(lambda: ear.messages)
    assert [(message.payload, message.retain) for message in ear.messages] == [(b"kept", True)]
    link.publish(Outgoing(topic.encode(), [b"live"], 1, True, 3))
    await until(lambda: len(ear.messages) == 2)
    assert not ear.messages[1].retain
    link.publish(Outgoing(topic.encode(), [b""], 1, True, 4))
    await until(lambda: len(ear.messages) == 3)


async def test_the_will_speaks_for_who_vanished_not_for_who_left(make, topic: str, place: Place):
    needs(place, "will")
    _, ear = await subscribed(make, f"{topic}/+")
    leaving, _ = make(will=Will(f"{topic}/left", b"left", 1))
    vanishing, _ = make(will=Will(f"{topic}/vanished", b"vanished", 1))
    await leaving.open()
    await vanishing.open()
    await leaving.close()
    vanishing.abort()
    await until(lambda: ear.messages)
    assert ear.payloads == [b"vanished"]


async def test_a_kept_session_delivers_what_came_while_away(make, topic: str, place: Place):
    needs(place, "persistent_session")
    away, ear = await subscribed(make, topic, qos=1, clean=False, session_expiry_s=60)
    await away.close()
    link, sender = make()
    await link.open()
    link.publish(Outgoing(topic.encode(), [b"%d" % n for n in range(50)], 1, False, 0))
    await until(lambda: len(sender.acked) == 50)
    assert not ear.messages
    opened = await away.open()
    assert opened.session_present
    await until(lambda: len(ear.messages) == 50)
    assert ear.payloads == [b"%d" % n for n in range(50)]


async def test_a_shared_group_gets_every_message_once(make, topic: str, place: Place):
    needs(place, "shared_subscription")
    ears = []
    for _ in range(2):
        link, ear = make()
        await link.open()
        granted = await link.subscribe([Subscription(topic, 1, share="group")])
        assert granted[0].qos == 1
        ears.append(ear)
    link, _ = make()
    await link.open()
    link.publish(Outgoing(topic.encode(), [b"%d" % n for n in range(100)], 1, False, 0))
    await until(lambda: sum(len(ear.messages) for ear in ears) == 100)
    assert sorted(ears[0].payloads + ears[1].payloads) == sorted(b"%d" % n for n in range(100))
    assert all(ear.messages for ear in ears)


async def test_who_takes_a_client_id_over_ends_the_older_link(make, place: Place):
    needs(place, "takeover")
    older, ear = make("same-name-" + uuid.uuid4().hex[:6])
    await older.open()
    newer, other = make(older.options.client_id)
    await newer.open()
    await until(lambda: ear.closings)
    assert older.held is Held.OFFLINE
    assert newer.held is Held.NO
    assert not other.closings


async def test_an_aborted_link_is_never_told_of_its_end(make, topic: str):
    link, ear = await subscribed(make, topic)
    link.publish(Outgoing(topic.encode(), [b"x"] * 20, 1, False, 0))
    link.abort()
    assert link.held is Held.OFFLINE
    await asyncio.sleep(0.05)
    assert not ear.closings
    assert not ear.faults
    heard = len(ear.messages)
    await asyncio.sleep(0.02)
    assert len(ear.messages) == heard
