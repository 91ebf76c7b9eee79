"""Packets that break one rule of the specifications each (malformed_packets.txt): decode names the rule and the reason.

And packets that break one before they are written: encode refuses them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from battlebrokers.protocols.mqtt.decode import decode
from battlebrokers.protocols.mqtt.encode import encode
from battlebrokers.protocols.mqtt.framing import split_frames
from battlebrokers.protocols.mqtt.malformed import MalformedPacket
from battlebrokers.protocols.mqtt.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    FilterRequest,
    Packet,
    PacketType,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    WillMessage,
)
from battlebrokers.protocols.mqtt.properties import Properties
from battlebrokers.protocols.mqtt.reasons import allowed_reasons
from support.wire_notation import raw

TABLE = Path(__file__).with_name("malformed_packets.txt")


def read_table() -> list[tuple[int, str, int, str]]:
    """(version, packet, reason code, words) of every line."""
    lines = [line for line in TABLE.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    rows = [[cell.strip() for cell in line.split(" | ")] for line in lines]
    return [
        (int(version), wire, int(reason, 16), words) for versions, reason, wire, words in rows for version in versions
    ]


VECTORS = read_table()


@pytest.mark.parametrize(("version", "wire", "reason", "words"), VECTORS, ids=[f"{v[0]} {v[1]}" for v in VECTORS])
def test_a_broken_rule_is_named(version: int, wire: str, reason: int, words: str) -> None:
    frame = raw(wire)
    ((_, body, end),) = split_frames(frame).frames
    assert end == len(frame)
    with pytest.raises(MalformedPacket, match=re.escape(words)) as caught:
        decode(frame[0], frame[body:], version)
    assert caught.value.reason == reason


def test_there_are_enough_vectors() -> None:
    assert len(VECTORS) >= 200


@pytest.mark.parametrize("version", [4, 5])
def test_reason_codes_outside_the_table_are_refused_in_every_answer(version: int) -> None:
    for code in range(256):
        allowed = code in allowed_reasons(PacketType.PUBACK, version)
        try:
            decode(0x40, bytes((0, 1, code)), version)
        except MalformedPacket:
            assert not allowed or version == 4
        else:
            assert allowed


CANNOT_BE_WRITTEN: list[tuple[int, Packet]] = [
    (4, Connect("a" * 65_536)),
    (4, Connect("\0")),
    (4, Connect("\ud800")),
    (4, Connect("a", 3)),
    (4, Connect("a", keep_alive_s=65_536)),
    (4, Connect("a", keep_alive_s=-1)),
    (4, Connect("a", password=b"p")),
    (4, Connect("", clean=False)),
    (4, Connect("a", properties=Properties(receive_maximum=1))),
    (4, Connect("a", will=WillMessage("t", b"", properties=Properties(will_delay_s=1)))),
    (4, Connect("a", will=WillMessage("t", b"m" * 65_536))),
    (4, Connect("a", will=WillMessage("t/#", b""))),
    (4, Connect("a", will=WillMessage("t", b"", 3))),
    (5, Connect("a", 5, properties=Properties(receive_maximum=0))),
    (5, Connect("a", 5, properties=Properties(receive_maximum=65_536))),
    (5, Connect("a", 5, properties=Properties(session_expiry_s=1 << 32))),
    (5, Connect("a", 5, properties=Properties(topic_alias=1))),
    (5, Connect("a", 5, properties=Properties(user_properties=(("a", "\0"),)))),
    (5, Connect("a", 5, properties=Properties(authentication_data=b"x"))),
    (4, ConnAck(reason=0x87)),
    (5, ConnAck(True, 0x87)),
    (4, Publish("")),
    (4, Publish("a/+")),
    (4, Publish("a", qos=1)),
    (4, Publish("a", qos=1, packet_id=0)),
    (4, Publish("a", qos=1, packet_id=65_536)),
    (4, Publish("a", packet_id=1)),
    (4, Publish("a", qos=3, packet_id=1)),
    (4, Publish("a", dup=True)),
    (4, Publish("a", properties=Properties(topic_alias=1))),
    (5, Publish("")),
    (5, Publish("a", properties=Properties(payload_format=2))),
    (5, Publish("a", properties=Properties(subscription_identifiers=(0,)))),
    (5, Publish("a", properties=Properties(subscription_identifiers=(268_435_456,)))),
    (5, Publish("a", properties=Properties(response_topic="#"))),
    (4, PubAck(1, 0x10)),
    (5, PubAck(0)),
    (5, PubAck(1, 0x92)),
    (4, Subscribe(1, ())),
    (4, Subscribe(0, (FilterRequest("a"),))),
    (4, Subscribe(1, (FilterRequest("a", no_local=True),))),
    (5, Subscribe(1, (FilterRequest("a", retain_handling=3),))),
    (5, Subscribe(1, (FilterRequest("a"),), Properties(subscription_identifiers=(1, 2)))),
    (5, SubAck(1, ())),
    (4, Unsubscribe(1, ())),
    (4, UnsubAck(1, (0,))),
    (5, UnsubAck(1)),
    (4, Disconnect(4)),
    (5, Disconnect(0x84)),
    (4, Auth()),
    (5, Auth(0x18)),
    (3, Disconnect()),
]


@pytest.mark.parametrize(("version", "packet"), CANNOT_BE_WRITTEN, ids=[f"{v} {p!r:.70}" for v, p in CANNOT_BE_WRITTEN])
def test_encode_refuses_what_the_specification_forbids(version: int, packet: Packet) -> None:
    with pytest.raises(MalformedPacket):
        encode(packet, version)
