"""A distribution of latencies, merged from bucket rows. Used by everything that states a percentile.

Rank rule: the p-quantile is the first bucket whose running sum reaches ceil(p·N). Messages that never arrived
are infinitely late, so a quantile can be infinite. Percentiles are never averaged; only counts are added.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from battlebrokers.analysis.columns import floats_of, numbers_of, ordered_groups
from battlebrokers.tables.measures import BUCKET_LOST, bucket_value_ns

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


CONFIDENCE = 0.95
"""How sure it must be that the true percentile is not above the slowest message seen."""


def samples_for(p: float) -> int:
    """How many samples carry the p-quantile: with fewer, the true one may well be above the largest value seen."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(p))


def highest_carried(total: int) -> float:
    """The highest quantile that so many samples carry; the reverse of `samples_for`."""
    return float((1 - CONFIDENCE) ** (1 / max(1, total)))


def rank_of(p: float, total: int) -> int:
    """The rank ceil(p·total), at least 1, computed without rounding errors (0.07 of 100 is 7, not 8)."""
    return max(1, math.ceil(Fraction(repr(p)) * total))


@dataclass(frozen=True, slots=True)
class Distribution:
    """Counts per bucket, ascending; the last bucket may be that of messages that never arrived."""

    bucket: Ints
    n: Ints
    sum_ns: Floats
    min_ns: Floats
    max_ns: Floats

    @classmethod
    def empty(cls) -> Distribution:
        """The distribution of nothing."""
        no_ints, no_floats = np.empty(0, np.int64), np.empty(0, np.float64)
        return cls(no_ints, no_ints, no_floats, no_floats, no_floats)

    @classmethod
    def from_rows(cls, rows: pa.Table) -> Distribution:
        """Merge rows of the `latencies` table, whatever else they are grouped by."""
        if rows.num_rows == 0:
            return cls.empty()
        return distributions(rows, ())[()]

    @classmethod
    def merged(cls, parts: Iterable[Distribution]) -> Distribution:
        """Several distributions as one."""
        pieces = [part for part in parts if part.total]
        if not pieces:
            return cls.empty()
        names = ("bucket", "n", "sum_ns", "min_ns", "max_ns")
        return cls.added(*(np.concatenate([getattr(piece, name) for piece in pieces]) for name in names))

    @classmethod
    def added(cls, bucket: Ints, n: Ints, sum_ns: Floats, min_ns: Floats, max_ns: Floats) -> Distribution:
        """Counts of any buckets in any order, those of one bucket added up."""
        buckets, where = np.unique(bucket, return_inverse=True)
        sums = cls(
            buckets,
            np.zeros(len(buckets), np.int64),
            np.zeros(len(buckets)),
            np.full(len(buckets), np.nan),
            np.full(len(buckets), np.nan),
        )
        np.add.at(sums.n, where, n)
        np.add.at(sums.sum_ns, where, sum_ns)
        np.fmin.at(sums.min_ns, where, min_ns)
        np.fmax.at(sums.max_ns, where, max_ns)
        return sums

    @property
    def total(self) -> int:
        """All messages, those that never arrived included."""
        return int(self.n.sum())

    @property
    def lost(self) -> int:
        """How many never arrived."""
        return int(self.n[-1]) if len(self.bucket) and self.bucket[-1] == BUCKET_LOST else 0

    @property
    def arrived(self) -> int:
        """How many did."""
        return self.total - self.lost

    @property
    def mean_ns(self) -> float | None:
        """Exact mean of those that arrived."""
        return float(self.sum_ns.sum()) / self.arrived if self.arrived else None

    @property
    def max_arrived_ns(self) -> float | None:
        """Exact largest value of those that arrived."""
        return float(np.nanmax(self.max_ns[: self._finite])) if self.arrived else None

    def quantile_ns(self, p: float, *, of_arrived: bool = False) -> float | None:
        """The p-quantile in nanoseconds, within 1 %; infinite when it falls among the lost; None without samples."""
        total = self.arrived if of_arrived else self.total
        if total == 0:
            return None
        index = int(np.searchsorted(np.cumsum(self.n), rank_of(p, total)))
        return self._value_ns(index)

    def share_above(self, limit_ns: float) -> float:
        """Which share of all messages was slower than the limit, to the nearest bucket."""
        if not self.total:
            return 0.0
        slow = [int(n) for index, n in enumerate(self.n) if self._value_ns(index) > limit_ns]
        return sum(slow) / self.total

    def spectrum(self) -> list[tuple[float, float]]:
        """(p, value in ns) at every bucket that arrived: the share of all messages at or below that value."""
        running = np.cumsum(self.n) / max(1, self.total)
        return [(float(running[index]), self._value_ns(index)) for index in range(self._finite)]

    @property
    def _finite(self) -> int:
        return len(self.bucket) - (1 if self.lost else 0)

    def _value_ns(self, index: int) -> float:
        value = bucket_value_ns(int(self.bucket[index]))
        if math.isinf(value):
            return value
        # Keeping to what was really seen in the bucket makes single values exact and no percentile exceed the maximum.
        low, high = float(self.min_ns[index]), float(self.max_ns[index])
        return value if math.isnan(low) or math.isnan(high) else min(max(value, low), high)


def distributions(rows: pa.Table, by: Sequence[str]) -> dict[tuple[object, ...], Distribution]:
    """One distribution per distinct combination of the `by` columns, in the order of their values."""
    if rows.num_rows == 0:
        return {}
    groups, keys = ordered_groups(rows, by)
    bucket = numbers_of(rows["bucket"]).astype(np.int64)
    n, sum_ns = numbers_of(rows["n"]), numbers_of(rows["sum_ns"])
    min_ns, max_ns = floats_of(rows["min_ns"]), floats_of(rows["max_ns"])
    order = np.argsort(groups, kind="stable")
    parts = np.split(order, np.searchsorted(groups[order], np.arange(1, len(keys))))
    return {
        key: Distribution.added(bucket[part], n[part], sum_ns[part], min_ns[part], max_ns[part])
        for key, part in zip(keys, parts, strict=True)
    }
