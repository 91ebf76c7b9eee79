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

from battlebrokers.tables.measures import BUCKET_LOST, bucket_value_ns

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_MERGE = [("n", "sum"), ("sum_ns", "sum"), ("min_ns", "min"), ("max_ns", "max")]


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
        merged = rows.group_by("bucket").aggregate(_MERGE).sort_by("bucket")
        return cls(
            merged["bucket"].to_numpy().astype(np.int64),
            merged["n_sum"].to_numpy().astype(np.int64),
            merged["sum_ns_sum"].to_numpy().astype(np.float64),
            merged["min_ns_min"].to_numpy(zero_copy_only=False).astype(np.float64),
            merged["max_ns_max"].to_numpy(zero_copy_only=False).astype(np.float64),
        )

    @classmethod
    def merged(cls, parts: Iterable[Distribution]) -> Distribution:
        """Several distributions as one."""
        pieces = [part for part in parts if part.total]
        if not pieces:
            return cls.empty()
        buckets, where = np.unique(np.concatenate([piece.bucket for piece in pieces]), return_inverse=True)
        n = np.zeros(len(buckets), np.int64)
        sum_ns = np.zeros(len(buckets))
        min_ns = np.full(len(buckets), np.nan)
        max_ns = np.full(len(buckets), np.nan)
        np.add.at(n, where, np.concatenate([piece.n for piece in pieces]))
        np.add.at(sum_ns, where, np.concatenate([piece.sum_ns for piece in pieces]))
        np.fmin.at(min_ns, where, np.concatenate([piece.min_ns for piece in pieces]))
        np.fmax.at(max_ns, where, np.concatenate([piece.max_ns for piece in pieces]))
        return cls(buckets, n, sum_ns, min_ns, max_ns)

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
    merged = rows.group_by([*by, "bucket"]).aggregate(_MERGE)
    merged = merged.sort_by([(name, "ascending") for name in (*by, "bucket")])
    keys = list(zip(*(merged[name].to_pylist() for name in by), strict=True))
    starts = [i for i, key in enumerate(keys) if i == 0 or key != keys[i - 1]]
    bucket = merged["bucket"].to_numpy().astype(np.int64)
    n = merged["n_sum"].to_numpy().astype(np.int64)
    sum_ns = merged["sum_ns_sum"].to_numpy().astype(np.float64)
    min_ns = merged["min_ns_min"].to_numpy(zero_copy_only=False).astype(np.float64)
    max_ns = merged["max_ns_max"].to_numpy(zero_copy_only=False).astype(np.float64)
    found = {}
    for start, end in zip(starts, [*starts[1:], len(keys)], strict=True):
        part = slice(start, end)
        found[keys[start]] = Distribution(bucket[part], n[part], sum_ns[part], min_ns[part], max_ns[part])
    return found
