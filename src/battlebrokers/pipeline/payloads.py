"""Payloads where they lie: capture files, opened when first needed, read at many places at once.

Used by the stage that follows conversations. Local files are mapped, remote ones read piece by piece.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from battlebrokers.dissect.segments import Numbers
from battlebrokers.dissect.stream import Reader
from battlebrokers.pipeline.sources.files import RandomFile, local_path

FILE_SHIFT = 48
"""A place is a file's number and, in so many bits below it, an offset in the file."""
_MAPPED_FILES = 16
_IN_FILE = (1 << FILE_SHIFT) - 1


class Payloads:
    """Capture files by number."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = files
        self._open: dict[int, Reader] = {}

    def read(self, places: Numbers, sizes: Numbers) -> list[bytes]:
        """The bytes at these places."""
        if not len(places):
            return []
        number, starts = places >> FILE_SHIFT, places & _IN_FILE
        first = int(number[0])
        if np.all(number == first):
            return self._reader(first)(starts, sizes)
        found: list[bytes] = []
        bounds = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(number)]
        for start, end in pairwise(bounds):
            found += self._reader(int(number[start]))(starts[start:end], sizes[start:end])
        return found

    def _reader(self, number: int) -> Reader:
        reader = self._open.get(number)
        if reader is None:
            reader = self._open[number] = _opened(self._files[number])
        return reader


def _opened(address: str) -> Reader:
    path = local_path(address)
    if path is not None:
        state = Path(path).stat()
        return _mapped(path, state.st_ino, state.st_size, state.st_mtime_ns)
    read = RandomFile(address).read
    return lambda starts, sizes: [
        read(start, size) if size else b"" for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
    ]


@lru_cache(maxsize=_MAPPED_FILES)
def _mapped(path: str, *_state: int) -> Reader:
    """Mapped once for all tasks of this process: to bring in the pages again for each takes longer than to read."""
    with Path(path).open("rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return lambda starts, sizes: [
        content[start:end] for start, end in zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
    ]
