"""The records of a capture: a chunk of bytes becomes columns, one row per captured frame. Reads no file itself.

Called chunk by chunk, so that memory does not grow with the file. Damage is noted and skipped: reading goes on at the
next place that looks like a record. Every byte is looked at a bounded number of times, whatever it holds.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from battlebrokers.dissect.capture_format import Drops, Layout
from battlebrokers.dissect.gather import Numbers


class Damage(NamedTuple):
    """A stretch of a file that could not be read."""

    at: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Records:
    """Row n is the n-th frame of a chunk; places are offsets in the file."""

    at: Numbers
    """Where its record begins."""
    frame_at: Numbers
    """Where its captured bytes begin."""
    captured_bytes: Numbers
    original_bytes: Numbers
    time_ns: Numbers
    """Since the epoch; 0 when the capture does not say."""
    interface: Numbers
    """Counted over all sections of the file."""
    link_type: Numbers
    """-1 when its interface was never described."""
    damages: tuple[Damage, ...] = ()

    def __len__(self) -> int:
        return len(self.at)

    def part(self, start: int, end: int) -> Records:
        """Rows [start, end); damages go with the first of them."""
        return replace(self.where(slice(start, end)), damages=self.damages if start == 0 else ())

    def where(self, wanted: npt.NDArray[np.bool_] | slice) -> Records:
        """The rows that are wanted."""
        names = (one.name for one in fields(self) if one.name != "damages")
        return replace(self, **{name: getattr(self, name)[wanted] for name in names})


class Stop(Enum):
    """Why walking from record to record ended."""

    DONE = "the chunk has no further complete record"
    BROKEN = "what lies here is no record"
    CUT = "the file ends within this record"


class Walker(abc.ABC):
    """Walks from record to record; give it chunk after chunk, each from where it stopped in the one before."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        """What holds where it stopped."""
        self.drops: dict[int, Drops] = {}
        """The last statistics of each interface, by its number in the file."""
        self.stopped_at = 0
        """Up to where it has read, as an offset in the file."""
        self._lost_at = -1
        """Where reading failed, until it goes on."""
        self._damages: list[Damage] = []

    def walk(self, data: bytes, at: int, *, last: bool) -> tuple[Records, int]:
        """The records of a chunk that begins at file offset `at`, and how many of its bytes are done with.

        What is left belongs to a record that is not complete: come again with more behind it. With `last` there is no
        more, and everything is done with. If nothing was done, the next record is longer than the chunk.
        """
        self._damages = []
        self._begin(data)
        place = 0
        while True:
            if self._lost_at < 0:
                place, stop = self._steps(place, last=last)
                if stop is Stop.DONE:
                    break
                self._lost_at = at + place
                place = self._search_from(place, stop)
            place, certain = self._search(place, last=last)
            if not certain:
                break
            self._regain(at + place)
        if last:
            if place < len(data) and self._lost_at < 0:
                self._lost_at = at + place
            place = len(data)
            self._regain(at + place)
        self.stopped_at = at + place
        records = self._columns(at)
        return replace(records, damages=tuple(self._damages)), place

    @property
    def lost(self) -> bool:
        """Whether it stopped where it did not find a record again yet."""
        return self._lost_at >= 0

    def _regain(self, at: int) -> None:
        if self._lost_at >= 0:
            # When it goes on before that, a wrong length had led too far.
            lost_at = min(self._lost_at, at)
            self._damages.append(Damage(lost_at, at - lost_at))
            self._lost_at = -1

    @abc.abstractmethod
    def _begin(self, data: bytes) -> None:
        """A new chunk."""

    @abc.abstractmethod
    def _steps(self, place: int, *, last: bool) -> tuple[int, Stop]:
        """Note records from `place` on; returns where it stopped and why."""

    @abc.abstractmethod
    def _search_from(self, place: int, stop: Stop) -> int:
        """Where a search for the next record must begin after a stop at `place`."""

    @abc.abstractmethod
    def _search(self, place: int, *, last: bool) -> tuple[int, bool]:
        """The first place from there on where reading can go on; when it is not certain: where to look again."""

    @abc.abstractmethod
    def _columns(self, at: int) -> Records:
        """The records noted in this chunk, which begins at file offset `at`."""
