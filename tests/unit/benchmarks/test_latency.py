from __future__ import annotations

import pytest
from benchmarks.latency import rate_without_ticks, share_told
from benchmarks.ours import Load

from battlebrokers.run.tick import tick_ns
from battlebrokers.scenario.plan import build_plan
from battlebrokers.scenario.reader import read_scenario


@pytest.mark.parametrize("half_per_s", [1_000.0, 49_999.7, 60_000.0, 400_000.0])
def test_added_latency_is_measured_without_ticks_however_fast_the_broker_is(half_per_s):
    load = Load(per_s=rate_without_ticks(half_per_s))
    assert load.per_s <= half_per_s + 0.5
    assert tick_ns(build_plan(read_scenario(load.scenario(), "bench").scenario), processes=1) == 0


@pytest.mark.parametrize(
    ("capacity_per_s", "words"),
    [
        (84_000.0, "42,000 msg/s, 50% of the broker's capacity"),
        (250_000.0, "50,000 msg/s, 20% of the broker's capacity, the most that is sent without ticks"),
    ],
)
def test_the_note_says_the_true_share_of_the_capacity(capacity_per_s, words):
    assert share_told(rate_without_ticks(capacity_per_s / 2), capacity_per_s) == words
