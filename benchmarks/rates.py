"""Rates out of counts that were looked at while they grew."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

Sample = tuple[float, float]
"""(second, count so far)"""


def steady_rate(samples: Sequence[Sample], low: float = 0.1, high: float = 0.9) -> float:
    """Counts per second while the count went from `low` to `high` of its end: start and end do not count."""
    if len(samples) < 2:
        return 0.0
    total = samples[-1][1]
    first = next((sample for sample in samples if sample[1] >= low * total), samples[0])
    last = next((sample for sample in samples if sample[1] >= high * total), samples[-1])
    seconds = last[0] - first[0]
    return (last[1] - first[1]) / seconds if seconds > 0 else 0.0


def rate_between(samples: Sequence[Sample], start: float, end: float) -> float:
    """Counts per second between two moments, from the samples inside."""
    inside = [sample for sample in samples if start <= sample[0] <= end]
    if len(inside) < 2 or inside[-1][0] <= inside[0][0]:
        return 0.0
    return (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])


async def rate_after_start(count: Callable[[], int], seconds: float) -> float:
    """Counts per second of the time after the first fifth, when every connection is made."""
    await asyncio.sleep(seconds / 5)
    before, begun_s = count(), time.perf_counter()
    await asyncio.sleep(seconds)
    return (count() - before) / (time.perf_counter() - begun_s)
