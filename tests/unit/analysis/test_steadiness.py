from __future__ import annotations

import random

import pytest

from battlebrokers.analysis.steadiness import mser, steadiness


def noisy(level: float, n: int, seed: int = 1) -> list[float]:
    dice = random.Random(seed)
    return [level * dice.uniform(0.8, 1.25) for _ in range(n)]


def test_a_short_window_cannot_be_judged():
    assert steadiness(noisy(1, 19)).steady is None


@pytest.mark.parametrize("seed", range(30))
def test_noise_around_one_level_is_steady(seed):
    assert steadiness(noisy(3, 20, seed)).steady is True
    assert steadiness(noisy(3, 60, seed)).steady is True


def test_a_growing_queue_is_unsteady():
    found = steadiness([10.0 * second for second in range(1, 61)])
    assert found.steady is False
    assert found.last_ms > found.first_ms


def test_a_stall_of_two_seconds_does_not_make_a_run_unsteady():
    values = noisy(1, 60)
    values[50:52] = [1500.0, 700.0]
    assert steadiness(values).steady is True


def test_a_slow_beginning_is_left_out_by_mser():
    assert mser([50.0] * 10 + noisy(1, 50)) == 10


def test_microseconds_of_drift_do_not_matter():
    assert steadiness([0.1 + 0.005 * second for second in range(60)]).steady is True


def test_few_values_have_no_cut():
    assert mser([]) == 0
    assert mser([1.0] * 9) == 0
