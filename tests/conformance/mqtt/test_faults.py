"""Servers that break a rule of MQTT: our client ends the connection with the specification's reason, and counts it.

Written by hand from the specifications. Each fault is one packet (or two), sent over a real socket to a client that
was welcomed, or instead of the welcome.
"""

from __future__ import annotations

import asyncio

import pytest

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Failure, Outgoing, Subscription
from battlebrokers.protocols.mqtt.encode import encode
from battlebrokers.protocols.mqtt.packets import (
    ConnAck,
    Disconnect,
    Packet,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    UnsubAck,
)
from battlebrokers.protocols.mqtt.properties import Properties
from support.links import Ear, Peer, ScriptedBroker, until
from support.wire_notation import raw

LEVELS = {"3.1.1": 4, "5": 5}
BOTH, OLD, NEW = ("3.1.1", "5"), ("3.1.1",), ("5",)

AFTER_WELCOME: dict[str, tuple[tuple[str, ...], int, str]] = {
    # what does not belong here
    "a second CONNACK in 3.1.1": (OLD, 0x82, "20 02 00 00"),
    "a second CONNACK in 5": (NEW, 0x82, "20 03 00 00 00"),
    "CONNECT in 3.1.1": (OLD, 0x82, "10 .. 00 04 'MQTT' 04 02 00 3c 00 01 'a'"),
    "CONNECT in 5": (NEW, 0x82, "10 .. 00 04 'MQTT' 05 02 00 3c 00 00 01 'a'"),
    "SUBSCRIBE in 3.1.1": (OLD, 0x82, "82 .. 00 01 00 01 't' 00"),
    "SUBSCRIBE in 5": (NEW, 0x82, "82 .. 00 01 00 00 01 't' 00"),
    "UNSUBSCRIBE in 3.1.1": (OLD, 0x82, "a2 .. 00 01 00 01 't'"),
    "UNSUBSCRIBE in 5": (NEW, 0x82, "a2 .. 00 01 00 00 01 't'"),
    "PINGREQ": (BOTH, 0x82, "c0 00"),
    "DISCONNECT in 3.1.1": (OLD, 0x82, "e0 00"),
    "AUTH in 3.1.1": (OLD, 0x81, "f0 00"),
    "AUTH success": (NEW, 0x82, "f0 00"),
    "AUTH continue": (NEW, 0x82, "f0 .. 18 04 15 00 01 'm'"),
    "AUTH re-authenticate": (NEW, 0x82, "f0 .. 19 04 15 00 01 'm'"),
    "AUTH without a method": (NEW, 0x82, "f0 .. 18 00"),
    "AUTH with reserved bits": (NEW, 0x81, "f1 00"),
    "packet type 0": (BOTH, 0x81, "00 00"),
    # reserved bits
    "CONNACK with reserved bits": (BOTH, 0x81, "21 02 00 00"),
    "PUBACK with reserved bits": (BOTH, 0x81, "41 02 00 01"),
    "PUBREC with reserved bits": (BOTH, 0x81, "58 02 00 01"),
    "PUBREL without its bit": (BOTH, 0x81, "60 02 00 01"),
    "PUBREL with more bits": (BOTH, 0x81, "63 02 00 01"),
    "PUBCOMP with reserved bits": (BOTH, 0x81, "72 02 00 01"),
    "SUBACK with reserved bits": (BOTH, 0x81, "91 03 00 01 00"),
    "UNSUBACK with reserved bits": (BOTH, 0x81, "b8 02 00 01"),
    "PINGRESP with reserved bits": (BOTH, 0x81, "d4 00"),
    "DISCONNECT with reserved bits": (NEW, 0x81, "e1 00"),
    # lengths
    "a remaining length of five bytes": (BOTH, 0x81, "30 80 80 80 80 01"),
    "a remaining length that never ends": (BOTH, 0x81, "30 ff ff ff ff ff"),
    "a padded remaining length": (NEW, 0x81, "d0 80 00"),
    "PINGRESP with a body": (BOTH, 0x81, "d0 01 00"),
    "a body that ends inside the packet id": (BOTH, 0x81, "40 01 00"),
    "an acknowledgement longer than its version allows": (OLD, 0x81, "40 03 00 01 00"),
    "UNSUBACK with results in 3.1.1": (OLD, 0x81, "b0 03 00 01 00"),
    # PUBLISH
    "PUBLISH with QoS 3": (BOTH, 0x81, "36 .. 00 01 't' 00 01 00"),
    "PUBLISH with QoS 3 and DUP": (BOTH, 0x81, "3e .. 00 01 't' 00 01 00"),
    "PUBLISH with DUP at QoS 0": (BOTH, 0x81, "38 .. 00 01 't' 00"),
    "PUBLISH with packet id 0 at QoS 1": (BOTH, 0x81, "32 .. 00 01 't' 00 00 00"),
    "PUBLISH with packet id 0 at QoS 2": (BOTH, 0x81, "34 .. 00 01 't' 00 00 00"),
    "PUBLISH without a topic length": (BOTH, 0x81, "30 01 00"),
    "PUBLISH that ends in its topic": (BOTH, 0x81, "30 .. 00 05 'abc'"),
    "PUBLISH that ends before its packet id": (BOTH, 0x81, "32 .. 00 01 't' 00"),
    "PUBLISH that ends before its properties": (NEW, 0x81, "30 .. 00 01 't'"),
    "PUBLISH that ends in its properties": (NEW, 0x81, "30 .. 00 01 't' 05 01 00"),
    "PUBLISH whose property length has five bytes": (NEW, 0x81, "30 .. 00 01 't' ff ff ff ff 01 00"),
    "PUBLISH with an empty topic": (OLD, 0x81, "30 .. 00 00 'x'"),
    "PUBLISH with neither topic nor alias": (NEW, 0x82, "30 .. 00 00 00 'x'"),
    "PUBLISH with an empty topic and other properties": (NEW, 0x82, "30 .. 00 00 02 01 01 'x'"),
    "a topic with ill-formed UTF-8": (BOTH, 0x81, "30 .. 00 02 c3 28 00"),
    "a topic with a surrogate": (BOTH, 0x81, "30 .. 00 03 ed a0 80 00"),
    "a topic beyond U+10FFFF": (BOTH, 0x81, "30 .. 00 04 f4 90 80 80 00"),
    "a topic with U+0000": (BOTH, 0x81, "30 .. 00 03 'a' 00 'b' 00"),
    "a topic with #": (BOTH, 0x81, "30 .. 00 03 'a/#' 00"),
    "a topic with +": (BOTH, 0x81, "30 .. 00 03 'a/+' 00"),
    "a topic alias of 0": (NEW, 0x94, "30 .. 00 01 't' 03 23 00 00"),
    "a topic alias although we accept none": (NEW, 0x94, "30 .. 00 01 't' 03 23 00 01"),
    "subscription identifier 0": (NEW, 0x82, "30 .. 00 01 't' 02 0b 00"),
    "a subscription identifier of five bytes": (NEW, 0x81, "30 .. 00 01 't' 06 0b ff ff ff ff 01"),
    "payload format indicator 2": (NEW, 0x82, "30 .. 00 01 't' 02 01 02"),
    "payload format indicator twice": (NEW, 0x82, "30 .. 00 01 't' 04 01 00 01 00"),
    "message expiry interval twice": (NEW, 0x82, "30 .. 00 01 't' 0a 02 00 00 00 01 02 00 00 00 01"),
    "message expiry interval cut off": (NEW, 0x81, "30 .. 00 01 't' 03 02 00 00"),
    "content type with ill-formed UTF-8": (NEW, 0x81, "30 .. 00 01 't' 04 03 00 01 ff"),
    "response topic with a wildcard": (NEW, 0x81, "30 .. 00 01 't' 04 08 00 01 '#'"),
    "response topic with ill-formed UTF-8": (NEW, 0x81, "30 .. 00 01 't' 04 08 00 01 ff"),
    "correlation data twice": (NEW, 0x82, "30 .. 00 01 't' 06 09 00 00 09 00 00"),
    "a user property with U+0000": (NEW, 0x81, "30 .. 00 01 't' 06 26 00 01 00 00 00"),
    "a user property with an ill-formed value": (NEW, 0x81, "30 .. 00 01 't' 06 26 00 00 00 01 ff"),
    "a user property cut off": (NEW, 0x81, "30 .. 00 01 't' 03 26 00 00"),
    "an unknown property": (NEW, 0x81, "30 .. 00 01 't' 02 04 00"),
    "a property of another packet": (NEW, 0x82, "30 .. 00 01 't' 03 21 00 01"),
    # acknowledgements
    "PUBACK with packet id 0": (BOTH, 0x81, "40 02 00 00"),
    "PUBREC with packet id 0": (BOTH, 0x81, "50 02 00 00"),
    "PUBREL with packet id 0": (BOTH, 0x81, "62 02 00 00"),
    "PUBCOMP with packet id 0": (BOTH, 0x81, "70 02 00 00"),
    "SUBACK with packet id 0": (BOTH, 0x81, "90 .. 00 00 00 00"),
    "UNSUBACK with packet id 0": (BOTH, 0x81, "b0 02 00 00"),
    "PUBACK with a reason of SUBACK": (NEW, 0x82, "40 03 00 01 01"),
    "PUBREC with an unknown reason": (NEW, 0x82, "50 03 00 01 42"),
    "PUBREL with a reason of PUBACK": (NEW, 0x82, "62 03 00 01 97"),
    "PUBCOMP with a reason of PUBACK": (NEW, 0x82, "70 03 00 01 10"),
    "PUBACK with ill-formed UTF-8 in its reason string": (NEW, 0x81, "40 .. 00 01 00 04 1f 00 01 ff"),
    "PUBREC with two reason strings": (NEW, 0x82, "50 .. 00 01 00 06 1f 00 00 1f 00 00"),
    "PUBREL with a property of PUBLISH": (NEW, 0x82, "62 .. 00 01 00 02 01 01"),
    "PUBCOMP whose properties are cut off": (NEW, 0x81, "70 .. 00 01 00 05 1f 00"),
    "SUBACK without results in 3.1.1": (OLD, 0x82, "90 02 00 01"),
    "SUBACK without results in 5": (NEW, 0x82, "90 .. 00 01 00"),
    "SUBACK with an unknown result in 3.1.1": (OLD, 0x82, "90 .. 00 01 03"),
    "SUBACK with an unknown result in 5": (NEW, 0x82, "90 .. 00 01 00 03"),
    "UNSUBACK with an unknown result": (NEW, 0x82, "b0 .. 00 01 00 10"),
    # DISCONNECT
    "DISCONNECT with a reason of CONNACK": (NEW, 0x82, "e0 02 84 00"),
    "DISCONNECT with an unknown reason": (NEW, 0x82, "e0 02 05 00"),
    "DISCONNECT that asks for the will": (NEW, 0x82, "e0 02 04 00"),
    "DISCONNECT with a session expiry interval": (NEW, 0x82, "e0 .. 00 05 11 00 00 00 01"),
    "DISCONNECT with two server references": (NEW, 0x82, "e0 .. 9c 06 1c 00 00 1c 00 00"),
    "DISCONNECT with ill-formed UTF-8": (NEW, 0x81, "e0 .. 8b 04 1f 00 01 ff"),
}
"""Versions, the reason our DISCONNECT carries in MQTT 5, and what the server sends."""

INSTEAD_OF_WELCOME: dict[str, tuple[tuple[str, ...], str]] = {
    "PUBLISH before CONNACK": (BOTH, "30 .. 00 01 't' 00"),
    "PINGRESP before CONNACK": (BOTH, "d0 00"),
    "SUBACK before CONNACK": (BOTH, "90 .. 00 01 00 00"),
    "DISCONNECT before CONNACK": (BOTH, "e0 00"),
    "AUTH before CONNACK, which nobody asked for": (NEW, "f0 .. 18 04 15 00 01 'm'"),
    "CONNACK with reserved acknowledge flags": (BOTH, "20 .. 02 00 00"),
    "CONNACK with all acknowledge flags": (OLD, "20 02 ff 00"),
    "CONNACK with an unknown return code": (OLD, "20 02 00 06"),
    "CONNACK with an unknown reason code": (NEW, "20 03 00 05 00"),
    "CONNACK that refuses and has a session in 3.1.1": (OLD, "20 02 01 05"),
    "CONNACK that refuses and has a session in 5": (NEW, "20 03 01 87 00"),
    "CONNACK that is too short": (BOTH, "20 01 00"),
    "CONNACK that is too long": (OLD, "20 03 00 00 00"),
    "CONNACK without properties": (NEW, "20 02 00 00"),
    "CONNACK with reserved bits in its first byte": (BOTH, "22 .. 00 00 00"),
    "CONNACK with maximum QoS 2": (NEW, "20 .. 00 00 02 24 02"),
    "CONNACK with receive maximum 0": (NEW, "20 .. 00 00 03 21 00 00"),
    "CONNACK with maximum packet size 0": (NEW, "20 .. 00 00 05 27 00 00 00 00"),
    "CONNACK with retain available 2": (NEW, "20 .. 00 00 02 25 02"),
    "CONNACK with two session expiry intervals": (NEW, "20 .. 00 00 0a 11 00 00 00 01 11 00 00 00 01"),
    "CONNACK with two server keep alives": (NEW, "20 .. 00 00 06 13 00 01 13 00 01"),
    "CONNACK with a topic alias": (NEW, "20 .. 00 00 03 23 00 01"),
    "CONNACK with an ill-formed assigned client id": (NEW, "20 .. 00 00 04 12 00 01 ff"),
    "CONNACK with wildcard available 7": (NEW, "20 .. 00 00 02 28 07"),
    "CONNACK with a property cut off": (NEW, "20 .. 00 00 02 21 00"),
    "no MQTT at all": (BOTH, "'HTTP/1.1 400 Bad Request' 0d 0a 0d 0a"),
}

LEGAL: dict[str, tuple[tuple[str, ...], str, int]] = {
    "a message without payload": (BOTH, "30 .. 00 01 't' 00", 1),
    "a kept message": (BOTH, "31 .. 00 01 't' 00", 1),
    "a message sent again that never came before": (BOTH, "3a .. 00 01 't' 00 07 00", 1),
    "a topic with a byte order mark": (BOTH, "30 .. 00 04 ef bb bf 't' 00", 1),
    "a topic of one slash": (BOTH, "30 .. 00 01 '/' 00", 1),
    "a topic with a dollar sign": (BOTH, "30 .. 00 02 '$s' 00", 1),
    "PINGRESP nobody asked for": (BOTH, "d0 00", 0),
    "PUBACK of no message": (BOTH, "40 02 00 09", 0),
    "PUBCOMP of no message": (BOTH, "70 02 00 09", 0),
    "SUBACK of no request": (OLD, "90 03 00 09 00", 0),
    "UNSUBACK of no request": (OLD, "b0 02 00 09", 0),
    "a padded remaining length": (OLD, "d0 80 00", 0),
    "a message with every property": (
        NEW,
        (
            "30 .. 00 01 't' 26 01 01 02 00 00 00 3c 03 00 01 'c' 08 00 01 'r' 09 00 01 ff 0b 01 0b 80 01 "
            "26 00 01 'k' 00 01 'v' 26 00 01 'k' 00 01 'w' 'x'"
        ),
        1,
    ),
    "an acknowledgement with a user property twice": (
        NEW, "40 .. 00 09 10 0a 26 00 00 00 00 26 00 00 00 00", 0,
    ),
}  # fmt: skip
"""Versions, what the server sends, and how many messages arrive."""


def cases(table: dict[str, tuple]) -> list[tuple[str, str]]:
    return [(name, version) for name, row in table.items() for version in row[0]]


async def left(peer: Peer, version: str, reason: int) -> None:
    """The client closes; in MQTT 5 it says why, and nothing after that."""
    goodbye = bytes((0xE0, 2, reason, 0)) if version == "5" else b""
    assert await peer.ended() == goodbye


@pytest.mark.parametrize(("fault", "version"), cases(AFTER_WELCOME))
async def test_a_fault_ends_the_connection_with_its_reason(join, fault: str, version: str):
    _, reason, notation = AFTER_WELCOME[fault]
    pair = await join(version)
    pair.peer.send(raw(notation))
    await left(pair.peer, version, reason)
    await until(lambda: pair.ear.closings)
    assert pair.ear.fault_kinds == [Failure.MALFORMED]
    assert [reason for _, reason in pair.ear.closings] == [Failure.MALFORMED]
    assert pair.ear.messages == []


@pytest.mark.parametrize(("fault", "version"), cases(INSTEAD_OF_WELCOME))
async def test_a_fault_instead_of_the_welcome_ends_the_attempt(server, make, fault: str, version: str):
    _, notation = INSTEAD_OF_WELCOME[fault]
    ear = Ear()
    opening = asyncio.ensure_future(make(version, ear).open())
    peer = await server.accept()
    await peer.read()
    peer.send(raw(notation))
    with pytest.raises(LinkError):
        await opening
    assert await peer.ended() == b""
    assert len(ear.faults) == 1
    assert ear.closings == []
    assert ear.messages == []


@pytest.mark.parametrize(("oddity", "version"), cases(LEGAL))
async def test_what_is_odd_but_legal_changes_nothing(join, oddity: str, version: str):
    _, notation, messages = LEGAL[oddity]
    pair = await join(version)
    sent = raw(notation)
    if version == "3.1.1" and sent[0] >> 4 == 3:
        # The notation is that of MQTT 5: without properties, the last byte is their length.
        sent = bytes((sent[0], sent[1] - 1)) + sent[2:-1]
    pair.peer.send(sent, PubRel(40))
    answers = [await pair.peer.read() for _ in range(2 if sent[0] & 0xF6 == 0x32 else 1)]
    assert answers[-1] == PubComp(40)
    assert len(pair.ear.messages) == messages
    assert pair.ear.faults == pair.ear.closings == []
    pair.link.abort()


# ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────────

TWO = [Subscription("a", 1), Subscription("b", 0)]
WRONG_ANSWERS: dict[str, tuple[tuple[str, ...], bool, Packet | bytes]] = {
    "SUBACK with one result for two": (BOTH, True, SubAck(1, (0,))),
    "SUBACK with three results for two": (BOTH, True, SubAck(1, (0, 0, 0))),
    "UNSUBACK for SUBSCRIBE in 3.1.1": (OLD, True, UnsubAck(1)),
    "UNSUBACK for SUBSCRIBE in 5": (NEW, True, UnsubAck(1, (0, 0))),
    "SUBACK for UNSUBSCRIBE": (BOTH, False, SubAck(1, (0, 0))),
    "UNSUBACK with one result for two": (NEW, False, UnsubAck(1, (0,))),
}


@pytest.mark.parametrize(("answer", "version"), cases(WRONG_ANSWERS))
async def test_an_answer_that_does_not_fit_its_request_is_a_protocol_error(join, answer: str, version: str):
    _, subscribing, packet = WRONG_ANSWERS[answer]
    pair = await join(version)
    asking = asyncio.ensure_future(pair.link.subscribe(TWO) if subscribing else pair.link.unsubscribe(TWO))
    asked = await pair.peer.read()
    assert asked.packet_id == 1  # type: ignore[union-attr]
    pair.peer.send(packet)
    with pytest.raises(LinkError):
        await asking
    await left(pair.peer, version, 0x82)
    await until(lambda: pair.ear.closings)
    assert pair.ear.fault_kinds == [Failure.MALFORMED]


@pytest.mark.parametrize("version", BOTH)
async def test_an_answer_under_another_packet_id_answers_nothing(join, version: str):
    pair = await join(version)
    asking = asyncio.ensure_future(pair.link.subscribe(TWO))
    await pair.peer.read()
    pair.peer.send(SubAck(2, (0, 0)), SubAck(1, (1, 0)))
    assert [granted.qos for granted in await asking] == [1, 0]
    assert pair.ear.faults == []


# ── topic aliases ────────────────────────────────────────────────────────────────────────────────────────────────


def aliased(alias: int, topic: str = "") -> Publish:
    return Publish(topic, b"x", properties=Properties(topic_alias=alias))


ALIASES: dict[str, tuple[tuple[str, ...], list[Publish], int, int]] = {
    "an alias that was never given a topic": (NEW, [aliased(3)], 0x82, 0),
    "an alias above our maximum": (NEW, [aliased(1025, "t")], 0x94, 0),
    "an unknown alias behind a known one": (NEW, [aliased(1, "t"), aliased(1), aliased(2)], 0x82, 2),
}


@pytest.mark.parametrize(("fault", "version"), cases(ALIASES))
async def test_a_wrong_topic_alias_ends_the_connection(join, fault: str, version: str):
    _, packets, reason, messages = ALIASES[fault]
    pair = await join(version, topic_alias=True)
    pair.peer.send(*packets)
    await left(pair.peer, version, reason)
    await until(lambda: pair.ear.closings)
    assert len(pair.ear.messages) == messages


async def test_every_alias_up_to_our_maximum_is_accepted_and_may_be_given_a_new_topic(join):
    pair = await join("5", topic_alias=True)
    pair.peer.send(*(aliased(n, f"t/{n}") for n in range(1, 1025)), *(aliased(n) for n in range(1, 1025)))
    pair.peer.send(aliased(1, "new"), aliased(1))
    await until(lambda: len(pair.ear.messages) == 2050)
    assert [heard.topic for heard in pair.ear.messages[1024:2048]] == [b"t/%d" % n for n in range(1, 1025)]
    assert [heard.topic for heard in pair.ear.messages[2048:]] == [b"new"] * 2


async def test_aliases_of_one_connection_mean_nothing_on_the_next(server: ScriptedBroker, make):
    ear = Ear()
    link = make("5", ear, topic_alias=True)
    opening = asyncio.ensure_future(link.open())
    peer = await server.welcome()
    await opening
    peer.send(aliased(1, "t"))
    await until(lambda: ear.messages)
    link.abort()
    opening = asyncio.ensure_future(link.open())
    peer = await server.welcome()
    await opening
    peer.send(aliased(1))
    await left(peer, "5", 0x82)
    assert len(ear.messages) == 1


# ── the server ends it ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("reason", "words"), [(0x8B, "shutting down"), (0x8E, "taken over"), (0x00, "normal"), (0x9D, "moved")]
)
async def test_a_server_that_says_goodbye_is_left_without_a_word(join, reason: int, words: str):
    pair = await join("5")
    pair.peer.send(Disconnect(reason, Properties(reason_string="because")))
    assert await pair.peer.ended() == b""
    await until(lambda: pair.ear.closings)
    ((detail, told),) = pair.ear.closings
    assert (told, pair.ear.faults) == (reason, [])
    assert words in detail
    assert "because" in detail


@pytest.mark.parametrize("version", BOTH)
async def test_what_follows_a_fault_in_the_same_chunk_is_not_taken(join, version: str):
    pair = await join(version)
    level = LEVELS[version]
    good = encode(Publish("t", b"before"), level)
    pair.peer.send(good + b"\x36\x03\x00\x01t" + encode(Publish("t", b"after"), level) * 20)
    await left(pair.peer, version, 0x81)
    await until(lambda: pair.ear.closings)
    assert pair.ear.payloads == [b"before"]
    assert len(pair.ear.faults) == 1


# ── packets in pieces ────────────────────────────────────────────────────────────────────────────────────────────

PIECES: list[Packet] = [
    Publish("t/1", b"payload", 0),
    Publish("t/1", b"payload", 1, packet_id=7),
    Publish("t/ä", b"p" * 200, 2, packet_id=8),
    PubAck(1),
    PubRec(2),
    PubRel(3),
    PubComp(4),
    SubAck(5, (0, 1)),
    UnsubAck(6),
    PingResp(),
]
RICH: list[Packet] = [
    Publish("t", b"x", 1, packet_id=7, properties=Properties(content_type="text", user_properties=(("k", "v"),))),
    PubAck(1, 0x10, Properties(reason_string="none")),
    SubAck(5, (0, 0x87), Properties(user_properties=(("k", "v"),))),
    UnsubAck(6, (0, 0x11)),
]


def of_version(packet: Packet, version: str) -> Packet:
    return UnsubAck(6, (0,)) if version == "5" and packet == UnsubAck(6) else packet


@pytest.mark.parametrize(
    ("packet", "version"),
    [(p, v) for v in BOTH for p in PIECES] + [(p, "5") for p in RICH],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value,
)
async def test_a_packet_cut_at_any_byte_is_waited_for_and_then_taken_whole(join, packet: Packet, version: str):
    frame = encode(of_version(packet, version), LEVELS[version])
    pair = await join(version)
    incoming = isinstance(packet, Publish)
    # Small packets travel at once, so that most cuts become reads of their own.
    for place in range(1, len(frame)):
        pair.peer.send(frame[:place])
        await asyncio.sleep(0)
        before = len(pair.ear.messages)
        assert before <= place - 1
        pair.peer.send(frame[place:])
        await asyncio.sleep(0)
    pair.peer.send(PubRel(99))
    while await pair.peer.read() != PubComp(99):
        pass
    assert pair.ear.faults == pair.ear.closings == []
    if incoming:
        # A QoS 2 message under one id is the same message until it is released.
        expected = 1 if packet.qos == 2 else len(frame) - 1  # type: ignore[union-attr]
        assert len(pair.ear.messages) == expected
        assert {heard.payload for heard in pair.ear.messages} == {packet.payload}  # type: ignore[union-attr]


@pytest.mark.parametrize("version", BOTH)
async def test_a_server_that_goes_in_the_middle_of_a_packet_has_sent_nothing(server, make, version: str):
    frames = [encode(of_version(packet, version), LEVELS[version]) for packet in PIECES]
    for frame in frames:
        for place in {1, 2, len(frame) // 2, len(frame) - 1} - {0, len(frame)}:
            ear = Ear()
            opening = asyncio.ensure_future(make(version, ear).open())
            peer = await server.welcome()
            await opening
            peer.send(frame[:place])
            await peer.writer.drain()
            peer.close()
            await until(lambda ear=ear: ear.closings)
            assert [reason for _, reason in ear.closings] == [Failure.CLOSED]
            assert ear.messages == ear.faults == []


@pytest.mark.parametrize("version", BOTH)
async def test_a_welcome_cut_at_any_byte_and_then_closed_is_no_welcome(server, make, version: str):
    welcome = encode(ConnAck(), LEVELS[version])
    for place in range(len(welcome)):
        opening = asyncio.ensure_future(make(version).open())
        peer = await server.accept()
        await peer.read()
        peer.send(welcome[:place])
        await peer.writer.drain()
        peer.close()
        with pytest.raises(LinkError):
            await opening


async def test_what_was_in_flight_when_a_fault_ended_the_connection_is_still_owed(join):
    pair = await join("5")
    pair.link.publish(Outgoing(b"t", [b"x", b"y"], 1, False, 5))
    pair.peer.send(b"\x40\x03\x00\x01\x42")
    await until(lambda: pair.ear.closings)
    assert pair.ear.acked == pair.ear.refused == []
    assert pair.link.unacknowledged == 2
