"""Other implementations understand us and we them: amqtt's packets (3.1.1) and a whole paho client (both versions)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import closing

import paho.mqtt.client as paho
import pytest
from amqtt.adapters import BufferReader
from amqtt.mqtt import packet_class
from amqtt.mqtt.packet import MQTTFixedHeader
from hypothesis import assume, given
from hypothesis import strategies as st
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from battlebrokers.protocols.mqtt.decode import decode
from battlebrokers.protocols.mqtt.encode import encode
from battlebrokers.protocols.mqtt.framing import split_frames
from battlebrokers.protocols.mqtt.packets import (
    ConnAck,
    Connect,
    Disconnect,
    FilterRequest,
    Packet,
    PacketType,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    WillMessage,
)
from battlebrokers.protocols.mqtt.properties import Properties
from support.examples import examples


@pytest.mark.parametrize("kind", [kind for kind in PacketType if kind is not PacketType.AUTH], ids=lambda k: k.name)
@examples(40)
@given(data=st.data())
def test_amqtt_reads_our_packets_and_writes_the_same_bytes(
    valid_packets: Callable[[PacketType, int], st.SearchStrategy[Packet]], kind: PacketType, data: st.DataObject
) -> None:
    packet = data.draw(valid_packets(kind, 4))
    if isinstance(packet, Connect):
        # amqtt names nameless clients itself and takes passwords for text.
        assume(packet.client_id)
        assume(packet.password is None or packet.password.isascii())
    ours = encode(packet, 4)

    async def theirs() -> bytes:
        reader = BufferReader(ours)
        header = await MQTTFixedHeader.from_stream(reader)
        assert header is not None
        read = await packet_class(header).from_stream(reader, fixed_header=header)
        return bytes(read.to_bytes())

    assert asyncio.run(theirs()) == ours


class PahoAtOurs:
    """A paho client connected to a socket on which we play the broker, one step at a time, without threads."""

    def __init__(self, client: paho.Client, listener: socket.socket) -> None:
        self.client = client
        client.connect("127.0.0.1", listener.getsockname()[1], keepalive=60)
        self.peer, _ = listener.accept()
        self.peer.settimeout(60)
        self.version = int(client._protocol)
        self.rest = b""

    def hears(self) -> Packet:
        """The next packet the client sent."""
        self.client.loop_misc()
        while self.client.want_write():
            self.client.loop_write()
        while not (split := split_frames(self.rest, version=self.version)).frames:
            assert split.fault is None
            self.rest += self.peer.recv(65_536)
        start, body, end = split.frames[0]
        packet = decode(self.rest[start], self.rest[body:end], self.version)
        self.rest = self.rest[end:]
        return packet

    def says(self, packet: Packet) -> None:
        """Send the client a packet and let it react."""
        self.peer.sendall(encode(packet, self.version))
        self.client.loop(timeout=60)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server


def paho_client(version: int, clean: bool = True) -> paho.Client:
    """A client that remembers what it was told."""
    options = {"clean_session": clean} if version == 4 else {}
    client = paho.Client(
        paho.CallbackAPIVersion.VERSION2, "peer", protocol=paho.MQTTProtocolVersion(version), **options
    )
    told: list[tuple[object, ...]] = []
    client.user_data_set(told)
    client.on_connect = lambda _c, u, flags, code, props: u.append(
        ("connect", flags.session_present, code.value, props)
    )
    client.on_publish = lambda _c, u, mid, code, props: u.append(("publish", mid, code.value))
    client.on_subscribe = lambda _c, u, mid, codes, props: u.append(("subscribe", mid, [code.value for code in codes]))
    client.on_unsubscribe = lambda _c, u, mid, codes, props: u.append(
        ("unsubscribe", mid, [code.value for code in codes])
    )
    client.on_message = lambda _c, u, message: u.append(("message", message))
    client.on_disconnect = lambda _c, u, flags, code, props: u.append(("disconnect", code.value, props))
    return client


def test_paho_speaks_3_1_1_with_us(listener: socket.socket) -> None:
    client = paho_client(4)
    client.username_pw_set("user", "pass")
    client.will_set("gone", b"bye", 1, retain=True)
    broker = PahoAtOurs(client, listener)
    told = client.user_data_get()
    assert broker.hears() == Connect("peer", 4, True, 60, "user", b"pass", WillMessage("gone", b"bye", 1, True))
    broker.says(ConnAck())
    assert told.pop()[:3] == ("connect", False, 0)

    client.subscribe([("a/#", 1), ("b", 2)])
    assert broker.hears() == Subscribe(1, (FilterRequest("a/#", 1), FilterRequest("b", 2)))
    broker.says(SubAck(1, (1, 0x80)))
    assert told.pop() == ("subscribe", 1, [1, 0x80])

    client.publish("t", b"zero")
    assert broker.hears() == Publish("t", b"zero")
    client.publish("t", b"one", 1, retain=True)
    assert broker.hears() == Publish("t", b"one", 1, True, False, 3)
    broker.says(PubAck(3))
    assert told.pop()[:2] == ("publish", 3)
    client.publish("t", b"two", 2)
    assert broker.hears() == Publish("t", b"two", 2, packet_id=4)
    broker.says(PubRec(4))
    assert broker.hears() == PubRel(4)
    broker.says(PubComp(4))
    assert told.pop()[:2] == ("publish", 4)

    broker.says(Publish("a/b", b"x" * 200, 2, True, packet_id=9))
    assert broker.hears() == PubRec(9)
    broker.says(PubRel(9))
    message = told.pop()[1]
    assert (message.topic, message.payload, message.qos, message.retain) == ("a/b", b"x" * 200, 2, True)
    assert broker.hears() == PubComp(9)

    client.unsubscribe(["a/#", "b"])
    assert broker.hears() == Unsubscribe(5, ("a/#", "b"))
    broker.says(UnsubAck(5))
    assert told.pop()[:2] == ("unsubscribe", 5)
    client.disconnect()
    assert broker.hears() == Disconnect()
    broker.peer.close()


def test_paho_speaks_5_with_us(listener: socket.socket) -> None:
    client = paho_client(5)
    will = PahoProperties(PacketTypes.WILLMESSAGE)
    will.WillDelayInterval = 5
    will.UserProperty = ("k", "v")
    client.will_set("gone", b"bye", 2, properties=will)
    broker = PahoAtOurs(client, listener)
    told = client.user_data_get()
    ours = WillMessage("gone", b"bye", 2, properties=Properties(will_delay_s=5, user_properties=(("k", "v"),)))
    assert broker.hears() == Connect("peer", 5, True, 60, will=ours)
    broker.says(ConnAck(properties=Properties(receive_maximum=5, topic_alias_maximum=3, assigned_client_id="z")))
    kind, _, code, theirs = told.pop()
    assert (kind, code) == ("connect", 0)
    assert (theirs.ReceiveMaximum, theirs.TopicAliasMaximum, theirs.AssignedClientIdentifier) == (5, 3, "z")

    identified = PahoProperties(PacketTypes.SUBSCRIBE)
    identified.SubscriptionIdentifier = 300
    client.subscribe("$share/g/a", options=SubscribeOptions(2, False, True, 1), properties=identified)
    request = FilterRequest("$share/g/a", 2, False, True, 1)
    assert broker.hears() == Subscribe(1, (request,), Properties(subscription_identifiers=(300,)))
    broker.says(SubAck(1, (0x9E,), Properties(reason_string="no")))
    assert told.pop() == ("subscribe", 1, [0x9E])

    aliased = PahoProperties(PacketTypes.PUBLISH)
    aliased.TopicAlias = 2
    aliased.MessageExpiryInterval = 7
    client.publish("t", b"m", 1, properties=aliased)
    assert broker.hears() == Publish(
        "t", b"m", 1, packet_id=2, properties=Properties(topic_alias=2, message_expiry_s=7)
    )
    broker.says(PubAck(2, 0x10, Properties(reason_string="nobody")))
    assert told.pop() == ("publish", 2, 0x10)

    carried = Properties(
        correlation_data=b"\0", response_topic="r", subscription_identifiers=(1, 300), payload_format=1
    )
    broker.says(Publish("a", b"text", 1, packet_id=8, properties=carried))
    message = told.pop()[1]
    assert (message.topic, message.properties.SubscriptionIdentifier) == ("a", [1, 300])
    assert (message.properties.CorrelationData, message.properties.ResponseTopic) == (b"\0", "r")
    assert broker.hears() == PubAck(8)

    client.unsubscribe("a")
    assert broker.hears() == Unsubscribe(3, ("a",))
    broker.says(UnsubAck(3, (0x11,)))
    assert told.pop() == ("unsubscribe", 3, [0x11])

    leaving = PahoProperties(PacketTypes.DISCONNECT)
    leaving.SessionExpiryInterval = 9
    client.disconnect(ReasonCode(PacketTypes.DISCONNECT, identifier=4), leaving)
    assert broker.hears() == Disconnect(4, Properties(session_expiry_s=9))
    broker.peer.close()


def test_paho_understands_our_goodbye(listener: socket.socket) -> None:
    client = paho_client(5)
    broker = PahoAtOurs(client, listener)
    broker.hears()
    broker.says(ConnAck())
    broker.says(Disconnect(0x8E, Properties(reason_string="taken", server_reference="b")))
    kind, code, theirs = client.user_data_get().pop()
    assert (kind, code, theirs.ReasonString, theirs.ServerReference) == ("disconnect", 0x8E, "taken", "b")
    broker.peer.close()
