"""Where a large capture can be cut: exactly between two records, without reading all of it.

Called once per file, before its parts are read in parallel. Every place that may be a record is followed from length to
length; wrong ones soon meet nonsense or a right one, and what remains is the chain of true records.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from heapq import heapify, heappop, heappush

import numpy as np

from battlebrokers.dissect.capture_format import (
    INTERFACE,
    LARGEST_BLOCK_BYTES,
    LARGEST_FRAME_BYTES,
    RECORD_HEADER_BYTES,
    SMALLEST_BLOCK_BYTES,
    Layout,
    layout_of,
    section_order,
)
from battlebrokers.dissect.clues import DAY_S, block_clues, record_clues, subseconds
from battlebrokers.dissect.gather import numbers_at
from battlebrokers.dissect.parts import CHUNK_BYTES, Part, Reader, chunks, walker

PART_BYTES = 32 << 20
WINDOW_BYTES = 256 << 10
"""Must hold the beginning of at least one record, however long the one before is."""
_MOST_WINDOWS = 8
_LONGEST_CAPTURE_S = 400 * DAY_S

_GONE = -1
Step = Callable[[int], int]
"""From a place to the next in its chain; `_GONE` if there is no record."""


def parts(read: Reader, size: int, part_bytes: int = PART_BYTES) -> list[Part] | None:
    """The parts of a file, each of about the wanted size; None if it is no capture."""
    found = layout_of(read(0, 64))
    if found is None:
        return None
    layout, start = found
    whole = Part(start, size, layout)
    if size - start <= part_bytes * 3 // 2:
        return [whole]
    cuts = _pcap_cuts if layout.kind == "pcap" else _pcapng_cuts
    return cuts(read, whole, part_bytes) or _walked(read, whole, part_bytes)


def _pcap_cuts(read: Reader, whole: Part, part_bytes: int) -> list[Part]:
    first_record = read(whole.start, RECORD_HEADER_BYTES)
    if len(first_record) < RECORD_HEADER_BYTES:
        return []
    (first_s,) = struct.unpack_from(f"{whole.layout.order}I", first_record)

    def search(window: bytes, *, at_end: bool) -> int | None:
        octets = np.frombuffer(window, dtype=np.uint8)
        clues = record_clues(octets, whole.layout, first_s - DAY_S, first_s + _LONGEST_CAPTURE_S)
        return _surviving(clues.tolist(), _record_step(window, whole.layout), len(window), at_end=at_end)

    return _cut(read, whole, whole.layout, part_bytes, search)


def _pcapng_cuts(read: Reader, whole: Part, part_bytes: int) -> list[Part]:
    """Cuts with the interfaces of the file's front; none if others might follow, only reading on could tell which."""
    front = walker(whole.layout)
    records, _ = front.walk(read(whole.start, WINDOW_BYTES), whole.start, last=False)
    if not len(records):
        return []
    layout, first_packet = front.layout, int(records.at[0])
    if _describes(read, first_packet, whole.end, layout):
        return []

    def search(window: bytes, *, at_end: bool) -> int | None:
        clues, _ = block_clues(np.frombuffer(window, dtype=np.uint8), layout.order)
        return _surviving(clues.tolist(), _block_step(window, layout), len(window), at_end=at_end)

    return _cut(read, whole, layout, part_bytes, search)


def _cut(read: Reader, whole: Part, layout: Layout, part_bytes: int, search: Callable[..., int | None]) -> list[Part]:
    """Parts between boundaries that were found; none if one could not be found."""
    starts = [whole.start]
    for wanted in range(whole.start + part_bytes, whole.end - part_bytes // 2, part_bytes):
        for number in range(_MOST_WINDOWS):
            at = wanted + number * WINDOW_BYTES
            window = read(at, 2 * WINDOW_BYTES)
            found = search(window, at_end=at + len(window) >= whole.end)
            if found is not None:
                starts.append(at + found)
                break
        else:
            return []
    ends = [*starts[1:], whole.end]
    return [
        Part(start, end, layout if number else whole.layout)
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]


def _surviving(clues: list[int], step: Step, size: int, *, at_end: bool) -> int | None:
    """The first place all chains agree on; None when they do not before the data ends."""
    ahead = [clue for clue in clues if clue < WINDOW_BYTES]
    heapify(ahead)
    seen = set(ahead)
    boundary: int | None = None
    leaving: set[int] = set()
    while ahead:
        place = heappop(ahead)
        if place + RECORD_HEADER_BYTES > size and not at_end:
            leaving.add(place)
            continue
        following = step(place)
        if following == _GONE or (at_end and following > size):
            continue
        if not ahead and not leaving and boundary is None:
            boundary = place
        if following >= size:
            leaving.add(following)
        elif following not in seen:
            seen.add(following)
            heappush(ahead, following)
    return boundary if len(leaving) == 1 else None


def _record_step(window: bytes, layout: Layout) -> Step:
    header = struct.Struct(f"{layout.order}IIII").unpack_from
    units, size = subseconds(layout), len(window)

    def step(place: int) -> int:
        if place + RECORD_HEADER_BYTES > size:
            return _GONE
        _, fraction, captured, original = header(window, place)
        if captured > LARGEST_FRAME_BYTES or fraction >= units or not original:
            return _GONE
        return place + RECORD_HEADER_BYTES + int(captured)

    return step


def _block_step(window: bytes, layout: Layout) -> Step:
    front = struct.Struct(f"{layout.order}II").unpack_from
    size = len(window)

    def step(place: int) -> int:
        if place + SMALLEST_BLOCK_BYTES > size:
            return _GONE
        _, length = front(window, place)
        if not SMALLEST_BLOCK_BYTES <= length <= LARGEST_BLOCK_BYTES or length & 3:
            return _GONE
        end = place + length
        if end <= size and front(window, end - 8)[1] != length:
            return _GONE
        return int(end)

    return step


def _describes(read: Reader, start: int, end: int, layout: Layout) -> bool:
    """Whether anything in [start, end) could be the beginning of a section or the description of an interface."""
    at, overlap = start, 24
    while at < end:
        data = read(at, min(CHUNK_BYTES, end - at))
        if not data:
            return False
        found = data.find(b"\n\r\r\n")
        while found >= 0:
            if section_order(data, found) is not None:
                return True
            found = data.find(b"\n\r\r\n", found + 4)
        # Blocks begin at multiples of four.
        words = np.frombuffer(data, dtype=f"{layout.order}u4", count=len(data) // 4)
        places = np.flatnonzero(words[:-1] == INTERFACE)
        lengths = words[places + 1].astype(np.int64)
        likely = (lengths >= 20) & (lengths <= LARGEST_BLOCK_BYTES) & (lengths & 3 == 0)
        places, lengths = places[likely] * 4, lengths[likely]
        ends = places + lengths
        within = ends <= len(data)
        if (numbers_at(np.frombuffer(data, dtype=np.uint8), ends - 4, f"{layout.order}u4") == lengths)[within].any():
            return True
        for behind, length in zip(ends[~within].tolist(), lengths[~within].tolist(), strict=True):
            if read(at + behind - 4, 4) == struct.pack(f"{layout.order}I", length):
                return True
        if at + len(data) >= end:
            return False
        at += len(data) - overlap
    return False


def _walked(read: Reader, whole: Part, part_bytes: int) -> list[Part]:
    """The same by walking through the whole file, record by record."""
    walking = walker(whole.layout)
    found: list[Part] = []
    start, layout = whole.start, whole.layout
    for _data, _at, _records in chunks(read, whole, walking, min(CHUNK_BYTES, part_bytes)):
        if walking.stopped_at - start >= part_bytes and not walking.lost:
            found.append(Part(start, walking.stopped_at, layout))
            start, layout = walking.stopped_at, walking.layout
    return [*found, Part(start, whole.end, layout)] if start < whole.end else found
