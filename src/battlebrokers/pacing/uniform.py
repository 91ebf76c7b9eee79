"""Uniform: gaps drawn evenly between two lengths. A pure function; called by the schedule."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from battlebrokers.scenario import dice
from battlebrokers.scenario.nodes import PacePlan


def offsets(pace: PacePlan, seed: int, first: int, count: int, last_ns: int) -> npt.NDArray[np.int64]:
    """When messages first … first + count - 1 are due; `last_ns` is when the one before them was."""
    width_ns = pace.interval_max_ns - pace.interval_ns + 1
    gaps = pace.interval_ns + (dice.units(seed, first, count) * width_ns).astype(np.int64)
    if first == 0:
        last_ns = pace.start_ns + pace.offset_ns
        gaps[0] = 0
    return last_ns + np.cumsum(gaps)
