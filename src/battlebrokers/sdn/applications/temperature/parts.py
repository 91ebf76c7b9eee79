"""The parts of the temperature application: a room, moving averages, a trigger, an actuator. Pure but for a seed.

Used by `application`, which puts them at hosts. Nothing here knows of a network.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Final

_START_C: Final = 22.5
_WARMING_C: Final = 0.25
"""By so much the room warms from one reading to the next, and an actuator at work cools it."""
_NOISE_C: Final = 0.3


class Room:
    """A room that gets warmer by itself, and a sensor in it that is never quite right."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._temperature_c = _START_C

    def read(self, actuators_at_work: int) -> float:
        """The next reading, with two decimals."""
        self._temperature_c += _WARMING_C * (1 - actuators_at_work)
        return round(self._temperature_c + self._random.gauss(0, _NOISE_C), 2)


class MovingAverage:
    """The average of the last so many values."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._values: deque[float] = deque(maxlen=size)

    def add(self, value: float) -> float | None:
        """The average with this value; None as long as there are too few."""
        self._values.append(value)
        return sum(self._values) / self.size if len(self._values) == self.size else None


class Trigger:
    """Fires when an average rises above the threshold, and again after a while if it stays there.

    Again, because a datagram may get lost; the original has no second threshold to come back below, nor have we.
    """

    def __init__(self, threshold_c: float, again_after: int) -> None:
        self.threshold_c = threshold_c
        self._again_after = again_after
        self._above_for = 0

    def judge(self, average_c: float | None) -> bool:
        """Whether to fire, told this average."""
        if average_c is None or average_c <= self.threshold_c:
            self._above_for = 0
            return False
        self._above_for += 1
        return self._above_for % self._again_after == 1 or self._again_after == 1


class Actuator:
    """Works for a while when it is triggered; triggered at work, it works on from then."""

    def __init__(self, works_for_s: float) -> None:
        self._works_for_s = works_for_s
        self._until_s = float("-inf")

    def triggered(self, at_s: float) -> None:
        """Begin, or go on."""
        self._until_s = at_s + self._works_for_s

    def works(self, at_s: float) -> bool:
        """Whether it is at work."""
        return at_s < self._until_s
