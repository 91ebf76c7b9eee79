"""What one side of a conversation said: assembled, not yet read, and when each byte of it was there.

Used by the stream driver only.
"""

from __future__ import annotations

import numpy as np

from battlebrokers.dissect.assembly import Assembly, Numbers, Pieces
from battlebrokers.dissect.segments import ACK, RST, SYN, Segments
from battlebrokers.dissect.unread import Unread

_REMEMBERED_PIECES = 16_384
"""A message may be told long after its first byte was read: so many pieces back its time is still known."""


class Side:
    """One direction."""

    def __init__(self) -> None:
        self.assembly = Assembly()
        self.unread = Unread()
        self.at = 0
        """Offset at which `unread` begins."""
        self.lost = False
        """Nobody knows where a message begins."""
        self.opened = False
        """Whether its very beginning was seen."""
        self._ends: list[Numbers] = []
        self._times: list[Numbers] = []

    def assemble(self, window: Segments, sender: int, first: int, *, last: bool) -> Pieces:
        """Take this side's segments out of the window; its packets are numbered from `first`."""
        flags = window.flags
        mine = window.sender == sender
        opens = (flags & SYN) != 0
        if self.assembly.base is None and opens.any():
            opening = np.flatnonzero(mine & opens)
            if len(opening):
                self.assembly.begin(int(window.seq[opening[0]]) + 1)
                self.opened = True
        answers = (~mine & ((flags & ACK) != 0)).nonzero()[0]
        speaks = (mine & (window.captured > 0) & ((flags & RST) == 0)).nonzero()[0]
        pieces = self.assembly.push(
            window.seq[speaks] + opens[speaks], window.captured[speaks], window.place[speaks], window.time_ns[speaks],
            speaks + first, window.ack[answers], answers + first, last=last,
        )  # fmt: skip
        if len(pieces):
            self._ends.append(pieces.offset + pieces.size)
            self._times.append(pieces.time_ns)
        return pieces

    def hear(self, sizes: Numbers, time_ns: Numbers) -> Numbers:
        """Datagrams of these sizes were there at these times; returns at which offsets they begin."""
        ends = self.assembly.next + np.cumsum(sizes)
        if len(ends):
            self._ends.append(ends)
            self._times.append(time_ns)
            self.assembly.next = int(ends[-1])
        return ends - sizes

    def times(self, offsets: Numbers) -> Numbers:
        """When the bytes at these offsets were there; of those that are still to come, when the last one was."""
        if not self._ends or not len(offsets):
            return np.zeros(len(offsets), dtype=np.int64)
        self._join()
        places = np.searchsorted(self._ends[0], offsets, side="right")
        return self._times[0][np.minimum(places, len(self._times[0]) - 1)]

    def time(self, offset: int) -> int:
        """The same for one of them."""
        return int(self.times(np.array([offset]))[0])

    def forget(self) -> None:
        """Times of what was read long ago are not asked for any more."""
        if self._ends and sum(map(len, self._ends)) > 2 * _REMEMBERED_PIECES:
            self._join()
            read = int(np.searchsorted(self._ends[0], self.at, side="right"))
            keep = max(0, read - _REMEMBERED_PIECES)
            self._ends, self._times = [self._ends[0][keep:]], [self._times[0][keep:]]

    def _join(self) -> None:
        if len(self._ends) > 1:
            self._ends, self._times = [np.concatenate(self._ends)], [np.concatenate(self._times)]
