from __future__ import annotations

from benchmarks.analyze import Timed, told

SIZES = (1_000_000, 5_000_000, 10_000_000)


def met(cost_s):
    return {figure.name: figure.met for figure in told([Timed(size, cost_s(size)) for size in SIZES])}


def test_a_linear_analysis_meets_every_target_whatever_starting_costs():
    for start_s in (0.0, 60.0):
        assert all(met(lambda size, start_s=start_s: start_s + 6e-6 * size).values())


def test_what_grows_faster_than_the_run_cannot_hide_behind_the_start():
    grows = met(lambda size: 60 + 1e-12 * size**2)
    assert grows["analyze.cost_per_event"]
    assert not grows["analyze.marginal_cost"]


def test_differences_lost_in_noise_are_no_answer():
    assert not met(lambda size: 60 + (5 if size == SIZES[1] else 0))["analyze.marginal_cost"]
