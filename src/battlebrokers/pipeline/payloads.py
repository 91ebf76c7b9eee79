"""Payloads where they lie: capture files, opened when first needed, read at many places at once.

Used by the stage that follows conversations. Local files are mapped, remote ones read piece by piece.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from battlebrokers.dissect.segments import Numbers
from battlebrokers.dissect.stream import Reader
from battlebrokers.pipeline.sources.files import RandomFile, local_path

FILE_SHIFT = 48
"""A place is a file's number and, in so many bits below it, an offset in the file."""
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
    if path is None:
        read = RandomFile(address).read
        return lambda starts, sizes: [
            read(start, size) if size else b"" for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
        ]
    with Path(path).open("rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return lambda starts, sizes: [
        content[start:end] for start, end in zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
    ]
