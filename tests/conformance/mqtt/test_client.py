"""What a client must do, byte by byte: what it sends, in which order, and what it never sends.

The bytes are read here by hand, not by our own codec, so that a mistake in it cannot hide itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

import pytest

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Endpoint, LinkOptions, Outgoing, Subscription, Will
from battlebrokers.protocols.mqtt.link import MqttLink
from battlebrokers.protocols.mqtt.packets import (
    ConnAck,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    UnsubAck,
)
from battlebrokers.protocols.mqtt.properties import Properties
from support.links import Ear, Peer, until

BOTH = ("3.1.1", "5")
LEVELS = {"3.1.1": 4, "5": 5}
RESERVED = {3: None, 6: 2, 8: 2, 10: 2}
"""The low bits of the first byte by packet type; PUBLISH has none reserved, all others must be 0."""


@dataclass
class Reading:
    """A cursor over one packet's body."""

    data: bytes
    at: int = 0

    def number(self, size: int) -> int:
        self.at += size
        assert self.at <= len(self.data)
        return int.from_bytes(self.data[self.at - size : self.at])

    def length(self) -> int:
        """A variable byte integer in its shortest form."""
        value = shift = 0
        while True:
            byte = self.number(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            assert shift <= 28
            if byte < 0x80:
                assert byte or shift == 7
                return value

    def binary(self) -> bytes:
        size = self.number(2)
        self.at += size
        assert self.at <= len(self.data)
        return self.data[self.at - size : self.at]

    def text(self) -> str:
        found = self.binary().decode("utf-8")
        assert "\0" not in found
        return found

    @property
    def done(self) -> bool:
        return self.at == len(self.data)


async def packet(peer: Peer) -> tuple[int, bytes]:
    """First byte and body of the client's next packet."""
    head = await asyncio.wait_for(peer.reader.readexactly(1), 60)
    size = shift = 0
    while True:
        byte = (await peer.reader.readexactly(1))[0]
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return head[0], await peer.reader.readexactly(size)


async def packets_until(peer: Peer, last_type: int) -> list[tuple[int, bytes]]:
    found = [await packet(peer)]
    while found[-1][0] >> 4 != last_type:
        found.append(await packet(peer))
    return found


# ── CONNECT ──────────────────────────────────────────────────────────────────────────────────────────────────────

GREETINGS: dict[str, tuple[tuple[str, ...], dict[str, object]]] = {
    "plain": (BOTH, {}),
    "a user": (BOTH, {"username": "üser"}),
    "a user and a password": (BOTH, {"username": "u", "password": "pässword"}),
    "an empty user and password": (BOTH, {"username": "", "password": ""}),
    "a password alone": (("5",), {"password": "p"}),
    "a will": (BOTH, {"will": Will("w/ä", b"gone")}),
    "a kept will of QoS 1": (BOTH, {"will": Will("w", b"\xff\x00", 1, True)}),
    "a will of QoS 2 and a login": (BOTH, {"will": Will("w", b"", 2), "username": "u", "password": "p"}),
    "a delayed will": (("5",), {"will": Will("w", b"x", 1, delay_s=7)}),
    "a kept session": (BOTH, {"clean": False, "session_expiry_s": 60}),
    "a keep alive": (BOTH, {"keep_alive_s": 600}),
    "a small receive maximum": (("5",), {"receive_maximum": 10}),
}


@pytest.mark.parametrize(
    ("greeting", "version"), [(name, v) for name, (versions, _) in GREETINGS.items() for v in versions]
)
async def test_connect_has_the_fields_its_flags_announce_in_their_order(server, make, greeting: str, version: str):
    options = GREETINGS[greeting][1]
    opening = asyncio.ensure_future(make(version, **options).open())
    peer = await server.accept()
    first, body = await packet(peer)
    assert first == 0x10
    reading = Reading(body)
    assert (reading.text(), reading.number(1)) == ("MQTT", LEVELS[version])
    flags = reading.number(1)
    assert flags & 1 == 0, "the reserved flag"
    assert bool(flags & 2) == options.get("clean", True)
    assert reading.number(2) == options.get("keep_alive_s", 0)
    if version == "5":
        size = reading.length()
        reading.at += size
    assert reading.text() == "client-1"
    will = options.get("will")
    assert bool(flags & 4) == (will is not None)
    assert (flags >> 3 & 3, bool(flags & 0x20)) == ((will.qos, will.retain) if will else (0, False))
    if will:
        if version == "5":
            size = reading.length()
            reading.at += size
            assert size == (5 if will.delay_s else 0)
        assert (reading.text(), reading.binary()) == (will.topic, will.payload)
    assert bool(flags & 0x80) == ("username" in options)
    if "username" in options:
        assert reading.text() == options["username"]
    assert bool(flags & 0x40) == ("password" in options)
    if "password" in options:
        assert reading.binary() == str(options["password"]).encode()
    assert reading.done
    peer.send(ConnAck())
    await opening


async def test_an_empty_client_id_asks_for_a_clean_session_in_3_1_1(make, server):
    link = MqttLink(Endpoint("tcp", "127.0.0.1", server.port), LinkOptions("", clean=False, keep_alive_s=0), Ear())
    with pytest.raises(LinkError, match="clean session"):
        await link.open()


async def test_a_password_without_a_user_is_not_sent_in_3_1_1(make):
    with pytest.raises(LinkError, match="user name"):
        await make("3.1.1", password="secret").open()


async def test_the_client_id_is_the_same_on_every_connection(server, make):
    link = make("3.1.1", clean=False)
    for _ in range(2):
        opening = asyncio.ensure_future(link.open())
        peer = await server.accept()
        _, body = await packet(peer)
        assert body.endswith(b"\x00\x08client-1")
        peer.send(ConnAck())
        await opening
        link.abort()


# ── everything else that is sent ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", BOTH)
async def test_a_whole_session_is_sent_as_the_specification_writes_it(server, make, version: str):
    ear = Ear()
    link = make(version, ear)
    opening = asyncio.ensure_future(link.open())
    peer = await server.accept()
    sent = [await packet(peer)]
    peer.send(ConnAck())
    await opening
    asking = asyncio.ensure_future(link.subscribe([Subscription("a/+", 2), Subscription("#", 0)]))
    sent.append(await packet(peer))
    subscribe_id = int.from_bytes(sent[-1][1][:2])
    peer.send(SubAck(subscribe_id, (2, 0)))
    await asking
    for qos in (0, 1, 2):
        link.publish(Outgoing(b"t/1", [b"payload"], qos, False, qos))
        sent.append(await packet(peer))
    ids = [int.from_bytes(body[5:7]) for _, body in sent[-2:]]
    peer.send(PubAck(ids[0]), PubRec(ids[1]))
    sent.append(await packet(peer))
    assert sent[-1] == (0x62, ids[1].to_bytes(2))
    peer.send(PubComp(ids[1]))
    await until(lambda: len(ear.acked) == 2)
    peer.send(Publish("t", b"1", 1, packet_id=21), Publish("t", b"2", 2, packet_id=22), PubRel(22))
    sent += [await packet(peer) for _ in range(3)]
    assert [first for first, _ in sent[-3:]] == [0x40, 0x50, 0x70]
    assert [int.from_bytes(body[:2]) for _, body in sent[-3:]] == [21, 22, 22]
    stopping = asyncio.ensure_future(link.unsubscribe([Subscription("a/+")]))
    sent.append(await packet(peer))
    peer.send(UnsubAck(int.from_bytes(sent[-1][1][:2]), () if version == "3.1.1" else (0,)))
    await stopping
    closing = asyncio.ensure_future(link.close())
    sent.append(await packet(peer))
    assert await peer.reader.read() == b"", "nothing follows DISCONNECT, and the client closes"
    with contextlib.suppress(ConnectionError):
        peer.close()
    await closing
    kinds = [first >> 4 for first, _ in sent]
    assert kinds == [1, 8, 3, 3, 3, 6, 4, 5, 7, 10, 14], "CONNECT comes first, and once"
    for first, _ in sent:
        reserved = RESERVED.get(first >> 4, 0)
        assert reserved is None or first & 0x0F == reserved
    assert [first for first, _ in sent[2:5]] == [0x30, 0x32, 0x34], "no DUP the first time"
    assert 0 not in (subscribe_id, *ids)
    assert len({subscribe_id, *ids}) == 3
    properties = b"\0" if version == "5" else b""
    assert sent[1][1] == subscribe_id.to_bytes(2) + properties + b"\x00\x03a/+\x02\x00\x01#\x00"
    assert sent[2][1] == b"\x00\x03t/1" + properties + b"payload", "no packet id at QoS 0"
    assert sent[3][1] == b"\x00\x03t/1" + ids[0].to_bytes(2) + properties + b"payload"
    assert sent[9][1][2:] == properties + b"\x00\x03a/+"
    assert ear.faults == []


@pytest.mark.parametrize("version", BOTH)
async def test_requests_and_messages_in_flight_never_share_a_packet_id(join, version: str):
    pair = await join(version)
    pair.link.publish(Outgoing(b"t", [b"x"] * 20, 1, False, 0))
    pair.link.publish(Outgoing(b"t", [b"x"] * 20, 2, False, 20))
    asking = [asyncio.ensure_future(pair.link.subscribe([Subscription(f"f/{n}")])) for n in range(10)]
    sent = [await packet(pair.peer) for _ in range(50)]
    ids = [int.from_bytes(body[3:5] if first >> 4 == 3 else body[:2]) for first, body in sent]
    assert 0 not in ids
    assert len(set(ids)) == 50
    for one in asking:
        one.cancel()
    await asyncio.gather(*asking, return_exceptions=True)


@pytest.mark.parametrize("version", BOTH)
async def test_results_belong_to_filters_in_their_order(join, version: str):
    pair = await join(version)
    asking = asyncio.ensure_future(pair.link.subscribe([Subscription(name, 2) for name in "abcd"]))
    _, body = await packet(pair.peer)
    pair.peer.send(SubAck(int.from_bytes(body[:2]), (2, 0x80, 0, 1)))
    granted = await asking
    assert [(one.subscription.filter, one.qos) for one in granted] == [("a", 2), ("b", -1), ("c", 0), ("d", 1)]


@pytest.mark.parametrize(
    "topic_filter", ["", "a#", "#/a", "a/#/b", "a+", "+a/b", "$share//t", "$share/a+/t", "$share/g/"]
)
async def test_a_filter_the_specification_forbids_is_not_sent(join, topic_filter: str):
    pair = await join("5")
    with pytest.raises(LinkError):
        await pair.link.subscribe([Subscription(topic_filter)])
    await pair.peer.silence()


@pytest.mark.parametrize("group", ["g", "a group"])
async def test_a_shared_subscription_is_written_with_its_group(join, group: str):
    pair = await join("5")
    asking = asyncio.ensure_future(pair.link.subscribe([Subscription("t/#", 1, group)]))
    _, body = await packet(pair.peer)
    name = f"$share/{group}/t/#".encode()
    assert body[3:] == len(name).to_bytes(2) + name + b"\x01"
    pair.peer.send(SubAck(int.from_bytes(body[:2]), (1,)))
    await asking


# ── receiving ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", BOTH)
async def test_an_acknowledged_id_may_be_used_for_a_new_message_whatever_its_dup(join, version: str):
    pair = await join(version)
    for dup in (False, True):
        pair.peer.send(Publish("t", b"one", 1, dup=dup, packet_id=5))
        assert await packet(pair.peer) == (0x40, b"\0\5")
        pair.peer.send(Publish("t", b"two", 2, dup=dup, packet_id=6), PubRel(6))
        assert [await packet(pair.peer) for _ in range(2)] == [(0x50, b"\0\6"), (0x70, b"\0\6")]
    assert pair.ear.payloads == [b"one", b"two"] * 2


@pytest.mark.parametrize("version", BOTH)
async def test_a_qos_2_message_is_delivered_once_until_it_is_released(join, version: str):
    pair = await join(version)
    for dup in (False, True, True):
        pair.peer.send(Publish("t", b"x", 2, dup=dup, packet_id=6))
        assert await packet(pair.peer) == (0x50, b"\0\6")
    assert len(pair.ear.messages) == 1
    pair.peer.send(PubRel(6), PubRel(6))
    assert [await packet(pair.peer) for _ in range(2)] == [(0x70, b"\0\6")] * 2


@pytest.mark.parametrize("count", [3, 30])
@pytest.mark.parametrize("version", BOTH)
async def test_acknowledgements_leave_in_the_order_of_what_they_answer(join, version: str, count: int):
    pair = await join(version)
    ids = [n * 7 % 65_535 + 1 for n in range(count)]
    pair.peer.send(*(Publish("t", b"x", 1, packet_id=n) for n in ids))
    assert [await packet(pair.peer) for _ in ids] == [(0x40, n.to_bytes(2)) for n in ids]
    pair.peer.send(*(Publish("t", b"x", 2, packet_id=n) for n in ids))
    assert [await packet(pair.peer) for _ in ids] == [(0x50, n.to_bytes(2)) for n in ids]
    pair.link.publish(Outgoing(b"t", [b"x"] * count, 2, False, 0))
    sent = [int.from_bytes((await packet(pair.peer))[1][3:5]) for _ in range(count)]
    pair.peer.send(*(PubRec(n) for n in reversed(sent)))
    assert [await packet(pair.peer) for _ in sent] == [(0x62, n.to_bytes(2)) for n in reversed(sent)]


@pytest.mark.parametrize("version", BOTH)
async def test_messages_nobody_subscribed_to_are_acknowledged_too(join, version: str):
    pair = await join(version)
    pair.peer.send(Publish("never/asked", b"x", 1, packet_id=9))
    assert await packet(pair.peer) == (0x40, b"\0\x09")


async def test_a_refused_message_is_done_with_and_its_id_free(join):
    pair = await join("5", clean=False)
    pair.link.publish(Outgoing(b"t", [b"a"], 1, False, 1))
    pair.link.publish(Outgoing(b"t", [b"b"], 2, False, 2))
    ids = [int.from_bytes(body[3:5]) for _, body in [await packet(pair.peer) for _ in range(2)]]
    pair.peer.send(PubAck(ids[0], 0x97), PubRec(ids[1], 0x87))
    await until(lambda: len(pair.ear.refused) == 2)
    assert pair.link.unacknowledged == 0
    await pair.peer.silence()


async def test_requests_leave_although_the_window_of_messages_is_full(join):
    pair = await join("5", ConnAck(properties=Properties(receive_maximum=1)))
    pair.link.publish(Outgoing(b"t", [b"x"], 1, False, 1))
    assert pair.link.room(1) == 0
    await packet(pair.peer)
    asking = asyncio.ensure_future(pair.link.subscribe([Subscription("f")]))
    first, body = await packet(pair.peer)
    assert first == 0x82
    pair.peer.send(SubAck(int.from_bytes(body[:2]), (0,)), Publish("t", b"x", 1, packet_id=3))
    assert await packet(pair.peer) == (0x40, b"\0\3")
    await asking


@pytest.mark.parametrize("version", BOTH)
async def test_what_was_released_is_not_published_again_and_all_comes_in_order(server, make, version: str):
    ear = Ear()
    link = make(version, ear, clean=False, session_expiry_s=100)
    opening = asyncio.ensure_future(link.open())
    peer = await server.accept()
    await packet(peer)
    peer.send(ConnAck())
    await opening
    link.publish(Outgoing(b"t", [b"a", b"b", b"c"], 2, False, 0))
    link.publish(Outgoing(b"t", [b"d", b"e"], 1, False, 3))
    ids = [int.from_bytes(body[3:5]) for _, body in [await packet(peer) for _ in range(5)]]
    peer.send(PubRec(ids[0]))
    await packet(peer)
    peer.writer.transport.abort()
    await until(lambda: ear.closings)
    opening = asyncio.ensure_future(link.open())
    peer = await server.accept()
    await packet(peer)
    peer.send(ConnAck(True))
    await opening
    again = [await packet(peer) for _ in range(5)]
    assert again[0] == (0x62, ids[0].to_bytes(2))
    assert [first for first, _ in again[1:]] == [0x3C, 0x3C, 0x3A, 0x3A], "DUP is set"
    assert [int.from_bytes(body[3:5]) for _, body in again[1:]] == ids[1:]
    assert [body[-1:] for _, body in again[1:]] == [b"b", b"c", b"d", b"e"]


async def test_a_session_the_broker_lost_begins_anew(server, make):
    ear = Ear()
    link = make("5", ear, clean=False, session_expiry_s=100)
    for present in (False, False):
        opening = asyncio.ensure_future(link.open())
        peer = await server.accept()
        await packet(peer)
        peer.send(ConnAck(present))
        await opening
        if not ear.messages:
            peer.send(Publish("t", b"x", 2, packet_id=4))
            assert await packet(peer) == (0x50, b"\0\4")
            link.abort()
    peer.send(Publish("t", b"x", 2, packet_id=4))
    assert await packet(peer) == (0x50, b"\0\4")
    assert len(ear.messages) == 2, "the id means nothing any more"


# ── the broker's limits ──────────────────────────────────────────────────────────────────────────────────────────


async def test_nothing_above_the_brokers_limits_is_sent(join):
    limits = Properties(maximum_qos=1, retain_available=False, maximum_packet_bytes=60)
    pair = await join("5", ConnAck(properties=limits))
    pair.link.publish(Outgoing(b"t", [b"x"], 2, False, 1))
    pair.link.publish(Outgoing(b"t", [b"x"], 0, True, 2))
    pair.link.publish(Outgoing(b"t", [b"x" * 60], 0, False, 3))
    pair.link.publish(Outgoing(b"t", [b"ok"], 1, False, 4))
    assert await packet(pair.peer) == (0x32, b"\x00\x01t\x00\x01\x00ok")
    await pair.peer.silence()
    assert sorted(pair.ear.refused) == [(1, 0x9B), (2, 0x9A), (3, 0x95)]


@pytest.mark.parametrize("maximum", [None, 0, 2])
async def test_topic_aliases_stay_within_what_the_broker_takes(join, maximum: int | None):
    answer = ConnAck(properties=Properties(topic_alias_maximum=maximum))
    pair = await join("5", answer, topic_alias=True)
    for topic in (b"a", b"b", b"c", b"a", b"b", b"c"):
        pair.link.publish(Outgoing(topic, [b"x"], 0, False, 0))
    said = [Reading((await packet(pair.peer))[1]) for _ in range(6)]
    found = [(one.text(), one.data[one.at : -1]) for one in said]
    no, first, second = b"\0", b"\3\x23\0\1", b"\3\x23\0\2"
    expected = [("a", no), ("b", no), ("c", no)] * 2
    if maximum:
        expected = [("a", first), ("b", second), ("c", no), ("", first), ("", second), ("c", no)]
    assert found == expected


async def test_nobody_is_asked_for_enhanced_authentication_and_no_auth_is_sent(server, make):
    opening = asyncio.ensure_future(make("5").open())
    peer = await server.accept()
    _, body = await packet(peer)
    assert b"\x15" not in body[10 : 11 + body[10]]
    peer.send(ConnAck(reason=0x8C))
    with pytest.raises(LinkError, match="authentication"):
        await opening
    assert await peer.ended() == b""


@pytest.mark.parametrize(("version", "reason"), [("3.1.1", 2), ("3.1.1", 5), ("5", 0x85), ("5", 0x87), ("5", 0x9F)])
async def test_a_refused_client_closes_and_says_nothing(server, make, version: str, reason: int):
    ear = Ear()
    opening = asyncio.ensure_future(make(version, ear).open())
    peer = await server.accept()
    await packet(peer)
    peer.send(ConnAck(reason=reason))
    with pytest.raises(LinkError) as caught:
        await opening
    assert caught.value.code == reason
    assert await peer.ended() == b""
    assert ear.faults == []
