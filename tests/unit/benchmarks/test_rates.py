from __future__ import annotations

from benchmarks.rates import rate_between, steady_rate


def test_the_steady_rate_leaves_out_a_slow_start_and_a_slow_end():
    samples = [(0.0, 0.0), (5.0, 10.0), (6.0, 50.0), (7.0, 90.0), (12.0, 100.0)]
    assert steady_rate(samples) == 40.0


def test_nothing_counted_is_a_rate_of_zero():
    assert steady_rate([]) == 0.0
    assert steady_rate([(0.0, 0.0), (1.0, 0.0)]) == 0.0
    assert rate_between([], 0, 1) == 0.0


def test_a_rate_between_two_moments_uses_the_samples_inside():
    samples = [(0.0, 0.0), (1.0, 10.0), (2.0, 30.0), (3.0, 50.0), (4.0, 1000.0)]
    assert rate_between(samples, 1.0, 3.0) == 20.0
