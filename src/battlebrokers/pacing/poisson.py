"""Poisson: exponential gaps, the arrivals of many independent sources. A pure function; called by the schedule."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from battlebrokers.scenario import dice
from battlebrokers.scenario.nodes import PacePlan


def offsets(pace: PacePlan, seed: int, first: int, count: int, last_ns: int) -> npt.NDArray[np.int64]:
    """When messages first … first + count - 1 are due; `last_ns` is when the one before them was."""
    gaps = np.rint(-np.log1p(-dice.units(seed, first, count)) * pace.interval_ns).astype(np.int64)
    if first == 0:
        last_ns = pace.start_ns + pace.offset_ns
    return last_ns + np.cumsum(gaps)
