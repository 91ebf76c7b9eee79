from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.analysis.interval import bootstrap_quantile, log_ratio, median_interval, median_ratio
from battlebrokers.analysis.quantiles import Distribution
from battlebrokers.tables.measures import bucket_of


@pytest.mark.parametrize(
    ("n", "ranks"), [(6, (1, 6)), (9, (2, 8)), (10, (2, 9)), (12, (3, 10)), (20, (6, 15)), (30, (10, 21))]
)
def test_the_known_order_statistic_intervals(n, ranks):
    assert median_interval(list(range(1, n + 1))) == ranks


@pytest.mark.parametrize("n", range(6))
def test_fewer_than_six_have_no_interval(n):
    assert median_interval(list(range(n))) is None


def test_infinite_against_infinite_is_a_tie():
    assert log_ratio(math.inf, math.inf) == 0
    assert log_ratio(math.inf, 1) == math.inf
    assert log_ratio(1, math.inf) == -math.inf
    assert log_ratio(0, 0) == 0
    assert log_ratio(2, 1) == pytest.approx(math.log(2))


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=30))
def test_the_median_ratio_lies_between_the_extremes(ratios):
    found = median_ratio([math.log(ratio) for ratio in ratios])
    assert min(ratios) * 0.999 <= found <= max(ratios) * 1.001


def test_opposite_infinities_do_not_crash():
    assert median_ratio([-math.inf, math.inf]) == 1


def seconds(values_by_second):
    found = {}
    for second, values in enumerate(values_by_second):
        buckets, counts = np.unique([bucket_of(v) for v in values], return_counts=True)
        blank = np.full(len(buckets), np.nan)
        found[second] = Distribution(buckets.astype(np.int64), counts.astype(np.int64), blank, blank, blank)
    return found


def test_the_bootstrap_covers_the_true_quantile_and_is_repeatable():
    dice = np.random.default_rng(3)
    made = seconds(dice.lognormal(math.log(2e6), 0.3, (60, 200)))
    low, high = bootstrap_quantile(made, 0.5)
    assert low <= 2e6 <= high
    assert high / low < 1.1
    assert bootstrap_quantile(made, 0.5) == (low, high)


def test_one_bad_second_widens_the_interval_of_the_tail():
    made = seconds([[2e6] * 100] * 59 + [[500e6] * 100])
    low, high = bootstrap_quantile(made, 0.99)
    assert low < 3e6 < 100e6 < high


def test_four_seconds_are_too_few():
    assert bootstrap_quantile(seconds([[1e6]] * 4), 0.5) is None
