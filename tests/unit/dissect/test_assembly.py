"""TCP segments become one stream, whatever the network did to them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.dissect.assembly import WAITING_SEGMENTS, Assembly, Pieces, unwrapped

START = 0xFFFF_FF00


def push(assembly: Assembly, segments: list[tuple[int, int]], content: bytes, *, acked=None, last=False, first_ns=0):
    """Segments as (offset, size); their place in the capture is their offset in `content`."""
    offset = np.array([segment[0] for segment in segments], dtype=np.int64)
    size = np.array([segment[1] for segment in segments], dtype=np.int64)
    seq = (offset + START) & 0xFFFFFFFF
    times = np.arange(first_ns, first_ns + len(segments), dtype=np.int64)
    acks = np.array([] if acked is None else [(acked + START) & 0xFFFFFFFF], dtype=np.int64)
    return assembly.push(seq, size, offset, times, times, acks, acks * 0 + first_ns + len(segments), last=last)


def begun() -> Assembly:
    assembly = Assembly()
    assembly.begin(START)
    return assembly


def text(pieces: Pieces, content: bytes) -> bytes:
    rows = zip(pieces.place.tolist(), pieces.size.tolist(), strict=True)
    return b"".join(b"?" * size if place < 0 else content[place : place + size] for place, size in rows)


CONTENT = bytes(range(256)) * 8


@given(st.data())
def test_any_cut_order_and_repetition_gives_the_same_stream(data):
    cuts = sorted(data.draw(st.sets(st.integers(1, len(CONTENT) - 1), max_size=30)) | {0, len(CONTENT)})
    segments = [(start, end - start) for start, end in pairwise(cuts)]
    again = data.draw(st.lists(st.tuples(st.integers(0, len(CONTENT) - 1), st.integers(1, 400)), max_size=10))
    segments += [(start, min(size, len(CONTENT) - start)) for start, size in again]
    shuffled = data.draw(st.permutations(segments))
    window = data.draw(st.integers(1, len(shuffled)))
    assembly = begun()
    found = b""
    for start in range(0, len(shuffled), window):
        pieces = push(assembly, shuffled[start : start + window], CONTENT, last=start + window >= len(shuffled))
        found += text(pieces, CONTENT)
    assert found == CONTENT
    assert assembly.gap_bytes == 0


def test_sequence_numbers_wrap_around():
    wide = unwrapped(np.array([0xFFFFFFF0, 0x10, 0xFFFFFFF8, 0x20]), 0xFFFFFFF0)
    assert (wide - 0xFFFFFFF0).tolist() == [0, 0x20, 8, 0x30]


def test_a_hole_is_waited_for():
    assembly = begun()
    assert text(push(assembly, [(0, 10), (20, 10)], CONTENT), CONTENT) == CONTENT[:10]
    assert text(push(assembly, [(10, 10)], CONTENT, first_ns=7), CONTENT) == CONTENT[10:30]
    assert assembly.next == 30


def test_bytes_count_as_there_when_the_hole_before_them_is_filled():
    assembly = begun()
    push(assembly, [(0, 10), (20, 10)], CONTENT)
    assert push(assembly, [(10, 10)], CONTENT, first_ns=7).time_ns.tolist() == [7, 7]


def test_a_hole_the_other_side_acknowledged_is_a_gap():
    assembly = begun()
    pieces = push(assembly, [(0, 10), (20, 10)], CONTENT, acked=30)
    assert text(pieces, CONTENT) == CONTENT[:10] + b"?" * 10 + CONTENT[20:30]
    assert assembly.gap_bytes == 10


def test_a_hole_at_the_end_is_a_gap():
    assembly = begun()
    pieces = push(assembly, [(0, 10), (20, 10)], CONTENT, last=True)
    assert pieces.place.tolist() == [0, -1, 20]


def test_what_waits_for_a_hole_is_bounded():
    assembly = begun()
    segments = [(10 + n, 1) for n in range(WAITING_SEGMENTS + 1)]
    assert text(push(assembly, segments, CONTENT * 3), CONTENT * 3)[:10] == b"?" * 10


def test_what_waits_is_delivered_up_to_the_next_hole_when_it_is_too_much():
    assembly = begun()
    segments = [(10 + n, 1) for n in range(WAITING_SEGMENTS)] + [(2 * WAITING_SEGMENTS, 1)]
    push(assembly, segments, CONTENT)
    assert assembly.next == 10 + WAITING_SEGMENTS
    assert assembly.gap_bytes == 10


def test_what_lies_behind_a_gap_comes_when_the_gap_is_given_up():
    assembly = begun()
    assert len(push(assembly, [(10, 10)], CONTENT, first_ns=3)) == 0
    pieces = push(assembly, [(20, 10)], CONTENT, acked=20, first_ns=8)
    assert pieces.order.tolist() == [9, 9, 9]
    assert pieces.time_ns.tolist() == [3, 3, 8]


def test_a_damaged_sequence_number_does_not_swallow_the_rest():
    assembly = begun()
    push(assembly, [(0, 10), (1 << 30, 10)], CONTENT)
    assert text(push(assembly, [(10, 10)], CONTENT, acked=20), CONTENT) == CONTENT[10:20]
    assert len(push(assembly, [], CONTENT, last=True)) == 0
    assert assembly.gap_bytes == 0


def test_a_damaged_acknowledgement_gives_nothing_up():
    assembly = begun()
    push(assembly, [(0, 10), (20, 10)], CONTENT, acked=1 << 30)
    assert assembly.next == 10


@pytest.mark.parametrize("late", [0, 5])
def test_what_was_delivered_is_not_delivered_again(late):
    assembly = begun()
    push(assembly, [(0, 20)], CONTENT)
    assert len(push(assembly, [(late, 15)], CONTENT)) == 0
    assert text(push(assembly, [(late, 20)], CONTENT), CONTENT) == CONTENT[20 : late + 20]
