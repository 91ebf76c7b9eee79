"""Segments: a window of one conversation's packets in capture order, as columns. Made by the pipeline."""

from __future__ import annotations

from dataclasses import dataclass, fields

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

    def part(self, start: int, end: int) -> Segments:
        """Rows [start, end)."""
        return Segments(*(getattr(self, column.name)[start:end] for column in fields(self)))
