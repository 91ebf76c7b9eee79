"""However TCP cuts the stream, the link tells the same; and no bytes, however wrong, make it raise."""

from __future__ import annotations

import itertools
from collections import defaultdict

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from battlebrokers.protocols.base import Outgoing
from battlebrokers.protocols.mqtt.encode import encode
from battlebrokers.protocols.mqtt.packets import Packet, PingResp, PubAck, PubComp, Publish, PubRec, PubRel, SubAck
from battlebrokers.protocols.mqtt.properties import EMPTY, Properties
from support.examples import examples
from support.links import Bench

OURS = 40
"""Messages of ours in flight: ids 1…20 with QoS 1, 21…40 with QoS 2."""


@st.composite
def server_packets(draw: st.DrawFn, version: int, aliases: bool) -> list[Packet]:
    """What a well-behaved broker could send, in runs of alike packets as real traffic has them."""
    packets: list[Packet] = []
    held: set[int] = set()
    named: set[int] = set()
    waiting1, waiting2, released = set(range(1, 21)), set(range(21, 41)), set()
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["equal", "mixed", "rel", "ack", "rec", "comp", "ping", "suback"]))
        count = draw(st.sampled_from([1, 2, 3, 9, 20, 40]))
        qos = draw(st.integers(0, 2))
        size = draw(st.sampled_from([0, 5, 60, 130, 300]))
        for at in range(count):
            if kind in {"equal", "mixed"}:
                if kind == "mixed":
                    qos, size = draw(st.integers(0, 2)), draw(st.integers(0, 200))
                packet_id = draw(st.integers(1, 65_535)) if kind == "mixed" else 1000 + len(packets)
                if qos == 2 and packet_id in held:
                    continue
                if qos == 2:
                    held.add(packet_id)
                topic, extra = f"t/{at % 7}", EMPTY
                if version == 5 and draw(st.integers(0, 9)) == 0:
                    extra = Properties(user_properties=(("key", "v" * draw(st.integers(0, 150))),))
                if aliases and draw(st.booleans()):
                    number = at % 7 + 1
                    topic = "" if number in named and draw(st.booleans()) else topic
                    named.add(number)
                    extra = Properties(topic_alias=number)
                body = bytes([at % 256]) * size
                retain = draw(st.booleans()) if kind == "mixed" else False
                packets.append(Publish(topic, body, qos, retain, False, packet_id if qos else None, extra))
            elif kind == "rel" and held:
                packets.append(PubRel(held.pop()))
            elif kind == "ack" and waiting1:
                reason = draw(st.sampled_from([0, 0, 0x10, 0x97])) if version == 5 else 0
                packets.append(PubAck(waiting1.pop(), reason))
            elif kind == "rec" and waiting2:
                taken = waiting2.pop()
                released.add(taken)
                packets.append(PubRec(taken))
            elif kind == "comp" and released:
                packets.append(PubComp(released.pop()))
            elif kind == "ping":
                packets.append(PingResp())
            elif kind == "suback":
                packets.append(SubAck(9, (0,)))
    return packets


def told(version: str, aliases: bool, chunks: list[bytes]) -> dict[str, object]:
    """Everything a listener and a broker would see of these chunks."""
    with Bench(version, options={"topic_alias": aliases}) as bench:
        for qos in (1, 2):
            for at in range(20):
                bench.link.publish(Outgoing(b"o", [b"x"], qos, False, qos * 100 + at))
        bench.wire.take()
        bench.receive(*chunks)
        answers = defaultdict(list)
        for frame in bench.frames():
            answers[frame[0]].append(frame)
        ear = bench.ear
        seen = {
            "messages": ear.messages,
            "acked": sorted(ear.acked),
            "refused": sorted(ear.refused),
            "answers": dict(answers),
            "faults": ear.faults,
            "closed": len(ear.closings),
            "left": (sorted(bench.link.session.unacked), sorted(bench.link.session.released)),
            "held": sorted(bench.link.session.incoming or ()),
            "ignored": bench.link.session.ignored,
        }
        kept = len(bench.connection.tail or b"")
        assert kept <= sum(map(len, chunks))
        if ear.closings:
            assert bench.wire.aborted or bench.wire.closed
            assert not kept
        return seen


def cut(data: bytes, places: list[int]) -> list[bytes]:
    borders = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(borders) if a < b]


@pytest.mark.parametrize(("version", "aliases"), [("3.1.1", False), ("5", False), ("5", True)])
@examples(60)
@given(data=st.data())
def test_the_same_is_told_however_the_stream_is_cut(version: str, aliases: bool, data: st.DataObject):
    level = 5 if version == "5" else 4
    frames = [encode(packet, level) for packet in data.draw(server_packets(level, aliases))]
    stream = b"".join(frames)
    one_by_one = told(version, aliases, frames)
    places = data.draw(st.lists(st.integers(0, 1 << 20), max_size=12))
    assert told(version, aliases, cut(stream, places)) == one_by_one
    assert told(version, aliases, [stream] if stream else []) == one_by_one
    assert not one_by_one["faults"]


@pytest.mark.parametrize("version", ["3.1.1", "5"])
@examples(20)
@given(data=st.data())
def test_byte_by_byte_is_a_way_to_cut_too(version: str, data: st.DataObject):
    level = 5 if version == "5" else 4
    frames = [encode(packet, level) for packet in data.draw(server_packets(level, False))][:30]
    stream = b"".join(frames)
    assert told(version, False, [stream[at : at + 1] for at in range(len(stream))]) == told(version, False, frames)


@pytest.mark.parametrize(("version", "aliases"), [("3.1.1", False), ("5", False), ("5", True)])
@examples(80)
@given(data=st.data())
def test_a_damaged_stream_never_raises_and_is_judged_alike_however_it_is_cut(
    version: str, aliases: bool, data: st.DataObject
):
    level = 5 if version == "5" else 4
    stream = bytearray(b"".join(encode(packet, level) for packet in data.draw(server_packets(level, aliases))))
    for _ in range(data.draw(st.integers(1, 4))):
        if stream:
            stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del stream[data.draw(st.integers(0, len(stream))) :]
    whole = told(version, aliases, [bytes(stream)] if stream else [])
    places = data.draw(st.lists(st.integers(0, 1 << 20), max_size=12))
    assert told(version, aliases, cut(bytes(stream), places)) == whole
    endings = [fault for fault in whole["faults"] if not fault.startswith("a frame of")]  # what is too large is skipped
    assert whole["closed"] == len(endings) or not endings


@pytest.mark.parametrize("version", ["3.1.1", "5"])
@examples(150)
@given(chunks=st.lists(st.binary(min_size=1, max_size=400), max_size=20))
def test_garbage_never_raises(version: str, chunks: list[bytes]):
    told(version, True, chunks)


@examples(60)
@given(chunks=st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=5))
def test_garbage_instead_of_a_welcome_is_told_and_ends_the_connection(chunks: list[bytes]):
    assume(chunks[0][0] >> 4 != 2)
    with Bench() as bench:
        bench.link.abort()
        welcome = bench.loop.create_future()
        bench.connection.gone = False
        bench.connection.welcome = welcome
        bench.receive(*chunks)
        assert len(bench.ear.faults) == 1
        assert bench.wire.aborted or bench.wire.closed
        assert welcome.exception() is not None
        assert not bench.ear.closings


def test_a_mistake_that_only_a_connack_may_name_is_told_as_a_protocol_error():
    with Bench(version="5") as bench:
        bench.receive(b"\x10\x0c\x00\x04MQTT\x08\x02\x00\x3c\x00\x00")
        assert len(bench.ear.faults) == 1
        assert bench.wire.written.endswith(b"\xe0\x02\x82\x00")


def test_a_large_message_in_many_chunks_arrives_once_and_whole():
    payload = bytes(range(256)) * 12_000
    frame = encode(Publish("big", payload), 4)
    with Bench() as bench:
        bench.receive(b"\xd0\x00" + frame[:3], *(frame[at : at + 65_536] for at in range(3, len(frame), 65_536)))
        assert bench.ear.payloads == [payload]
        assert bench.connection.tail is None


def test_bulk_and_single_paths_are_both_taken():
    frames = [encode(Publish("a/b", bytes([n]) * 8), 4) for n in range(200)]
    odd = [encode(Publish("a/b", bytes(n)), 4) for n in range(50)]
    with Bench() as bench:
        bench.receive(b"".join(frames) + b"".join(odd), odd[0] + odd[1])
        assert bench.ear.bulks == [200, 50]
        assert len(bench.ear.messages) == 252


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_messages_that_begin_alike_are_told_like_any_other(version: str):
    level = 5 if version == "5" else 4
    frames = [encode(Publish(f"t/{at // 9}", bytes([at]) * 20), level) for at in range(18)]
    frames += [encode(Publish("t/1", b"x" * size), level) for size in (20, 21, 20, 0, 300, 20)]
    one = frames[0]
    chunks = [
        one,
        b"".join(frames[1:4]),
        b"".join(frames[4:6]) + frames[6][:7],
        frames[6][7:],
        frames[7],
        frames[8][:1],
    ]
    chunks += [frames[8][1:] + frames[9], *frames[10:12], b"".join(frames[12:15]), *frames[15:]]
    seen = told(version, False, chunks)
    assert seen["messages"] == told(version, False, [b"".join(frames)])["messages"]
    assert [message.payload[:1] for message in seen["messages"][:18]] == [bytes([at]) for at in range(18)]
    assert [message.topic for message in seen["messages"][:18]] == [b"t/0"] * 9 + [b"t/1"] * 9
    assert [message.wire_size for message in seen["messages"]] == [len(frame) for frame in frames]
