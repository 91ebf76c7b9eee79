"""The topics of many messages in one chunk of bytes as rows of a matrix, so that all are looked at in a few calls.

Called by the MQTT receiver, which checks them, and by the stopwatch, which compares them. Pure: bytes in, rows out.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

LONGEST_ROW = 512
"""Bytes: longer topics are not worth a matrix."""
FILL = ord("/")
"""What follows a topic that is shorter than its row."""

Rows = npt.NDArray[np.uint8]


def rows_every(data: bytes, start: int, step: int, count: int, size: int) -> Rows:
    """Topics of one size at `start`, `start + step`, …: a view, nothing is copied."""
    return np.ndarray((count, size), np.uint8, data, start, (step, 1))


def rows_at(data: bytes, starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> Rows | None:
    """Topics at these offsets, filled up to the longest; None when that is too long for a matrix."""
    width = int(sizes.max())
    if width > LONGEST_ROW or not width:
        return None
    if int(starts.max()) + width > len(data):
        data += bytes(width)
    # Seen as overlapping items, one beginning at every byte, each topic is copied in one piece.
    anywhere = np.ndarray((len(data) - width + 1,), f"V{width}", data, 0, (1,))
    rows: Rows = anywhere[starts].view(np.uint8).reshape(-1, width)
    if int(sizes.min()) != width:
        rows[np.arange(width) >= sizes[:, None]] = FILL
    return rows
