"""Runs: what both sides said, in the order in which it was there. Made by the stream driver from assembled pieces.

A run is what one side said without the other one speaking in between, without a gap and without a long silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from battlebrokers.dissect.assembly import Pieces

Reader = Callable[[int, int], bytes]
"""Reads (place, size) from the capture."""

REST_NS = 200_000_000
"""After so long a silence whoever asks is answered next."""
_RUN_BYTES = 512 * 1024


class Run(NamedTuple):
    """Contiguous bytes of one side."""

    sender: int
    size: int
    places: list[int]
    """Where its pieces lie in the capture; empty: a gap."""
    sizes: list[int]
    rested: bool
    """Whether a long silence preceded it."""

    def bytes(self, read: Reader) -> bytes:
        """What was said."""
        if len(self.places) == 1:
            return read(self.places[0], self.sizes[0])
        return b"".join([read(place, size) for place, size in zip(self.places, self.sizes, strict=True)])


def runs(client: Pieces, server: Pieces, last_ns: int) -> Iterator[Run]:
    """Merge what both sides said; `last_ns` is when the last run before ended."""
    count = len(client) + len(server)
    if not count:
        return
    sender = np.zeros(count, dtype=np.int64)
    sender[len(client) :] = 1
    place, size = np.concatenate((client.place, server.place)), np.concatenate((client.size, server.size))
    time_ns = np.concatenate((client.time_ns, server.time_ns))
    if len(client) and len(server):
        order = np.argsort(np.concatenate((client.order, server.order)), kind="stable")
        sender, place, size, time_ns = sender[order], place[order], size[order], time_ns[order]
    gap = place < 0
    rested = np.diff(time_ns, prepend=last_ns) >= REST_NS
    cut = rested | gap
    cut[0] = True
    cut[1:] |= gap[:-1] | (sender[1:] != sender[:-1])
    if int(size.sum()) > _RUN_BYTES:
        blocks = np.cumsum(size) // _RUN_BYTES
        cut[1:] |= blocks[1:] != blocks[:-1]
    starts = np.flatnonzero(cut)
    totals = np.add.reduceat(size, starts).tolist()
    places, sizes = place.tolist(), size.tolist()
    bounds = [*starts.tolist(), count]
    who, gaps, rests = sender[starts].tolist(), gap[starts].tolist(), rested[starts].tolist()
    for n, total in enumerate(totals):
        start, end = bounds[n], bounds[n + 1]
        yield Run(who[n], total, [] if gaps[n] else places[start:end], sizes[start:end], rests[n])
