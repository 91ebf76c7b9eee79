"""Runs: what both sides said, in the order in which it was there. Made by the stream driver from assembled pieces.

A run is what one side said without the other one speaking in between, without a gap and without a long silence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from battlebrokers.dissect.assembly import Numbers, Pieces

Reader = Callable[[Numbers, Numbers], list[bytes]]
"""Reads many (places, sizes) from the capture."""

REST_NS = 200_000_000
"""After so long a silence whoever asks is answered next."""
_RUN_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class Runs:
    """Contiguous bytes of one side each; pieces [start[n], end[n]) make run n."""

    place: Numbers
    """Where each piece lies in the capture."""
    size: Numbers
    sizes: list[int]
    start: list[int]
    end: list[int]
    sender: list[int]
    total: list[int]
    """How many bytes each run has."""
    gap: list[bool]
    """Whether it is missing in the capture."""
    rested: list[bool]
    """Whether a long silence preceded it."""

    def run(self, number: int) -> tuple[int, int, int, int, bool, bool]:
        """Sender, first piece, piece behind the last, bytes, whether it is a gap, whether a long silence preceded."""
        return (
            self.sender[number], self.start[number], self.end[number], self.total[number], self.gap[number],
            self.rested[number],
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.start)

    def spoken(self, first: int, most: int, parts: list[bytes], at: tuple[int, int]) -> Spoken:
        """Runs from one on up to the next gap, about so many pieces at most; `at` is where each side goes on."""
        start, behind = self.start[first], first + 1
        while behind < len(self) and self.end[behind] - start <= most and not self.gap[behind]:
            behind += 1
        stop = self.end[behind - 1]
        size = self.size[start:stop]
        sender = np.repeat(self.sender[first:behind], np.diff([start, *self.end[first:behind]]))
        offset = np.empty(len(size), dtype=np.int64)
        for who in (0, 1):
            own = np.flatnonzero(sender == who)
            offset[own] = at[who] + np.cumsum(size[own]) - size[own]
        return Spoken(parts[start:stop], size, sender, offset, np.array(self.end[first:behind]) - start)

    def read(self, read: Reader) -> list[bytes]:
        """What every piece holds; nothing for gaps."""
        if any(self.gap):
            missing = self.place < 0
            return read(np.where(missing, 0, self.place), np.where(missing, 0, self.size))
        return read(self.place, self.size)


@dataclass(frozen=True, slots=True)
class Spoken:
    """Some runs one behind the other, piece by piece, for those who read many at once."""

    parts: list[bytes]
    size: Numbers
    sender: Numbers
    offset: Numbers
    """Where each piece begins in its sender's stream."""
    run_end: Numbers
    """The piece behind the last one of each run."""

    def offsets(self, place: Numbers) -> tuple[Numbers, Numbers]:
        """Who said what lies at these places of all pieces together, and where in its stream it is."""
        ends = np.cumsum(self.size)
        piece = np.searchsorted(ends, place, side="right")
        return self.sender[piece], self.offset[piece] + place - (ends - self.size)[piece]

    def said(self, runs: int) -> tuple[int, int]:
        """How many bytes each side said in the first so many runs."""
        pieces = self.run_end[runs - 1] if runs else 0
        total, server = self.size[:pieces].sum(), self.size[:pieces][self.sender[:pieces] == 1].sum()
        return int(total - server), int(server)


def runs(client: Pieces, server: Pieces, last_ns: int) -> Runs:
    """Merge what both sides said; `last_ns` is when the last run before ended."""
    count = len(client) + len(server)
    if not count:
        return _NO_RUNS
    sender = np.zeros(count, dtype=np.int64)
    sender[len(client) :] = 1
    place, size = np.concatenate((client.place, server.place)), np.concatenate((client.size, server.size))
    time_ns = np.concatenate((client.time_ns, server.time_ns))
    if len(client) and len(server):
        order = np.argsort(np.concatenate((client.order, server.order)), kind="stable")
        sender, place, size, time_ns = sender[order], place[order], size[order], time_ns[order]
    gap = place < 0
    rested = np.empty(count, dtype=np.bool_)
    rested[0] = time_ns[0] - last_ns >= REST_NS
    np.greater_equal(time_ns[1:] - time_ns[:-1], REST_NS, out=rested[1:])
    cut = rested | gap
    cut[0] = True
    cut[1:] |= gap[:-1] | (sender[1:] != sender[:-1])
    if int(size.sum()) > _RUN_BYTES:
        blocks = np.cumsum(size) // _RUN_BYTES
        cut[1:] |= blocks[1:] != blocks[:-1]
    starts = np.flatnonzero(cut)
    start = starts.tolist()
    return Runs(
        place, size, size.tolist(), start, [*start[1:], count], sender[starts].tolist(),
        np.add.reduceat(size, starts).tolist(), gap[starts].tolist(), rested[starts].tolist(),
    )  # fmt: skip


_EMPTY: Numbers = np.empty(0, dtype=np.int64)
_NO_RUNS = Runs(_EMPTY, _EMPTY, [], [], [], [], [], [], [])
