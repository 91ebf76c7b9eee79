"""Whether latency had settled: MSER-5 over per-second medians, plus how much it moved. Pure functions.

MSER-5 names the point after which the mean is known best; from the middle of the window on it means "never
settled". On few, noisy batches it cries wolf, so a run is unsteady only if latency also moved by a factor of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

BATCH = 5
SHORTEST_WINDOW_S = 20
"""Shorter windows have too few batches to judge."""
MATERIAL_RATIO = 2.0
MATERIAL_MS = 1.0


@dataclass(frozen=True, slots=True)
class Steadiness:
    """The answer; `steady` is None when the window is too short to say."""

    steady: bool | None
    first_ms: float = 0.0
    """Median of the per-second medians of the window's first third."""
    last_ms: float = 0.0
    """The same for its last third."""
    settled_after_s: int = 0
    """Where MSER-5 would cut."""


def steadiness(medians_ms: Sequence[float]) -> Steadiness:
    """Judge a window from its per-second median latencies."""
    if len(medians_ms) < SHORTEST_WINDOW_S:
        return Steadiness(None)
    third = len(medians_ms) // 3
    first, last = median(medians_ms[:third]), median(medians_ms[-third:])
    cut = mser(medians_ms)
    low, high = sorted((first, last))
    moved = high - low > MATERIAL_MS and high > MATERIAL_RATIO * max(low, 1e-9)
    return Steadiness(not (moved and cut >= len(medians_ms) // (2 * BATCH) * BATCH), first, last, cut)


def mser(values: Sequence[float], batch: int = BATCH) -> int:
    """How many leading values to leave out so that the mean of the rest is known best (a multiple of `batch`)."""
    means = [fmean(values[i : i + batch]) for i in range(0, len(values) - batch + 1, batch)]
    if len(means) < 3:
        return 0

    def uncertainty(cut: int) -> float:
        rest = means[cut:]
        centre = fmean(rest)
        return sum((value - centre) ** 2 for value in rest) / len(rest) ** 2

    # A handful of batches can agree by chance, so at least a quarter of the window stays.
    most = len(means) - max(2, -(-len(means) // 4))
    return batch * min(range(most + 1), key=uncertainty)
