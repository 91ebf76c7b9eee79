"""Bytes picked from many places of a buffer at once: the one trick behind decoding a million packets without a loop.

Used wherever captures are read. Places too near the end are moved inside: whoever asks knows which of them count.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Octets = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


def rows_at(data: Octets, at: Numbers, width: int) -> Octets:
    """A matrix whose row n is `data[at[n] : at[n] + width]`."""
    if len(data) < width:
        data = np.concatenate((data, np.zeros(width - len(data), dtype=np.uint8)))
    last = len(data) - width
    overlapping: npt.NDArray[Any] = np.ndarray((last + 1,), dtype=f"V{width}", buffer=data, strides=(1,))
    found = overlapping[np.clip(at, 0, last)]
    return found.view(np.uint8).reshape(len(at), width)


def numbers_at(data: Octets, at: Numbers, kind: str) -> Numbers:
    """One number per place, as in `numpy`'s notation of types (`<u4`)."""
    width = np.dtype(kind).itemsize
    return column(rows_at(data, at, width), 0, kind)


def column(rows: Octets, start: int, kind: str) -> Numbers:
    """The number that begins at byte `start` of each row."""
    width = np.dtype(kind).itemsize
    return np.ascontiguousarray(rows[:, start : start + width]).view(kind)[:, 0].astype(np.int64)
