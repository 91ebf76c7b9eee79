"""MQTT on the wire: packets, pairs, aliases, gaps."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.dissect.registry import recognised
from battlebrokers.tables.message_header import HEADER, VERSION
from support.conversation import CLIENT, SERVER, Lost, heard, summary
from support.examples import examples


def packet(first: int, body: bytes) -> bytes:
    length, encoded = len(body), b""
    while True:
        length, digit = length >> 7, length & 127
        encoded += bytes((digit | (128 if length else 0),))
        if not length:
            return bytes((first,)) + encoded + body


def text(value: str) -> bytes:
    return len(value.encode()).to_bytes(2, "big") + value.encode()


def number(value: int) -> bytes:
    return value.to_bytes(2, "big")


def connect(client_id="dev", version=4, properties=b"\x00"):
    protocol = text("MQIsdp" if version == 3 else "MQTT")
    return packet(0x10, protocol + bytes((version, 2, 0, 60)) + (properties if version == 5 else b"") + text(client_id))


def publish(topic, payload, qos=0, packet_id=0, version=4, properties=b"\x00", dup=False):
    return packet(
        0x30 | qos << 1 | (8 if dup else 0),
        text(topic) + (number(packet_id) if qos else b"") + (properties if version == 5 else b"") + payload,
    )


def ack(kind, packet_id, reason=b""):
    return packet(kind << 4 | (2 if kind == 6 else 0), number(packet_id) + reason)


CONNACK = b"\x20\x02\x00\x00"
CONNACK_5 = b"\x20\x03\x00\x00\x00"
SUBSCRIBE = packet(0x82, number(1) + text("a/#") + b"\x01" + text("b") + b"\x00")
SUBACK = packet(0x90, number(1) + b"\x01\x00")


def test_a_session_is_told_packet_by_packet_and_pair_by_pair():
    said = heard(
        [
            (CLIENT, connect("sensor-7")), (SERVER, CONNACK), (CLIENT, SUBSCRIBE), (SERVER, SUBACK),
            (CLIENT, publish("a/x", b"zero")), (CLIENT, publish("a/x", b"one", 1, 2)), (SERVER, ack(4, 2)),
            (CLIENT, publish("a/x", b"two", 2, 3)), (SERVER, ack(5, 3)), (CLIENT, ack(6, 3)), (SERVER, ack(7, 3)),
            (CLIENT, packet(0xA2, number(4) + text("a/#"))), (SERVER, packet(0xB0, number(4))),
            (CLIENT, b"\xc0\x00"), (SERVER, b"\xd0\x00"), (CLIENT, b"\xe0\x00"),
        ],
        1883, protocol="mqtt",
    )  # fmt: skip
    assert said.pairs == [
        ("CONNECT", "CONNACK"), ("SUBSCRIBE", "SUBACK"), ("PUBLISH", "PUBACK"), ("PUBLISH", "PUBREC"),
        ("PUBREL", "PUBCOMP"), ("UNSUBSCRIBE", "UNSUBACK"), ("PINGREQ", "PINGRESP"),
    ]  # fmt: skip
    names = {(told.found.kind, told.found.name) for told in said.messages if told.found.name}
    assert names == {("CONNECT", "sensor-7"), ("SUBSCRIBE", "a/#, b"), ("PUBLISH", "a/x"), ("UNSUBSCRIBE", "a/#")}
    assert not any(told.found.failed for told in said.messages)
    assert {row.rule for row in said.exchanges} == {"id", "order"}
    assert said.stream.malformed == said.stream.undecoded_bytes == 0


@pytest.mark.parametrize("window", [1, 3, 1 << 30])
def test_both_sides_count_their_packet_ids_for_themselves(window):
    turns = [(CLIENT, connect()), (SERVER, CONNACK)]
    for round_ in range(20):
        turns += [
            (CLIENT, publish("up", b"%d" % round_, 1, 1)), (SERVER, publish("down", b"%d" % round_, 1, 1)),
            (CLIENT, ack(4, 1)), (SERVER, ack(4, 1)),
        ]  # fmt: skip
    said = heard(turns, 1883, window=window)
    publishes = [row for row in said.exchanges if row.request.found.kind == "PUBLISH"]
    assert len(publishes) == 40
    for row in publishes:
        assert row.response.found.sender == 1 - row.request.found.sender
        assert 0 < row.answered_ns - row.request.last_ns <= 3000


@pytest.mark.parametrize("window", [1, 4, 1 << 30])
def test_an_acknowledgement_of_what_came_before_the_capture_pairs_with_nothing_later(window):
    turns = [(CLIENT, ack(4, 1))]
    for _ in range(5):
        turns += [(SERVER, publish("down", b"x", 1, 1)), (CLIENT, ack(4, 1))]
    said = heard(turns, 1883, window=window)
    assert [row.answered_ns - row.request.last_ns for row in said.exchanges] == [1000] * 5


def test_a_repeated_publish_belongs_to_the_first_one():
    said = heard(
        [
            (CLIENT, connect()), (SERVER, CONNACK), (CLIENT, publish("t", b"x", 1, 9)),
            (CLIENT, publish("t", b"x", 1, 9, dup=True)), (SERVER, ack(4, 9)),
        ],
        1883,
    )  # fmt: skip
    assert said.pairs == [("CONNECT", "CONNACK"), ("PUBLISH", "PUBACK")]
    assert said.kinds.count("PUBLISH") == 2


def test_topic_aliases_are_resolved_per_direction():
    alias = b"\x03\x23\x00\x01"
    user = packet(0, text("k") + text("v"))[2:]
    with_user = bytes((1 + len(user) + 3,)) + b"\x26" + user + b"\x23\x00\x01"
    said = heard(
        [
            (CLIENT, connect(version=5)), (SERVER, CONNACK_5),
            (CLIENT, publish("up", b"1", version=5, properties=with_user)),
            (SERVER, publish("down", b"2", version=5, properties=alias)),
            (CLIENT, publish("", b"3", version=5, properties=alias)),
            (SERVER, publish("", b"4", version=5, properties=alias)),
        ],
        1883,
    )  # fmt: skip
    rows = sorted((told.first_ns, told.found.name, told.found.payload_bytes) for told in said.messages)
    assert [(name, size) for _, name, size in rows[2:]] == [("up", 1), ("down", 1), ("up", 1), ("down", 1)]


def test_refusals_are_failures():
    five = [
        (CLIENT, connect(version=5)), (SERVER, CONNACK_5),
        (CLIENT, publish("t", b"", 1, 1, 5)), (SERVER, ack(4, 1, b"\x87")),
        (CLIENT, publish("t", b"", 2, 2, 5)), (SERVER, ack(5, 2, b"\x97\x00")),
        (CLIENT, packet(0x82, number(3) + b"\x00" + text("t") + b"\x00")),
        (SERVER, packet(0x90, number(3) + b"\x00\x87")), (SERVER, b"\xe0\x02\x8e\x00"),
    ]  # fmt: skip
    said = heard(five, 1883)
    assert {told.found.kind for told in said.messages if told.found.failed} == {
        "PUBACK", "PUBREC", "SUBACK", "DISCONNECT",
    }  # fmt: skip
    said = heard([(CLIENT, connect()), (SERVER, b"\x20\x02\x00\x05")], 1883)
    assert said.messages[1].found.failed


def test_our_header_is_found_in_payloads_small_and_large():
    for size in (16, 1000, 400_000):
        payload = HEADER.pack(VERSION << 24 | 77, 123, 5).ljust(size, b".")
        for qos in (0, 1):
            for version in (4, 5):
                turns = [(CLIENT, connect(version=version)), (CLIENT, publish("t", payload, qos, 1, version))]
                turns += [(CLIENT, publish("after", b"x", version=version))]
                found = [told.found for told in heard(turns, 1883).messages]
                assert [row.kind for row in found] == ["CONNECT", "PUBLISH", "PUBLISH"]
                assert (found[1].device, found[1].seq, found[1].payload_bytes) == (77, 123, size)
                assert (found[1].fingerprint is None) == (size > 100_000)
                assert found[2].name == "after"


def test_without_the_connect_the_version_is_learned():
    turns = [
        (CLIENT, packet(0x82, number(3) + b"\x00" + text("some/topic") + b"\x00")),
        (SERVER, packet(0x90, number(3) + b"\x00\x00")), (SERVER, publish("some/topic", b"abc", version=5)),
    ]  # fmt: skip
    said = heard(turns, 1883)
    assert [told.found.payload_bytes for told in said.messages] == [0, 0, 3]


def test_after_a_gap_packets_are_found_again_and_ids_still_pair():
    before = [(CLIENT, connect()), (SERVER, CONNACK)]
    lost = publish("t", b"x" * 50, 1, 1)
    turns = [*before, (CLIENT, lost[:20]), (CLIENT, Lost(len(lost) - 20))]
    for packet_id in range(2, 6):
        turns += [(CLIENT, publish("t", b"y" * 30, 1, packet_id)), (SERVER, ack(4, packet_id))]
    said = heard(turns, 1883)
    answered = [row for row in said.exchanges if row.request.found.kind == "PUBLISH" and row.response]
    assert len(answered) == 4
    assert all(row.certain for row in answered)
    assert said.stream.undecoded_bytes == 20


def test_after_a_gap_packets_longer_than_segments_are_found_again():
    long = [publish("plant/line", bytes((n,)) * 30_000) for n in range(4)]
    said = heard(
        [(CLIENT, connect() + long[0][:5000]), (CLIENT, Lost(25_000)), *((CLIENT, one) for one in long[1:])], 1883
    )
    assert said.kinds == ["CONNECT", "PUBLISH", "PUBLISH", "PUBLISH"]
    assert said.stream.malformed == 0


def test_garbage_between_packets_is_counted_and_left_behind():
    good = publish("some/topic", b"payload", 1, 7)
    said = heard([(CLIENT, connect() + good + b"\xff" * 37 + good * 3)], 1883)
    assert Counter(said.kinds) == {"CONNECT": 1, "PUBLISH": 4}
    assert said.stream.malformed == 1
    assert said.stream.undecoded_bytes == 37


def test_it_is_recognised_by_content_on_any_port_and_captured_from_the_middle():
    assert recognised("tcp", 9999, 40000, connect(), b"")[0].name == "mqtt"
    assert recognised("tcp", 9999, 40000, connect(version=3), CONNACK)[0].name == "mqtt"
    assert recognised("tcp", 9999, 40000, publish("a/b", b"12345", 1, 7) * 4, ack(4, 7) * 4)[0].name == "mqtt"
    assert recognised("tcp", 9999, 40000, b"nothing of the kind", b"") is None


topics = st.text(st.characters(blacklist_characters="#+\x00", blacklist_categories=("Cs",)), min_size=1, max_size=12)


@st.composite
def sessions(draw):
    version = draw(st.sampled_from((3, 4, 5)))
    turns = [(CLIENT, connect(version=version)), (SERVER, CONNACK_5 if version == 5 else CONNACK)]
    for packet_id in range(1, draw(st.integers(1, 8))):
        sender, qos = draw(st.sampled_from((CLIENT, SERVER))), draw(st.integers(0, 2))
        payload = draw(st.binary(max_size=400))
        turns.append((sender, publish(draw(topics), payload, qos, packet_id, version)))
        if qos:
            turns.append((1 - sender, ack(4 if qos == 1 else 5, packet_id)))
        if qos == 2:
            turns += [(sender, ack(6, packet_id)), (1 - sender, ack(7, packet_id))]
    return turns


@examples(60)
@given(sessions(), st.lists(st.integers(1, 40), min_size=1, max_size=5), st.sampled_from((1, 5, 1 << 30)))
def test_any_segmentation_and_window_tell_the_same(turns, cuts, window):
    whole = heard(turns, 1883, protocol="mqtt")
    assert whole.stream.malformed == whole.stream.undecoded_bytes == 0
    assert all(row.response is not None for row in whole.exchanges)
    assert summary(heard(turns, 1883, cut=cuts, window=window)) == summary(whole)
