"""How far apart the workers' clocks may be, from four-stamp probes. Pure; the bound is printed beside every latency."""

from __future__ import annotations

import pyarrow as pa


def clock_error_us(clocks: pa.Table, workers: int) -> float | None:
    """Bound of the error of a latency between two workers, in µs; 0 on one clock, None when it was never probed.

    One worker publishes and receives by its own clock, so there is nothing to disagree. Otherwise the true offset of
    a worker lies within half of its fastest probe's round trip; a latency spans two workers, so the two worst add up.
    """
    if workers <= 1:
        return 0.0
    bounds: dict[str, float] = {}
    for probe in clocks.to_pylist():
        round_trip_ns = (probe["t4_ns"] - probe["t1_ns"]) - (probe["t3_ns"] - probe["t2_ns"])
        bound_us = 0.0 if probe["same_clock"] else max(0.0, round_trip_ns / 2000)
        bounds[probe["worker"]] = min(bounds.get(probe["worker"], bound_us), bound_us)
    if len(bounds) < workers:
        return None
    return sum(sorted(bounds.values())[-2:])
