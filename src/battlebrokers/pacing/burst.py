"""Burst: several messages at the same moment, then silence. A pure function; called by the schedule."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from battlebrokers.scenario.nodes import PacePlan


def offsets(pace: PacePlan, seed: int, first: int, count: int, last_ns: int) -> npt.NDArray[np.int64]:  # noqa: ARG001
    """When messages first … first + count - 1 are due, in ns since the start of the load."""
    numbers = np.arange(first, first + count, dtype=np.int64) // pace.burst_size
    return pace.start_ns + pace.offset_ns + numbers * pace.interval_ns
