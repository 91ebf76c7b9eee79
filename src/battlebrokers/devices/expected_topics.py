"""The topic each message of the plan is published on, by what its header says; what arrives is compared with it.

Filled by the engine, asked by stopwatch and basket, for many messages at once. It knows the plan, not what was sent:
what differs here is recorded with its topic, and the pipeline decides. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from battlebrokers.protocols.topic_rows import FILL, LONGEST_ROW
from battlebrokers.scenario import dice

NOT_COMPARED, NOT_PLANNED = -1, -2
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
        self._place_of: dict[bytes, int] = {}
        order: list[int] = []
        firsts: dict[tuple[str, ...], int] = {}
        for one in kept:
            first = firsts.get(one.topics)
            if first is None:
                first = firsts[one.topics] = len(order)
                order += [self._place_of.setdefault(topic.encode(), len(self._place_of)) for topic in one.topics]
            self._first[one.device] = first
            self._counts[one.device] = len(one.topics)
            if len(one.topics) > 1:
                self._seeds[one.device] = one.dice_seed
        self._order = np.array([*order, NOT_COMPARED], np.int64)
        """The topics of each device, one behind the other, as places among the names; the last stands for unknown."""
        self._names = list(self._place_of)
        self._several = bool((self._counts > 1).any())
        self._thrown = bool((self._seeds >= 0).any())
        if not self._several:
            self._first = self._order[self._first]
        self.only: list[bytes | None] = [
            self._names[self._order[first] if self._several else first] if first >= 0 and topics == 1 else None
            for first, topics in zip(self._first.tolist(), self._counts.tolist(), strict=True)
        ]
        """By device, where it has one topic only; one look there decides nearly always. The last is None."""
        self._sizes = np.array([len(name) for name in self._names] or [0], np.int64)
        self._matrix: npt.NDArray[np.uint8] | None = None
        width = int(self._sizes.max())
        if self._names and width <= LONGEST_ROW and width * len(self._names) <= _MOST_BYTES:
            filled = b"".join(name.ljust(width, bytes((FILL,))) for name in self._names)
            self._matrix = np.frombuffer(filled, np.uint8).reshape(-1, width)

    def place_of(self, topic: bytes) -> int:
        """The number of a topic in what `places` tells, or NOT_PLANNED."""
        return self._place_of.get(topic, NOT_PLANNED)

    def is_other(self, device: int, seq: int, topic: bytes) -> bool:
        """Whether this message was to be published on another topic."""
        place = int(self.places(np.array([device]), np.array([seq]))[0])
        return place != NOT_COMPARED and self._names[place] != topic

    def others_than(self, devices: Numbers, seqs: Numbers, topic: bytes) -> Places:
        """Which of these messages, all of which came on one topic, were to be published on another."""
        first = int(devices[0])
        if first < len(self.only) and self.only[first] == topic and np.count_nonzero(devices != first) == 0:
            return _NONE
        places = self.places(devices, seqs)
        others: Places = ((places != self.place_of(topic)) & (places != NOT_COMPARED)).nonzero()[0]
        return others

    def others(
        self, devices: Numbers, seqs: Numbers, rows: npt.NDArray[np.uint8] | None, sizes: Numbers,
        topics: Callable[[], Iterable[bytes]],
    ) -> Places:  # fmt: skip
        """Which of these messages were to be published on another topic; `rows` as in `topic_rows`.

        Without rows the `topics` themselves are read.
        """
        places = self.places(devices, seqs)
        if rows is None or self._matrix is None:
            names = [b"" if place == NOT_COMPARED else self._names[place] for place in places.tolist()]
            return np.array(
                [n for n, (name, topic) in enumerate(zip(names, topics(), strict=True)) if name and name != topic],
                np.int64,
            )
        width = min(rows.shape[1], self._matrix.shape[1])
        expected = self._matrix.take(places, 0, mode="wrap")
        if width < expected.shape[1]:
            expected = expected[:, :width]
        right = (self._sizes[places] == sizes) & (places != NOT_COMPARED)
        if np.count_nonzero(right) == len(right) and np.array_equal(expected, rows[:, :width]):
            return _NONE
        right &= (expected == rows[:, :width]).all(axis=1)
        right |= places == NOT_COMPARED
        wrong: Places = (~right).nonzero()[0]
        return wrong

    def places(self, devices: Numbers, seqs: Numbers) -> Places:
        """The number of the topic each message was to be published on, or NOT_COMPARED."""
        # Whoever is beyond the last place is looked up there.
        firsts: Places = self._first.take(devices, mode="clip")
        if not self._several:
            return firsts
        known = np.minimum(devices.astype(np.int64), len(self._first) - 1)
        counts = self._counts[known]
        turns = seqs.astype(np.int64)
        chosen = turns % counts
        if self._thrown:
            seeds = self._seeds[known]
            thrown = seeds >= 0
            chosen[thrown] = dice.belows_at(seeds[thrown], turns[thrown], counts[thrown])
        # Unknown ones are at -1, which is the last of the order whatever is chosen of their one topic.
        return self._order[firsts + chosen]


_NONE: Places = np.empty(0, np.int64)
