"""What arrives on the hot path is checked like everything else: alone, behind many, in a chunk of equals, mixed.

Each fault ends the connection with the specification's reason code, is counted once, and is delivered to nobody.
"""

from __future__ import annotations

import itertools

import pytest

from battlebrokers.protocols.base import Failure, Outgoing
from battlebrokers.protocols.mqtt.encode import encode
from battlebrokers.protocols.mqtt.packets import PubAck, Publish
from battlebrokers.protocols.mqtt.varint import encode_varint
from support.links import Bench

LEVELS = {"3.1.1": 4, "5": 5}


def publish(topic: bytes, version: str, *, flags: int = 0, packet_id: bytes = b"", properties: bytes = b"") -> bytes:
    """A PUBLISH with a payload, right or wrong."""
    block = encode_varint(len(properties)) + properties if version == "5" else b""
    body = len(topic).to_bytes(2, "big") + topic + packet_id + block + b"payload of some bytes"
    return bytes((0x30 | flags,)) + encode_varint(len(body)) + body


WRONG_TOPICS = {
    "a byte that is no UTF-8": b"t/\xff",
    "UTF-8 that ends in the middle": b"t/\xc3",
    "an overlong form": b"t/\xc0\xaf",
    "a surrogate": b"\xed\xa0\x80",
    "beyond Unicode": b"\xf4\x90\x80\x80",
    "U+0000": b"t/\0",
    "a plus": b"t/+",
    "a plus inside a level": b"a+b",
    "a number sign": b"t/#",
    "a number sign in front": b"#",
}
FAULTS: dict[str, tuple[tuple[str, ...], int, dict[str, object]]] = {
    **{f"topic with {name}": (("3.1.1", "5"), 0x81, {"topic": topic}) for name, topic in WRONG_TOPICS.items()},
    "DUP at QoS 0": (("3.1.1", "5"), 0x81, {"flags": 0x08}),
    "DUP and RETAIN at QoS 0": (("3.1.1", "5"), 0x81, {"flags": 0x09}),
    "QoS 3": (("3.1.1", "5"), 0x81, {"flags": 0x06, "packet_id": b"\0\1"}),
    "packet id 0 at QoS 1": (("3.1.1", "5"), 0x81, {"flags": 0x02, "packet_id": b"\0\0"}),
    "packet id 0 at QoS 2": (("3.1.1", "5"), 0x81, {"flags": 0x04, "packet_id": b"\0\0"}),
    "no topic": (("5",), 0x82, {"topic": b""}),
    "no topic in 3.1.1": (("3.1.1",), 0x81, {"topic": b""}),
    "an unknown property": (("5",), 0x81, {"properties": b"\x7f\x00"}),
    "a property of CONNACK": (("5",), 0x82, {"properties": b"\x24\x01"}),
    "a property twice": (("5",), 0x82, {"properties": b"\x01\x01\x01\x01"}),
    "a property cut off": (("5",), 0x81, {"properties": b"\x02\x00\x00"}),
    "a payload format of 2": (("5",), 0x82, {"properties": b"\x01\x02"}),
    "a response topic with a wildcard": (("5",), 0x81, {"properties": b"\x08\x00\x01#"}),
    "a content type that is no UTF-8": (("5",), 0x81, {"properties": b"\x03\x00\x01\xff"}),
    "a user property with U+0000": (("5",), 0x81, {"properties": b"\x26\x00\x01\x00\x00\x01v"}),
    "subscription identifier 0": (("5",), 0x82, {"properties": b"\x0b\x00"}),
    "topic alias 0": (("5",), 0x94, {"properties": b"\x23\x00\x00"}),
    "a topic alias where none is accepted": (("5",), 0x94, {"properties": b"\x23\x00\x01"}),
}
CASES = [(name, version) for name, (versions, _, _) in FAULTS.items() for version in versions]
GOOD = {"alone": 0, "behind one": 1, "behind seven": 7, "behind forty": 40}


def judged(version: str, stream: bytes, good: int) -> Bench:
    """The bench after a stream with `good` messages and then a fault."""
    with Bench(version) as bench:
        bench.receive(stream)
        assert len(bench.ear.messages) == good
        assert len(bench.ear.faults) == 1
        assert bench.ear.fault_kinds == [Failure.MALFORMED]
        assert len(bench.ear.closings) == 1
        assert bench.ear.closings[0][1] == Failure.MALFORMED
    return bench


@pytest.mark.parametrize("before", GOOD)
@pytest.mark.parametrize(("fault", "version"), CASES)
def test_a_wrong_message_ends_the_connection_and_is_not_delivered(fault: str, version: str, before: str):
    _, reason, parts = FAULTS[fault]
    wrong = publish(**{"topic": b"t/1", "version": version} | parts)  # type: ignore[arg-type]
    ahead = b"".join(publish(b"t/%d" % (n % 3), version, packet_id=b"") for n in range(GOOD[before]))
    bench = judged(version, ahead + wrong, GOOD[before])
    assert bench.wire.written.endswith(bytes((0xE0, 2, reason, 0)) if version == "5" else b"")


@pytest.mark.parametrize(("fault", "version"), CASES)
def test_a_chunk_of_such_messages_is_refused_at_the_first_of_them(fault: str, version: str):
    _, reason, parts = FAULTS[fault]
    wrong = publish(**{"topic": b"t/1", "version": version} | parts)  # type: ignore[arg-type]
    bench = judged(version, wrong * 60, 0)
    assert bench.wire.written.endswith(bytes((0xE0, 2, reason, 0)) if version == "5" else b"")


@pytest.mark.parametrize(("fault", "version"), CASES)
def test_a_wrong_message_among_many_is_found_and_those_before_it_count(fault: str, version: str):
    _, _, parts = FAULTS[fault]
    wrong = publish(**{"topic": b"t/1", "version": version} | parts)  # type: ignore[arg-type]
    fine = [publish(b"t/%d" % n, version) for n in range(100)]
    judged(version, b"".join((*fine[:50], wrong, *fine[50:])), 50)


@pytest.mark.parametrize(("size", "topics"), [(20, [b"a/\xc3\xa4", b"a/\xc3\xb6"]), (20, ["städte/7".encode(), b"x"])])
@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_topics_beyond_ascii_are_delivered_in_bulk_as_alone(version: str, size: int, topics: list[bytes]):
    frames = [publish(topic, version) for topic, _ in zip(itertools.cycle(topics), range(size * 3), strict=False)]
    with Bench(version) as bench:
        bench.receive(b"".join(frames))
        assert [heard.topic for heard in bench.ear.messages] == (topics * size * 2)[: len(frames)]
        assert bench.ear.bulks == [len(frames)]


def test_properties_that_change_nothing_are_read_in_bulk():
    frames = [publish(b"t", "5", properties=b"\x26\x00\x01k\x00\x01" + bytes([65 + n % 3])) for n in range(50)]
    with Bench("5") as bench:
        bench.receive(b"".join(frames))
        assert bench.ear.bulks == [50]
        assert not bench.ear.faults


WRONG_ACKNOWLEDGEMENTS = {
    "packet id 0": (b"\x40\x02\x00\x00", 0x81),
    "a reason of SUBACK": (b"\x40\x03\x00\x01\x01", 0x82),
    "an unknown reason": (b"\x40\x03\x00\x01\x7f", 0x82),
    "properties cut off": (b"\x40\x05\x00\x01\x00\x05\x1f", 0x81),
    "more than its properties": (b"\x40\x05\x00\x01\x00\x00\x00", 0x81),
    "a property of PUBLISH": (b"\x40\x06\x00\x01\x00\x02\x01\x01", 0x82),
    "a reason string twice": (b"\x40\x0a\x00\x01\x00\x06\x1f\x00\x00\x1f\x00\x00", 0x82),
    "a reason string that is no UTF-8": (b"\x40\x08\x00\x01\x00\x04\x1f\x00\x01\xff", 0x81),
    "a length of five bytes": (b"\x40\x09\x00\x01\x00\xff\xff\xff\xff\x01\x00", 0x81),
}


@pytest.mark.parametrize("again", [1, 7, 60])
@pytest.mark.parametrize("fault", WRONG_ACKNOWLEDGEMENTS)
@pytest.mark.parametrize("first_byte", [0x40, 0x50, 0x62, 0x70])
def test_a_wrong_acknowledgement_ends_the_connection_and_completes_nothing(first_byte: int, fault: str, again: int):
    frame, reason = WRONG_ACKNOWLEDGEMENTS[fault]
    wrong = bytes((first_byte,)) + frame[1:]
    with Bench("5") as bench:
        bench.link.publish(Outgoing(b"o", [b"x"], 1, False, 7))
        bench.wire.take()
        bench.receive(wrong * again)
        assert len(bench.ear.faults) == len(bench.ear.closings) == 1
        assert bench.ear.acked == bench.ear.refused == []
        assert bench.wire.written == bytes((0xE0, 2, reason, 0))


def test_an_acknowledgement_with_reason_and_properties_completes_its_message():
    with Bench("5") as bench:
        for token in range(40):
            bench.link.publish(Outgoing(b"o", [b"x"], 1, False, token))
        said = b"\x40\x09" + b"%b" + b"\x10\x05\x1f\x00\x02no"
        bench.receive(b"".join(said.replace(b"%b", (n + 1).to_bytes(2, "big")) for n in range(40)))
        assert sorted(bench.ear.acked) == list(range(40))
        assert not bench.ear.faults


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_a_puback_with_packet_id_0_is_not_taken_for_one_of_a_forgotten_message(version: str):
    with Bench(version) as bench:
        bench.receive(encode(PubAck(9), LEVELS[version]))
        assert bench.link.session.ignored == 1
        bench.receive(b"\x40\x02\x00\x00")
        assert bench.ear.faults == ["a PUBACK names packet id 0"]


def test_a_message_learned_as_usual_was_checked_when_it_was_learned():
    good = encode(Publish("t/1", b"x" * 20), 4)
    with Bench() as bench:
        bench.receive(good, good, b"\x38" + good[1:])
        assert len(bench.ear.messages) == 2
        assert len(bench.ear.faults) == 1
