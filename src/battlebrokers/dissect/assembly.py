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
_CREDIBLE_HOLE_BYTES = 64 << 20
"""What lies farther ahead of all that was seen is a damaged number."""


def unwrapped(seq: Numbers, reference: int) -> Numbers:
    """32-bit sequence numbers as 64-bit ones near `reference`, each within 2 GiB of the one before it."""
    if not len(seq):
        return seq
    steps = np.empty(len(seq), dtype=np.int64)
    steps[0] = seq[0] - (reference & 0xFFFFFFFF)
    np.subtract(seq[1:], seq[:-1], out=steps[1:])
    steps = (steps + (1 << 31) & 0xFFFFFFFF) - (1 << 31)
    result: Numbers = reference + steps.cumsum()
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
    order: Numbers
    """Number of the packet with which that was so, or with which the gap before it was given up."""

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
    last_order: int = 0
    gap_bytes: int = 0
    acked: int = -1
    """Offset up to which the other side acknowledged it; -1: nothing yet."""
    _reference: int = 0
    _acked_reference: int = 0
    _waiting: list[tuple[Numbers, Numbers, Numbers, Numbers, Numbers]] = field(default_factory=list)

    def begin(self, seq: int) -> None:
        """The connection begins here: `seq` is that of its first data byte."""
        self.base = self._reference = self._acked_reference = seq

    def push(
        self, seq: npt.NDArray[Any], size: Numbers, place: Numbers, time_ns: Numbers, order: Numbers,
        ack: Numbers, ack_order: Numbers, *, last: bool,
    ) -> Pieces:  # fmt: skip
        """Segments with payload, and the other side's acknowledgements, in order of arrival.

        `order` and `ack_order` number their packets. With `last` nothing more will come: holes are given up.
        """
        if len(seq):
            wide = unwrapped(seq.astype(np.int64), self._reference if self.base is not None else int(seq[0]))
            self._reference = int(wide[-1])
            if self.base is None:
                self.base = self._acked_reference = int(wide.min())
            self._waiting.append((wide - self.base, size, place, time_ns, order))
        already = self.acked
        acked = self._acknowledge(ack)
        if not self._waiting:
            return _NOTHING
        if len(self._waiting) == 1 and self._nothing_is_odd(*self._waiting[0][:2]):
            return self._deliver_all(*self._waiting.pop())
        offset, size, place, time_ns, order = (np.concatenate(parts) for parts in zip(*self._waiting, strict=True))
        if np.any(offset[1:] < offset[:-1]):
            sequence = np.argsort(offset, kind="stable")
            offset, size, place = offset[sequence], size[sequence], place[sequence]
            time_ns, order = time_ns[sequence], order[sequence]
        ends = np.maximum.accumulate(np.maximum(offset + size, self.next))
        before = np.concatenate(([self.next], ends[:-1]))
        begin = np.maximum(offset, before)
        new = ends > begin
        segments = (begin[new], ends[new], before[new], (place + (begin - offset))[new], time_ns[new], order[new])
        ready = self._ready(*segments[:3], last=last)
        self._waiting = []
        offset, end = segments[0], segments[1]
        believed = self._believed(offset, segments[2]) if last else len(offset)
        if ready < len(offset):
            rest = slice(ready, None)
            self._waiting = [(offset[rest], (end - offset)[rest], *(column[rest] for column in segments[3:]))]
        latest = max(self.last_order, int(order.max()), int(ack_order[-1]) if len(ack_order) else 0)
        orders = np.append(ack_order[: len(acked)], latest)
        return self._deliver(tuple(column[: min(ready, believed)] for column in segments), already, acked, orders)

    def _nothing_is_odd(self, offset: Numbers, size: Numbers) -> bool:
        """Whether these segments follow each other, so that nothing is missing and nothing there twice."""
        return bool(offset[0] == self.next and (offset[1:] == offset[:-1] + size[:-1]).all())

    def _deliver_all(self, offset: Numbers, size: Numbers, place: Numbers, time_ns: Numbers, order: Numbers) -> Pieces:
        time_ns = np.maximum.accumulate(np.maximum(time_ns, self.last_ns))
        order = np.maximum.accumulate(np.maximum(order, self.last_order))
        self.next, self.last_ns, self.last_order = int(offset[-1] + size[-1]), int(time_ns[-1]), int(order[-1])
        return Pieces(offset, size, place, time_ns, order)

    def _acknowledge(self, ack: Numbers) -> Numbers:
        """How far each acknowledgement (and those before it) covers the stream."""
        if self.base is None or not len(ack):
            return _EMPTY
        wide = unwrapped(ack, self._acked_reference)
        self._acked_reference = int(wide[-1])
        covered = wide - self.base
        covered[covered > max(self.next, self._reference - self.base) + _CREDIBLE_HOLE_BYTES] = self.acked
        acked: Numbers = np.maximum.accumulate(np.maximum(covered, self.acked))
        self.acked = int(acked[-1])
        return acked

    def _ready(self, offset: Numbers, end: Numbers, before: Numbers, *, last: bool) -> int:
        """How many of these segments can be delivered now: those before the first hole that may still be filled."""
        holes = np.flatnonzero(offset > before)
        if last or not len(holes):
            return len(offset)
        holes = holes[offset[holes] > self.acked]
        if not len(holes):
            return len(offset)
        # Too much waits: the first holes are given up until it is little enough.
        behind_bytes = np.cumsum((end - offset)[::-1])[::-1][holes]
        bearable = (behind_bytes <= WAITING_BYTES) & (len(offset) - holes <= WAITING_SEGMENTS)
        return int(holes[np.argmax(bearable)]) if bearable.any() else len(offset)

    def _believed(self, offset: Numbers, before: Numbers) -> int:
        """How many segments to believe at the end."""
        odd = np.flatnonzero((offset - before > _CREDIBLE_HOLE_BYTES) & (offset > self.acked))
        return int(odd[0]) if len(odd) else len(offset)

    def _deliver(self, segments: tuple[Numbers, ...], already: int, acked: Numbers, acked_order: Numbers) -> Pieces:
        offset, end, before, place, time_ns, order = segments
        if not len(offset):
            return _NOTHING
        time_ns = np.maximum.accumulate(np.maximum(time_ns, self.last_ns))
        size = end - offset
        holes = np.flatnonzero(offset > before)
        if len(holes):
            missing = offset[holes] - before[holes]
            self.gap_bytes += int(missing.sum())
            given_up = acked_order[np.searchsorted(acked, offset[holes])]
            order = order.copy()
            order[holes] = np.maximum(order[holes], np.where(offset[holes] > already, given_up, 0))
            size = np.insert(size, holes, missing)
            place = np.insert(place, holes, -1)
            time_ns = np.insert(time_ns, holes, time_ns[holes])
            order = np.insert(order, holes, order[holes])
            offset = np.insert(offset, holes, before[holes])
        order = np.maximum.accumulate(np.maximum(order, self.last_order))
        self.next, self.last_ns, self.last_order = int(end[-1]), int(time_ns[-1]), int(order[-1])
        return Pieces(offset, size, place, time_ns, order)


_EMPTY: Numbers = np.empty(0, dtype=np.int64)
_NOTHING = Pieces(_EMPTY, _EMPTY, _EMPTY, _EMPTY, _EMPTY)
