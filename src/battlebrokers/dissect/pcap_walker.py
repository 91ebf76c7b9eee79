"""Walks through the records of a pcap file. Opened by `parts.walker`."""

from __future__ import annotations

import struct
from bisect import bisect_left

import numpy as np

from battlebrokers.dissect.capture_format import LARGEST_FRAME_BYTES, RECORD_HEADER_BYTES, Layout
from battlebrokers.dissect.clues import DAY_S, record_clues, subseconds
from battlebrokers.dissect.gather import column, rows_at
from battlebrokers.dissect.records import Records, Stop, Walker

_SECOND_NS = 1_000_000_000
_EARLIEST_S = 631_152_000
"""1990: nobody wrote pcap files before."""


class PcapWalker(Walker):
    """All frames are of one interface; a record begins with its time and its two lengths."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._header = struct.Struct(f"{layout.order}IIII")
        self._units = subseconds(layout)
        self._last_s: int | None = None
        self._begin(b"")

    def _begin(self, data: bytes) -> None:
        self._data = data
        self._heads: list[int] = []
        self._clues: list[int] | None = None

    def _steps(self, place: int, *, last: bool) -> tuple[int, Stop]:
        data, size, units, note = self._data, len(self._data), self._units, self._heads.append
        header = self._header.unpack_from
        stop = Stop.DONE
        while place + RECORD_HEADER_BYTES <= size:
            _, fraction, captured, original = header(data, place)
            if captured > LARGEST_FRAME_BYTES or fraction >= units or not original:
                stop = Stop.BROKEN
                break
            end = place + RECORD_HEADER_BYTES + captured
            if end > size:
                stop = Stop.CUT if last else Stop.DONE
                break
            note(place)
            place = end
        if self._heads:
            (self._last_s, *_) = header(data, self._heads[-1])
        return place, stop

    def _search_from(self, place: int, stop: Stop) -> int:
        if stop is Stop.BROKEN and self._heads:
            # It may be the length of the record before that is wrong: others may lie inside it.
            return self._heads[-1] + RECORD_HEADER_BYTES
        return place + 1

    def _search(self, place: int, *, last: bool) -> tuple[int, bool]:
        if self._clues is None:
            earliest_s, latest_s = _EARLIEST_S, 0xFFFF_FFFF
            if self._last_s is not None:
                earliest_s, latest_s = self._last_s - DAY_S, self._last_s + DAY_S
            octets = np.frombuffer(self._data, dtype=np.uint8)
            self._clues = record_clues(octets, self.layout, earliest_s, latest_s).tolist()
        size = len(self._data)
        for number in range(bisect_left(self._clues, place), len(self._clues)):
            clue = self._clues[number]
            if not last or clue + RECORD_HEADER_BYTES + self._header.unpack_from(self._data, clue)[2] <= size:
                return clue, True
        return max(place, size - RECORD_HEADER_BYTES + 1), False

    def _columns(self, at: int) -> Records:
        octets = np.frombuffer(self._data, dtype=np.uint8)
        heads = np.array(self._heads, dtype=np.int64)
        rows = rows_at(octets, heads, RECORD_HEADER_BYTES)
        kind = f"{self.layout.order}u4"
        seconds, fraction, captured, original = (column(rows, start, kind) for start in (0, 4, 8, 12))
        if len(heads):
            # After a wrong length records may overlap: a frame ends where the next one begins.
            room = np.diff(heads, append=len(octets)) - RECORD_HEADER_BYTES
            captured = np.minimum(captured, room)
        (interface,) = self.layout.interfaces
        return Records(
            at=at + heads,
            frame_at=at + heads + RECORD_HEADER_BYTES,
            captured_bytes=captured,
            original_bytes=np.maximum(captured, original),
            time_ns=seconds * _SECOND_NS + fraction * (_SECOND_NS // self._units),
            interface=np.zeros(len(heads), dtype=np.int64),
            link_type=np.full(len(heads), interface.link_type, dtype=np.int64),
        )
