"""Segments: a window of one conversation's packets in capture order, as columns. Made by the pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
"""TCP flags."""


@dataclass(frozen=True, slots=True)
class Segments:
    """Row n is the n-th packet of the window; TCP columns are 0 for UDP."""

    time_ns: Numbers
    sender: Numbers
    """0 for the client, 1 for the server."""
    seq: Numbers
    ack: Numbers
    flags: Numbers
    window: Numbers
    """As on the wire, unscaled."""
    shift: Numbers
    """Window scale of a SYN; -1 where there is none."""
    mss: Numbers
    """Maximum segment size of a SYN; 0 where there is none."""
    size: Numbers
    """Payload bytes by the headers' account."""
    captured: Numbers
    """Payload bytes that are in the capture."""
    place: Numbers
    """Where they begin in the capture."""

    def __len__(self) -> int:
        return len(self.time_ns)

    def columns(self) -> tuple[Numbers, ...]:
        """All of them, in order."""
        return (
            self.time_ns, self.sender, self.seq, self.ack, self.flags, self.window, self.shift, self.mss, self.size,
            self.captured, self.place,
        )  # fmt: skip

    def part(self, start: int, end: int) -> Segments:
        """Rows [start, end)."""
        if not start and end >= len(self.time_ns):
            return self
        return Segments(*[column[start:end] for column in self.columns()])


def joined(windows: Sequence[Segments]) -> Segments:
    """Several windows as one."""
    if len(windows) == 1:
        return windows[0]
    if not windows:
        return Segments(*[np.empty(0, dtype=np.int64)] * 11)
    return Segments(*map(np.concatenate, zip(*(window.columns() for window in windows), strict=True)))
