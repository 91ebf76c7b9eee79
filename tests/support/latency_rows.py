"""Latencies as the pipeline adds them up, for runs made up by tests: one row for each second and bucket."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from battlebrokers.tables.measures import BUCKET_GAMMA, BUCKET_LOST, BUCKET_TINY

SUMS = ("second", "bucket", "n", "sum_ns", "min_ns", "max_ns")


def _buckets_of(values_ns: np.ndarray) -> np.ndarray:
    """What `measures.bucket_of` says of each, for thousands of values at once."""
    arrived = np.isfinite(values_ns)
    micros = np.where(arrived, values_ns, 0.0) / 1000.0
    buckets = np.ceil(np.log(np.maximum(micros, 1.0)) / math.log(BUCKET_GAMMA)).astype(np.int64)
    return np.where(arrived, np.where(micros < 1, BUCKET_TINY, buckets), BUCKET_LOST)


def summed(seconds: np.ndarray, values_ns: np.ndarray) -> Iterator[tuple[Any, ...]]:
    """What a row of latencies says of all values of one second and one bucket, as in `SUMS`."""
    buckets = _buckets_of(values_ns)
    order = np.lexsort((buckets, seconds))
    seconds, buckets, values_ns = seconds[order], buckets[order], values_ns[order]
    is_other = (np.diff(seconds) != 0) | (np.diff(buckets) != 0)
    first = np.flatnonzero(np.concatenate([[True], is_other]))
    counts = np.diff(first, append=len(order))
    found = (
        np.add.reduceat(values_ns, first),
        np.minimum.reduceat(values_ns, first),
        np.maximum.reduceat(values_ns, first),
    )
    sums = zip(
        seconds[first].tolist(), buckets[first].tolist(), counts.tolist(), *(one.tolist() for one in found), strict=True
    )
    for second, bucket, count, total, least, most in sums:
        lost = bucket == BUCKET_LOST
        yield second, bucket, count, *((0.0, None, None) if lost else (total, int(least), int(most)))
