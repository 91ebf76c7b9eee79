"""Runs: what both sides said, in the order in which it was there. Made by the stream driver from assembled pieces.

A run is what one side said without the other one speaking in between, without a gap and without a long silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

    def __iter__(self) -> Iterator[tuple[int, int, int, int, bool, bool]]:
        """Sender, first piece, piece behind the last, bytes, whether it is a gap, whether a long silence preceded."""
        return zip(self.sender, self.start, self.end, self.total, self.gap, self.rested, strict=True)

    def read(self, read: Reader) -> list[bytes]:
        """What every piece holds; nothing for gaps."""
        if any(self.gap):
            missing = self.place < 0
            return read(np.where(missing, 0, self.place), np.where(missing, 0, self.size))
        return read(self.place, self.size)


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
