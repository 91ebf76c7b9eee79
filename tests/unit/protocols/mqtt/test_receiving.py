"""Messages read in bulk are those the codec reads one by one; what is unusual is left to the single path."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.protocols.mqtt.encode import encode
from battlebrokers.protocols.mqtt.framing import equal_frames, split_frames
from battlebrokers.protocols.mqtt.malformed import MalformedPacket
from battlebrokers.protocols.mqtt.packets import PubAck, PubComp, Publish, PubRec, PubRel
from battlebrokers.protocols.mqtt.properties import EMPTY, Properties
from battlebrokers.protocols.mqtt.receiving import (
    PUBREL,
    Bulk,
    acknowledgement,
    acknowledgements,
    all_acknowledgements,
    equal_acknowledgements,
    equal_publishes,
    frame_table,
    mixed_publishes,
    read_acknowledgement,
    read_publish,
)


def unpacked(bulk: Bulk) -> list[tuple[int, bytes, bytes, int]]:
    found = bulk.arrivals
    rows = zip(
        found.flags.tolist(),
        found.topic_starts.tolist(),
        found.topic_sizes.tolist(),
        found.payload_starts.tolist(),
        found.payload_sizes.tolist(),
        found.wire_sizes.tolist(),
        strict=True,
    )
    data = found.data
    return [(flags, data[t : t + ts], data[p : p + ps], wire) for flags, t, ts, p, ps, wire in rows]


def expected(packets: list[Publish], version: int) -> tuple[list[tuple[int, bytes, bytes, int]], bytes, list[int]]:
    rows = [
        (
            p.dup << 3 | p.qos << 1 | p.retain,
            p.topic.encode(),
            p.payload,
            len(encode(p, version)),
        )
        for p in packets
    ]
    answers = [encode(PubAck(p.packet_id) if p.qos == 1 else PubRec(p.packet_id), version) for p in packets if p.qos]
    return rows, b"".join(answers), [p.packet_id for p in packets if p.qos == 2]


def mixed(packets: list[Publish], version: int, aliases: int = 0) -> Bulk | None:
    data = b"\xd0\x00" + b"".join(encode(packet, version) for packet in packets)
    table, first_bytes = frame_table(data, split_frames(data, 2).frames)
    return mixed_publishes(data, table, first_bytes, version, aliases)


def publishes(version: int) -> st.SearchStrategy[list[Publish]]:
    user = Properties(user_properties=(("a", "b"),))
    extra = st.sampled_from([EMPTY, EMPTY, user]) if version == 5 else st.just(EMPTY)
    return st.lists(
        st.builds(
            lambda topic, payload, qos, retain, dup, packet_id, properties: Publish(
                topic, payload, qos, retain, dup and qos > 0, packet_id if qos else None, properties
            ),
            st.sampled_from(["a", "a/b", "städte/7"]),
            st.binary(max_size=200),
            st.integers(0, 2),
            st.booleans(),
            st.booleans(),
            st.integers(1, 65_535),
            extra,
        ),
        min_size=1,
        max_size=20,
    )


@pytest.mark.parametrize("version", [4, 5])
@given(data=st.data())
def test_mixed_messages(version: int, data: st.DataObject):
    packets = data.draw(publishes(version))
    bulk = mixed(packets, version)
    assert bulk is not None
    assert (unpacked(bulk), bulk.answers, bulk.once_ids) == expected(packets, version)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("size", [0, 30, 500])
def test_equal_messages(version: int, qos: int, size: int):
    packets = [
        Publish(f"t/{n % 5}", bytes([n]) * size, qos, True, packet_id=n + 300 if qos else None) for n in range(20)
    ]
    data = b"\xd0\x00" + b"".join(encode(packet, version) for packet in packets) + b"\x30"
    equal = equal_frames(data, 2, same_topic=False)
    assert equal is not None
    bulk = equal_publishes(data, 2, *equal, version, 0)
    assert bulk is not None
    assert (unpacked(bulk), bulk.answers, bulk.once_ids) == expected(packets, version)


def test_a_topic_by_number_or_a_possible_one_is_left_to_the_single_path():
    numbered = [Publish("", b"x", properties=Properties(topic_alias=2))] * 20
    extra = [Publish("t", b"x", properties=Properties(topic_alias=2))] * 20
    assert mixed(numbered, 5) is None
    assert mixed(extra, 5, aliases=10) is None
    assert mixed(extra, 5) is None
    for packets in (numbered, extra):
        data = b"".join(encode(packet, 5) for packet in packets)
        assert equal_publishes(data, 0, *equal_frames(data), 5, 10) is None


@pytest.mark.parametrize(
    ("first_byte", "body", "version", "words"),
    [
        (0x30, b"\x00", 4, "before its topic"),
        (0x30, b"\x00\x05abc", 4, "before its payload"),
        (0x32, b"\x00\x01a\x00", 4, "before its packet id"),
        (0x32, b"\x00\x01a\x00\x00", 4, "packet id 0"),
        (0x36, b"\x00\x01a\x00\x01", 4, "QoS 3"),
        (0x30, b"\x00\x00x", 4, "no topic"),
        (0x30, b"\x00\x00\x00x", 5, "no topic"),
        (0x30, b"\x00\x01a", 5, "before its properties"),
        (0x30, b"\x00\x01a\x05\x01", 5, "before its payload"),
        (0x30, b"\x00\x01a\xff\xff\xff\xff\x01", 5, "longer than four"),
    ],
)
def test_wrong_messages_are_refused_everywhere(first_byte: int, body: bytes, version: int, words: str):
    with pytest.raises(MalformedPacket, match=words):
        read_publish(body, first_byte, 0, len(body), version)
    data = (bytes((first_byte, len(body))) + body) * 20
    table, first_bytes = frame_table(data, split_frames(data).frames)
    assert mixed_publishes(data, table, first_bytes, version, 0) is None
    equal = equal_frames(data, same_topic=False)
    if equal is not None:
        assert equal_publishes(data, 0, *equal, version, 0) is None


def test_acknowledgements_are_read_in_bulk_when_they_agree():
    same = b"".join(encode(PubAck(n, 0x10), 5) for n in range(5, 25))
    count, size, _ = equal_frames(same)
    assert equal_acknowledgements(same, 0, count, size) == (list(range(5, 25)), 0x10)
    differ = b"".join(encode(PubAck(n, 0x10 if n % 2 else 0x87), 5) for n in range(5, 25))
    count, size, _ = equal_frames(differ)
    assert equal_acknowledgements(differ, 0, count, size) is None
    zero = b"\x40\x02\x00\x00" * 20
    assert equal_acknowledgements(zero, 0, 20, 4) is None


def test_acknowledgements_are_written_as_the_codec_does():
    assert acknowledgements(PUBREL, [1, 700, 65_535]) == b"".join(encode(PubRel(n), 4) for n in (1, 700, 65_535))
    assert acknowledgement(0x70, 513) == encode(PubComp(513), 5)
    strided = np.ndarray((2,), ">u2", b"\x01\x02zz\x03\x04zz", 0, (4,))
    assert acknowledgements(0x40, strided) == b"\x40\x02\x01\x02\x40\x02\x03\x04"


@pytest.mark.parametrize(
    ("frame", "fine"),
    [
        (b"\x40\x02\x00\x01", True),
        (b"\x62\x02\x01\x00", True),
        (b"\x40\x03\x00\x01\x10", False),
        (b"\x40\x02\x00\x00", False),
        (b"\x40\x01\x01", False),
        (b"\x60\x02\x00\x01", False),
        (b"\xd0\x00", False),
    ],
)
def test_only_sound_acknowledgements_may_wait_behind_messages(frame: bytes, fine: bool):
    table, first_bytes = frame_table(frame, split_frames(frame).frames)
    assert all_acknowledgements(frame, table, first_bytes) is fine


@pytest.mark.parametrize(("body", "version"), [(b"\x01", 4), (b"\x00\x00", 4), (b"\x00\x01\x00", 4), (b"", 5)])
def test_wrong_acknowledgements_are_refused(body: bytes, version: int):
    with pytest.raises(MalformedPacket):
        read_acknowledgement(body, 0x40, 0, len(body), version)
