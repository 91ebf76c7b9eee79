"""Steady: the same gap between all messages, exact over any length. A pure function; called by the schedule."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from battlebrokers.scenario.nodes import PacePlan


def offsets(pace: PacePlan, seed: int, first: int, count: int, last_ns: int) -> npt.NDArray[np.int64]:  # noqa: ARG001
    """When messages first … first + count - 1 are due, in ns since the start of the load."""
    start_ns = pace.start_ns + pace.offset_ns
    per = pace.per_interval
    if per == 1:
        begin_ns = start_ns + first * pace.interval_ns
        return np.arange(begin_ns, begin_ns + count * pace.interval_ns, pace.interval_ns, dtype=np.int64)
    # Whole intervals first, so that the product of the rest stays far from 64 bits; rounded up, never early.
    whole, rest = divmod(np.arange(first, first + count, dtype=np.int64), per)
    return start_ns + whole * pace.interval_ns + -(-rest * pace.interval_ns // per)
