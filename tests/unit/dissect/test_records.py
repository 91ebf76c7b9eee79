"""Captures become rows, whatever their format, their chunks and their damage."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.dissect.capture_format import layout_of
from battlebrokers.dissect.parts import Part, chunks, walker
from support import capture_writer as write
from support.capture_writer import Frame
from support.examples import examples

NOW_NS = 1_700_000_000_123_456_789


def walked(content: bytes, chunk_bytes: int = 1 << 20):
    """Rows (time, interface, link, frame, original), damages and the walker."""
    found = layout_of(content[:64])
    assert found is not None
    layout, start = found
    walking = walker(layout)
    rows, damages = [], []
    part = Part(start, len(content), layout)
    for data, at, records in chunks(lambda place, size: content[place : place + size], part, walking, chunk_bytes):
        assert data == content[at : at + len(data)]
        for place, size, original, time_ns, number, link in zip(
            *(getattr(records, name).tolist() for name in
              ("frame_at", "captured_bytes", "original_bytes", "time_ns", "interface", "link_type")), strict=True,
        ):  # fmt: skip
            rows.append((time_ns, number, link, content[place : place + size], original))
        assert (np.diff(records.at) > 0).all()
        damages += records.damages
    return rows, damages, walking


frames = st.lists(
    st.builds(
        Frame,
        time_ns=st.integers(NOW_NS, NOW_NS + 10**12),
        data=st.binary(max_size=200),
        original=st.integers(1, 70_000),
    ),
    max_size=30,
)


@given(frames, st.sampled_from("<>"), st.booleans(), st.integers(300, 2000))
def test_a_pcap_file_is_read_back_in_any_byte_order_resolution_and_chunk_size(given_frames, order, nano, chunk_bytes):
    content = write.pcap(given_frames, order=order, nano=nano)
    rows, damages, _ = walked(content, chunk_bytes)
    unit = 1 if nano else 1000
    assert rows == [(f.time_ns // unit * unit, 0, 1, f.data, f.original_bytes) for f in given_frames]
    assert damages == []


@given(frames, st.sampled_from("<>"), st.sampled_from([3, 6, 9, 10, 0x80 | 20, 0x80 | 32]), st.integers(300, 2000))
def test_a_pcapng_file_is_read_back_in_any_byte_order_resolution_and_chunk_size(
    given_frames, order, resolution, chunk_bytes
):
    rows, damages, _ = walked(write.pcapng(given_frames, order=order, resolution=resolution), chunk_bytes)
    assert [row[1:] for row in rows] == [(0, 1, f.data, f.original_bytes) for f in given_frames]
    unit = 10**9 / (2 ** (resolution & 0x7F) if resolution & 0x80 else 10**resolution)
    for row, frame in zip(rows, given_frames, strict=True):
        assert abs(row[0] - frame.time_ns) <= unit + 1
    assert damages == []


def test_sections_have_their_own_byte_order_and_interfaces():
    one, two = Frame(NOW_NS, b"one", interface=1), Frame(NOW_NS, b"three", interface=0)
    content = (
        write.section("<") + write.interface(1) + write.interface(113, resolution=9)
        + write.packet(one, resolution=9)
        + write.section(">") + write.interface(101, order=">", offset_s=1_000_000_000, resolution=9)
        + write.packet(two, order=">", resolution=9, offset_s=1_000_000_000)
        + write.packet(Frame(NOW_NS, b"nowhere", interface=7), order=">")
    )  # fmt: skip
    for chunk_bytes in (64, 100, 1 << 20):
        rows, damages, walking = walked(content, chunk_bytes)
        assert rows[0] == (NOW_NS, 1, 113, b"one", 3)
        assert rows[1] == (NOW_NS, 2, 101, b"three", 5)
        assert rows[2][1:] == (9, -1, b"nowhere", 7)
        assert damages == []
        assert walking.layout.order == ">"
        assert walking.layout.first_interface == 2


def test_blocks_that_are_no_packets_are_passed_over_and_drops_are_collected():
    frame = Frame(NOW_NS // 1000 * 1000, b"abcde", 99)
    content = (
        write.section("<", (1, b"a comment")) + write.interface(1, snap=4) + write.names()
        + write.packet(frame, comment=b"said of a packet") + write.custom(b"whatever" * 50)
        + write.block(0x7777, b"nobody knows") + write.old_packet(frame)
        + write.simple_packet(b"abcd", 90) + write.statistics(0, 5, 3) + write.statistics(0, 7, 4)
        + write.statistics(3, 1, 1)
    )  # fmt: skip
    rows, damages, walking = walked(content)
    assert rows == [(frame.time_ns, 0, 1, b"abcde", 99)] * 2 + [(0, 0, 1, b"abcd", 90)]
    assert damages == []
    assert walking.drops == {0: (0, 7, 4)}


def many(count: int = 200, size: int = 100) -> list[Frame]:
    noise = random.Random(4)
    return [Frame(NOW_NS // 1000 * 1000 + n * 10**6, noise.randbytes(noise.randint(20, size))) for n in range(count)]


@pytest.mark.parametrize("kind", [write.pcap, write.pcapng])
def test_a_file_that_was_cut_off_yields_every_packet_before_the_cut_and_one_damage(kind):
    content = kind(many(20))
    whole, _, _ = walked(content)
    for cut in range(len(content) - 150, len(content)):
        rows, damages, _ = walked(content[:cut])
        assert rows == whole[: len(rows)]
        assert len(rows) >= 17
        assert len(damages) <= 1
        assert sum(damage.size_bytes for damage in damages) < 160


@pytest.mark.parametrize("kind", [write.pcap, write.pcapng])
@pytest.mark.parametrize("chunk_bytes", [2000, 1 << 20])
def test_reading_goes_on_behind_a_hole_of_zeros(kind, chunk_bytes):
    content = bytearray(kind(many()))
    content[8000:10_000] = bytes(2000)
    whole, _, _ = walked(kind(many()))
    rows, damages, _ = walked(bytes(content), chunk_bytes)
    assert len(rows) >= 200 - 2000 // 30
    assert set(rows[-60:]) <= set(whole)
    assert 1 <= len(damages) <= 3
    assert all(8000 - 200 < damage.at < 10_200 for damage in damages)


def test_packets_inside_a_record_whose_length_is_wrong_are_found():
    content = bytearray(write.pcap(many()))
    struct.pack_into("<I", content, 24 + 8, 5000)
    rows, damages, _ = walked(bytes(content))
    whole, _, _ = walked(write.pcap(many()))
    assert rows[1:] == whole[1:]
    assert rows[0][3] == whole[0][3]
    assert len(damages) == 1


def test_a_tail_of_zeros_is_damage_and_no_packets():
    content = write.pcap(many(5)) + bytes(100_000)
    for chunk_bytes in (3000, 1 << 20):
        rows, damages, _ = walked(content, chunk_bytes)
        assert len(rows) == 5
        assert [damage.size_bytes for damage in damages] == [100_000]


def test_a_packet_block_that_claims_more_than_it_holds_is_damage():
    good = write.packet(Frame(NOW_NS, b"good"))
    bad = bytearray(write.packet(Frame(NOW_NS, b"bad!")))
    struct.pack_into("<I", bad, 20, 5)
    rows, damages, _ = walked(write.section() + write.interface() + good + bytes(bad) + good)
    assert [row[3] for row in rows] == [b"good", b"good"]
    assert len(damages) == 1


@examples(300)
@given(st.data())
def test_mutated_captures_never_raise_and_lose_only_what_was_touched(data):
    kind = data.draw(st.sampled_from([write.pcap, write.pcapng]))
    content = bytearray(kind(many(60)))
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(30, len(content) - 1))
        match data.draw(st.sampled_from(["flip", "word", "delete", "insert", "cut"])):
            case "flip":
                content[at] ^= data.draw(st.integers(1, 255))
            case "word":
                content[at : at + 4] = struct.pack("<I", data.draw(st.sampled_from([0, 1, 16, 1 << 20, 0xFFFFFFFF])))
            case "delete":
                del content[at : at + data.draw(st.integers(1, 300))]
            case "insert":
                content[at:at] = data.draw(st.binary(max_size=100))
            case "cut":
                del content[max(at, 200) :]
        if len(content) < 40:
            break
    rows, damages, _ = walked(bytes(content), data.draw(st.sampled_from([500, 4000, 1 << 20])))
    assert sum(len(row[3]) for row in rows) <= len(content)
    assert all(damage.at <= len(content) and damage.size_bytes >= 0 for damage in damages)


@pytest.mark.parametrize("kind", [write.pcap, write.pcapng])
def test_with_a_tenth_of_its_bytes_flipped_a_file_is_read_in_linear_time(kind):
    noise = random.Random(1)
    content = bytearray(kind(many(5000)))
    for at in noise.sample(range(48, len(content)), len(content) // 10):
        content[at] ^= noise.randint(1, 255)
    rows, damages, _ = walked(bytes(content))
    assert len(rows) > 200
    assert len(damages) > 200


@pytest.mark.parametrize(
    "pattern",
    [
        bytes(16),
        struct.pack("<IIII", 1_700_000_000, 1, 0, 1) + bytes(16),
        struct.pack("<IIII", 1_700_000_000, 1, 200_000, 200_000),
        struct.pack("<IIII", 6, 1 << 20, 6, 1 << 20),
        pytest.param(write.section() + write.interface(), marks=pytest.mark.slow),
        pytest.param(write.section() + write.section(">"), marks=pytest.mark.slow),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [write.pcap, write.pcapng])
def test_hostile_repetitions_are_survived_quickly(kind, pattern):
    content = kind(many(3)) + pattern * ((2 << 20) // len(pattern))
    rows, _, _ = walked(content, 1 << 20)
    assert len(rows) >= 3
