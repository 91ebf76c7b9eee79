from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.analysis.quantiles import Distribution, distributions, rank_of
from battlebrokers.tables import LATENCIES
from battlebrokers.tables.measures import BUCKET_LOST, bucket_of, bucket_value_ns


def rows(values_ns, *, second=0, fleet="air", lost=0):
    by_bucket: dict[int, list[float]] = {}
    for value in values_ns:
        by_bucket.setdefault(bucket_of(value), []).append(value)
    made = [
        {"bucket": b, "n": len(v), "sum_ns": float(sum(v)), "min_ns": int(min(v)), "max_ns": int(max(v))}
        for b, v in by_bucket.items()
    ]
    if lost:
        made.append({"bucket": BUCKET_LOST, "n": lost, "sum_ns": 0.0, "min_ns": None, "max_ns": None})
    common = {"kind": "response", "phase": "measure", "second": second, "fleet": fleet, "client_fleet": "app", "qos": 1}
    return pa.Table.from_pylist([common | row for row in made], schema=LATENCIES.arrow_schema())


def test_the_rank_is_the_exact_ceiling():
    assert rank_of(0.07, 100) == 7
    assert rank_of(0.999, 1000) == 999
    assert rank_of(0.99, 101) == 100
    assert rank_of(0.5, 1) == 1
    assert rank_of(0.0, 10) == 1


@given(
    st.lists(st.integers(1_000, 60_000_000_000), min_size=1, max_size=300),
    st.sampled_from([0.5, 0.9, 0.95, 0.99, 0.999, 1.0]),
)
def test_a_quantile_is_within_one_percent_of_the_exact_order_statistic(values, p):
    found = Distribution.from_rows(rows(values)).quantile_ns(p)
    exact = sorted(values)[rank_of(p, len(values)) - 1]
    assert found == pytest.approx(exact, rel=0.0101)


@given(st.lists(st.lists(st.integers(1_000, 10_000_000), max_size=50), min_size=1, max_size=5))
def test_merging_parts_equals_counting_the_whole(parts):
    whole = Distribution.from_rows(rows([value for part in parts for value in part]))
    merged = Distribution.merged(Distribution.from_rows(rows(part)) for part in parts)
    assert merged.total == whole.total
    assert merged.mean_ns == pytest.approx(whole.mean_ns) if whole.total else merged.mean_ns is None
    for p in (0.5, 0.99):
        assert merged.quantile_ns(p) == whole.quantile_ns(p)


def test_mean_and_maximum_are_exact():
    found = Distribution.from_rows(rows([1_234_567, 2_345_678, 9_999_999]))
    assert found.mean_ns == pytest.approx((1_234_567 + 2_345_678 + 9_999_999) / 3)
    assert found.max_arrived_ns == 9_999_999


def test_no_percentile_exceeds_the_maximum():
    found = Distribution.from_rows(rows([1_000_000] * 100))
    assert found.quantile_ns(0.999) == 1_000_000


def test_lost_messages_are_infinitely_late():
    found = Distribution.from_rows(rows([1_000_000] * 98, lost=2))
    assert (found.total, found.lost, found.arrived) == (100, 2, 98)
    assert found.quantile_ns(0.98) == pytest.approx(1_000_000)
    assert math.isinf(found.quantile_ns(0.99))
    assert found.quantile_ns(0.999, of_arrived=True) == pytest.approx(1_000_000)
    assert found.max_arrived_ns == 1_000_000
    assert found.mean_ns == 1_000_000


def test_everything_lost_has_no_mean_and_infinite_percentiles():
    found = Distribution.from_rows(rows([], lost=5))
    assert found.mean_ns is None
    assert found.max_arrived_ns is None
    assert math.isinf(found.quantile_ns(0.5))
    assert found.quantile_ns(0.5, of_arrived=True) is None


def test_negative_values_are_shown_as_they_are():
    found = Distribution.from_rows(rows([-40_000, -40_000, 2_000_000]))
    assert found.quantile_ns(0.5) == -40_000


def test_nothing_has_no_quantile():
    assert Distribution.empty().quantile_ns(0.5) is None
    assert Distribution.from_rows(LATENCIES.arrow_schema().empty_table()).total == 0
    assert Distribution.merged([]).total == 0


def test_share_above_counts_what_is_slower():
    found = Distribution.from_rows(rows([500_000] * 97 + [5_000_000] * 2, lost=1))
    assert found.share_above(1_000_000) == pytest.approx(0.03)
    assert Distribution.empty().share_above(1) == 0


def test_the_spectrum_ends_where_the_lost_begin():
    spectrum = Distribution.from_rows(rows([1_000_000] * 50 + [2_000_000] * 40, lost=10)).spectrum()
    assert [round(p, 3) for p, _ in spectrum] == [0.5, 0.9]


def test_distributions_are_split_by_the_columns_asked_for():
    both = pa.concat_tables([rows([1_000_000] * 3, second=1), rows([2_000_000], second=0), rows([3_000_000], second=1)])
    found = distributions(both, ["second"])
    assert list(found) == [(0,), (1,)]
    assert found[(1,)].total == 4
    assert distributions(LATENCIES.arrow_schema().empty_table(), ["second"]) == {}


def test_bucket_values_stay_within_one_percent():
    for value in np.geomspace(1_001, 1e12, 500):
        assert bucket_value_ns(bucket_of(value)) == pytest.approx(value, rel=0.0101)
