"""TCP segments to a contiguous stream: sorting, overlaps, holes. Called by the stream driver, window by window.

All in numpy, whatever the order of arrival: segments are put in sequence, what is there twice is taken once (the first
that came), and a hole is given up when the other side acknowledged what lies behind it, or when too much waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

WAITING_BYTES = 4 << 20
WAITING_SEGMENTS = 4096


def unwrapped(seq: Numbers, reference: int) -> Numbers:
    """32-bit sequence numbers as 64-bit ones near `reference`, each within 2 GiB of the one before it."""
    if not len(seq):
        return seq
    steps = np.diff(seq, prepend=np.int64(reference & 0xFFFFFFFF))
    steps = (steps + (1 << 31)) % (1 << 32) - (1 << 31)
    result: Numbers = reference + np.cumsum(steps)
    return result


@dataclass(frozen=True, slots=True)
class Pieces:
    """What became contiguous: piece n holds stream bytes [offset, offset + size), found at `place` in the capture.

    A piece with `place` -1 is a gap: bytes that are not in the capture.
    """

    offset: Numbers
    size: Numbers
    place: Numbers
    time_ns: Numbers
    """When everything up to the end of the piece was there."""

    def __len__(self) -> int:
        return len(self.offset)


@dataclass(slots=True)
class Assembly:
    """One direction of one connection; offsets count from its first byte seen (or from its SYN)."""

    base: int | None = None
    """Sequence number (64 bit) of offset 0."""
    next: int = 0
    """Offset up to which the stream has been delivered."""
    last_ns: int = 0
    gap_bytes: int = 0
    _reference: int = 0
    _waiting: list[tuple[Numbers, Numbers, Numbers, Numbers]] = field(default_factory=list)

    def begin(self, seq: int) -> None:
        """The connection begins here: `seq` is that of its first data byte."""
        self.base = seq
        self._reference = seq

    def push(
        self, seq: npt.NDArray[Any], size: Numbers, place: Numbers, time_ns: Numbers, acked: int | None, *, last: bool
    ) -> Pieces:
        """Segments with payload in order of arrival; `acked` is the highest acknowledgement by the other side so far.

        With `last` nothing more will come: holes are given up.
        """
        if len(seq):
            wide = unwrapped(seq.astype(np.int64), self._reference if self.base is not None else int(seq[0]))
            self._reference = int(wide[-1])
            if self.base is None:
                self.base = int(wide.min())
            self._waiting.append((wide - self.base, size, place, time_ns))
        if not self._waiting:
            return _NOTHING
        offset, size, place, time_ns = (np.concatenate(parts) for parts in zip(*self._waiting, strict=True))
        order = np.argsort(offset, kind="stable")
        offset, size, place, time_ns = offset[order], size[order], place[order], time_ns[order]
        ends = np.maximum.accumulate(np.maximum(offset + size, self.next))
        before = np.concatenate(([self.next], ends[:-1]))
        begin = np.maximum(offset, before)
        new = ends > begin
        offset, place = begin[new], (place + (begin - offset))[new]
        end, before, time_ns = ends[new], before[new], time_ns[new]
        ready = self._ready(offset, end, before, acked, last=last)
        self._waiting = []
        if ready < len(offset):
            rest = slice(ready, None)
            self._waiting = [(offset[rest], end[rest] - offset[rest], place[rest], time_ns[rest])]
        return self._deliver(offset[:ready], end[:ready], before[:ready], place[:ready], time_ns[:ready])

    def _ready(self, offset: Numbers, end: Numbers, before: Numbers, acked: int | None, *, last: bool) -> int:
        """How many of these segments can be delivered now: those before the first hole that may still be filled."""
        holes = np.flatnonzero(offset > before)
        if last or not len(holes):
            return len(offset)
        if acked is not None and self.base is not None:
            known = int(unwrapped(np.array([acked], dtype=np.int64), self._reference)[0]) - self.base
            holes = holes[offset[holes] > known]
        if not len(holes):
            return len(offset)
        first = int(holes[0])
        if int(end[-1] - offset[first]) > WAITING_BYTES or len(offset) - first > WAITING_SEGMENTS:
            return len(offset)
        return first

    def _deliver(self, offset: Numbers, end: Numbers, before: Numbers, place: Numbers, time_ns: Numbers) -> Pieces:
        if not len(offset):
            return _NOTHING
        time_ns = np.maximum.accumulate(np.maximum(time_ns, self.last_ns))
        size = end - offset
        holes = np.flatnonzero(offset > before)
        if len(holes):
            missing = offset[holes] - before[holes]
            self.gap_bytes += int(missing.sum())
            size = np.insert(size, holes, missing)
            place = np.insert(place, holes, -1)
            time_ns = np.insert(time_ns, holes, time_ns[holes])
            offset = np.insert(offset, holes, before[holes])
        self.next, self.last_ns = int(end[-1]), int(time_ns[-1])
        return Pieces(offset, size, place, time_ns)


_EMPTY: Numbers = np.empty(0, dtype=np.int64)
_NOTHING = Pieces(_EMPTY, _EMPTY, _EMPTY, _EMPTY)
