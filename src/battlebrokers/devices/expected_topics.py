"""The topic each message of the plan is published on, by what its header says; what arrives is compared with it.

Filled by the engine, asked by stopwatch and basket, for many messages at once. It knows the plan, not what was sent:
what differs here is recorded with its topic, and the pipeline decides. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from battlebrokers.protocols.topic_rows import FILL, LONGEST_ROW
from battlebrokers.scenario import dice

NOT_COMPARED = -1
_MOST_BYTES = 64 << 20
"""Of the matrix of all topics; with more, or longer ones, topics are compared one by one."""

Numbers = npt.NDArray[Any]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DeviceTopics:
    """What one device publishes on: its topics in turn, or by dice."""

    device: int
    topics: tuple[str, ...]
    dice_seed: int = -1
    """Below 0: in turn."""


class ExpectedTopics:
    """Of all devices whose messages keep their topic on the way to the listeners of this process."""

    def __init__(self, devices: Iterable[DeviceTopics]) -> None:
        kept = list(devices)
        # The last place is for devices nothing is known of.
        count = 1 + max((one.device for one in kept), default=-1)
        self._first = np.full(count + 1, NOT_COMPARED, np.int64)
        self._counts = np.ones(count + 1, np.int64)
        self._seeds = np.full(count + 1, -1, np.int64)
        self._names: list[bytes] = []
        firsts: dict[tuple[str, ...], int] = {}
        for one in kept:
            first = firsts.get(one.topics)
            if first is None:
                first = firsts[one.topics] = len(self._names)
                self._names += [topic.encode() for topic in one.topics]
            self._first[one.device] = first
            self._counts[one.device] = len(one.topics)
            if len(one.topics) > 1:
                self._seeds[one.device] = one.dice_seed
        self._last = count
        self._several = bool((self._counts > 1).any())
        self._thrown = bool((self._seeds >= 0).any())
        self._only: list[bytes | None] = [
            self._names[first] if first >= 0 and topics == 1 else None
            for first, topics in zip(self._first.tolist(), self._counts.tolist(), strict=True)
        ]
        """By device, where it has one topic only; one look there decides nearly always."""
        self._sizes = np.array([len(name) for name in self._names] or [0], np.int64)
        self._matrix: npt.NDArray[np.uint8] | None = None
        width = int(self._sizes.max())
        if self._names and width <= LONGEST_ROW and width * len(self._names) <= _MOST_BYTES:
            filled = b"".join(name.ljust(width, bytes((FILL,))) for name in self._names)
            self._matrix = np.frombuffer(filled, np.uint8).reshape(-1, width)

    def is_other(self, device: int, seq: int, topic: bytes) -> bool:
        """Whether this message was to be published on another topic."""
        if device < self._last and self._only[device] == topic:
            return False
        place = int(self._places(np.array([device]), np.array([seq]))[0])
        return place != NOT_COMPARED and self._names[place] != topic

    def others_than(self, devices: Numbers, seqs: Numbers, topic: bytes) -> Places:
        """Which of these messages, all of which came on one topic, were to be published on another."""
        first = int(devices[0])
        if first < self._last and self._only[first] == topic and np.count_nonzero(devices == first) == len(devices):
            return _NONE
        places = self._places(devices, seqs)
        used = np.unique(places)
        wrong = [place for place in used.tolist() if place != NOT_COMPARED and self._names[place] != topic]
        return np.isin(places, wrong).nonzero()[0] if wrong else _NONE

    def others(
        self, devices: Numbers, seqs: Numbers, rows: npt.NDArray[np.uint8] | None, sizes: Numbers,
        topics: Iterable[bytes],
    ) -> Places:  # fmt: skip
        """Which of these messages were to be published on another topic; `rows` as in `topic_rows`.

        Without rows the `topics` themselves are read.
        """
        places = self._places(devices, seqs)
        if rows is None or self._matrix is None:
            names = [b"" if place == NOT_COMPARED else self._names[place] for place in places.tolist()]
            return np.array(
                [n for n, (name, topic) in enumerate(zip(names, topics, strict=True)) if name and name != topic],
                np.int64,
            )
        width = min(rows.shape[1], self._matrix.shape[1])
        expected = self._matrix[places, :width]
        right = (self._sizes[places] == sizes) & (places != NOT_COMPARED)
        if np.count_nonzero(right) == len(right) and expected.tobytes() == rows[:, :width].tobytes():
            return _NONE
        right &= (expected == rows[:, :width]).all(axis=1)
        right |= places == NOT_COMPARED
        wrong: Places = (~right).nonzero()[0]
        return wrong

    def _places(self, devices: Numbers, seqs: Numbers) -> Places:
        """The number of each message's topic among the names, or NOT_COMPARED."""
        known = np.minimum(devices.astype(np.int64), self._last)
        places: Places = self._first[known]
        if not self._several:
            return places
        counts = self._counts[known]
        turns = seqs.astype(np.int64)
        chosen = turns % counts
        if self._thrown:
            seeds = self._seeds[known]
            thrown = seeds >= 0
            chosen[thrown] = dice.belows_at(seeds[thrown], turns[thrown], counts[thrown])
        places[places != NOT_COMPARED] += chosen[places != NOT_COMPARED]
        return places


_NONE: Places = np.empty(0, np.int64)
