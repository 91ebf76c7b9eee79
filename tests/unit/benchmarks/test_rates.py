from __future__ import annotations

from benchmarks.rates import steady_rate


def test_the_steady_rate_leaves_out_a_slow_start_and_a_slow_end():
    samples = [(0.0, 0.0), (5.0, 10.0), (6.0, 50.0), (7.0, 90.0), (12.0, 100.0)]
    assert steady_rate(samples) == 40.0


def test_nothing_counted_is_a_rate_of_zero():
    assert steady_rate([]) == 0.0
    assert steady_rate([(0.0, 0.0), (1.0, 0.0)]) == 0.0
