"""Ramp: a rate that rises (or falls) in a straight line, then stays. A pure function; called by the schedule."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from battlebrokers.scenario.nodes import NEVER_NS, PacePlan

_LATEST_NS = float(2**62)


def offsets(pace: PacePlan, seed: int, first: int, count: int, last_ns: int) -> npt.NDArray[np.int64]:  # noqa: ARG001
    """When messages first … first + count - 1 are due, in ns since the start of the load.

    Message n is due when the area under the rate reaches n: a·t + (b - a)·t² / 2T = n while the ramp lasts.
    """
    low = 0.0 if pace.interval_ns == NEVER_NS else 1 / pace.interval_ns
    high = 0.0 if pace.interval_max_ns == NEVER_NS else 1 / pace.interval_max_ns
    slope = (high - low) / pace.ramp_ns
    on_ramp = pace.ramp_ns * (low + high) / 2
    numbers = np.arange(first, first + count, dtype=np.float64)
    # The root in the form that stays exact for slope 0; beyond the ramp the argument is not used.
    root = np.sqrt(np.maximum(low * low + 2 * slope * np.minimum(numbers, on_ramp), 0.0))
    rising = np.divide(2 * numbers, low + root, out=np.zeros(count), where=(low + root) > 0)
    after = pace.ramp_ns + (numbers - on_ramp) / high if high else np.full(count, math.inf)
    times = np.where(numbers <= on_ramp, rising, after)
    return pace.start_ns + pace.offset_ns + np.ceil(np.minimum(times, _LATEST_NS)).astype(np.int64)
