"""Chunks: preallocated memory that events are written into, row by row or slice by slice.

A chunk is one bytearray seen in three ways: as bytes (one event: `struct.pack_into`, about 0.4 µs), as rows without
parts (many events: a template copied whole) and as columns (many events: what differs is patched in, a slice each).
The pool bounds the memory; when it is empty, events overflow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class Chunk:
    """A block of rows; `base` is the token of its first row, `used` how many are filled."""

    __slots__ = ("base", "buffer", "capacity", "columns", "opened_ns", "rows", "unacked", "used", "whole")

    def __init__(self, dtype: np.dtype[Any], capacity: int) -> None:
        self.capacity = capacity
        self.buffer = bytearray(dtype.itemsize * capacity)
        self.rows: npt.NDArray[Any] = np.frombuffer(self.buffer, dtype=dtype)
        # Copying rows as one void each is ten times faster than copying them as structures.
        self.whole: npt.NDArray[Any] = self.rows.view(f"V{dtype.itemsize}")
        self.columns: dict[str, npt.NDArray[Any]] = {name: self.rows[name] for name in dtype.names or ()}
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


class Template:
    """One row to be copied into many: packed as bytes, assigned as a whole."""

    __slots__ = ("buffer", "whole")

    def __init__(self, row_bytes: int) -> None:
        self.buffer = bytearray(row_bytes)
        self.whole: npt.NDArray[Any] = np.frombuffer(self.buffer, dtype=f"V{row_bytes}")


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
