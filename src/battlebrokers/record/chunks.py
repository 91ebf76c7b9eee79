"""Chunks: preallocated memory that events are written into, row by row or slice by slice.

A chunk is one bytearray seen both as raw bytes (one event: `struct.pack_into`, about 0.4 µs) and as a numpy
structured array (many events: a slice per field). The pool bounds the memory; when it is empty, events overflow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class Chunk:
    """A block of rows; `base` is the token of its first row, `used` how many are filled."""

    __slots__ = ("base", "buffer", "capacity", "opened_ns", "rows", "unacked", "used")

    def __init__(self, dtype: np.dtype[Any], capacity: int) -> None:
        self.capacity = capacity
        self.buffer = bytearray(dtype.itemsize * capacity)
        self.rows: npt.NDArray[Any] = np.frombuffer(self.buffer, dtype=dtype)
        self.base = 0
        self.used = 0
        self.unacked = 0
        self.opened_ns = 0

    def reset(self, base: int, opened_ns: int) -> None:
        """Start over as an empty chunk."""
        self.base = base
        self.used = 0
        self.unacked = 0
        self.opened_ns = opened_ns


class ChunkPool:
    """At most `limit` chunks, made when first needed and used again; `take` returns None when all are out."""

    def __init__(self, dtype: np.dtype[Any], capacity: int, limit: int) -> None:
        self._dtype = dtype
        self._capacity = capacity
        self._limit = limit
        self._made = 0
        self._free: list[Chunk] = []

    def take(self) -> Chunk | None:
        """A chunk to fill, or None."""
        # list.pop is atomic, so the writer thread may give back while the engine takes.
        try:
            return self._free.pop()
        except IndexError:
            pass
        if self._made >= self._limit:
            return None
        self._made += 1
        return Chunk(self._dtype, self._capacity)

    @property
    def crowded(self) -> bool:
        """Whether more than half of all chunks are out."""
        return self._made - len(self._free) > self._limit // 2

    def give_back(self, chunk: Chunk) -> None:
        """The writer is done with it."""
        self._free.append(chunk)
