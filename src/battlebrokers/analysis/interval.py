"""Intervals without assumptions about distributions: order statistics of a median, and a bootstrap over seconds.

Pure functions. Runs are the unit of repetition; within one run only whole seconds are resampled, since messages of
one second are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from battlebrokers.analysis.quantiles import Distribution, rank_of
from battlebrokers.tables.measures import BUCKET_LOST, bucket_value_ns

CONFIDENCE = 0.95
FEWEST_REPEATS = 6
"""With fewer repeats no 95 % interval of a median exists."""
RESAMPLES = 400


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """The narrowest order-statistic interval [x_k, x_(n+1-k)] that covers the median; None if n is too small."""
    n = len(values)
    ordered = sorted(values)
    tail, best = 0.0, None
    for k in range(1, n // 2 + 1):
        tail += math.comb(n, k - 1) / 2**n
        if 1 - 2 * tail < confidence:
            break
        best = (ordered[k - 1], ordered[n - k])
    return best


def log_ratio(numerator: float, denominator: float) -> float:
    """ln(numerator / denominator), where infinite against infinite is a tie."""
    if numerator == denominator:
        return 0.0
    if math.isinf(numerator) or denominator <= 0:
        return math.inf
    if math.isinf(denominator) or numerator <= 0:
        return -math.inf
    return math.log(numerator / denominator)


def median_ratio(log_ratios: Sequence[float]) -> float:
    """exp of the median of log ratios: the middle block's ratio."""
    # The median of an even number would be inf - inf if both middle values were infinite and opposite.
    middle = median(log_ratios)
    return math.exp(min(middle, 700.0)) if not math.isnan(middle) else 1.0


def bootstrap_quantile(seconds: Mapping[int, Distribution], p: float, seed: int = 0) -> tuple[float, float] | None:
    """A 95 % interval of a run's p-quantile in ns, by resampling its seconds; None with fewer than five of them."""
    found = [part for part in seconds.values() if part.total]
    if len(found) < 5:
        return None
    buckets = np.unique(np.concatenate([part.bucket for part in found]))
    counts = np.zeros((len(found), len(buckets)))
    for row, part in enumerate(found):
        counts[row, np.searchsorted(buckets, part.bucket)] = part.n
    dice = np.random.default_rng(seed)
    weights = dice.multinomial(len(found), np.full(len(found), 1 / len(found)), size=RESAMPLES)
    running = np.cumsum(weights @ counts, axis=1)
    values = []
    for sums in running:
        index = int(np.searchsorted(sums, rank_of(p, round(sums[-1]))))
        bucket = int(buckets[index])
        values.append(math.inf if bucket == BUCKET_LOST else bucket_value_ns(bucket))
    values.sort()
    cut = int(RESAMPLES * (1 - CONFIDENCE) / 2)
    return values[cut], values[-cut - 1]
