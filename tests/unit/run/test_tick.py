from __future__ import annotations

import pytest

from battlebrokers.run.team_size import suggest_processes
from battlebrokers.run.tick import FINE_UP_TO_PER_S, TICK_NS, tick_ns
from battlebrokers.scenario.plan import build_plan
from battlebrokers.scenario.reader import LoadedScenario, read_scenario


def scenario(per_s: float, *, clients: int = 1, qos: int = 0) -> LoadedScenario:
    """Ten devices that publish `per_s` in all, and each message becomes `clients` deliveries."""
    return read_scenario(
        f"""
name: plain
fleets: {{pub: {{devices: 10, topic: t, payload: {{random_bytes: 64}}, every: {per_s / 10}/s, qos: {qos}}}}}
clients: {{sub: {{count: {clients}, subscribe: t, qos: 1}}}}
phases: {{measure: 10s}}
""",
        "test",
    )


def tick(per_s: float, processes: int = 1, **more: int) -> int:
    return tick_ns(build_plan(scenario(per_s, **more).scenario), processes)


def test_only_more_than_the_limit_is_handled_in_ticks():
    assert tick(0.49 * FINE_UP_TO_PER_S) == 0
    assert tick(0.51 * FINE_UP_TO_PER_S) == TICK_NS


def test_deliveries_count_as_much_as_messages():
    assert tick(0.3 * FINE_UP_TO_PER_S, clients=2) == 0
    assert tick(0.3 * FINE_UP_TO_PER_S, clients=3) == TICK_NS


def test_more_processes_share_the_load_and_need_no_tick():
    assert tick(FINE_UP_TO_PER_S, processes=1) == TICK_NS
    assert tick(FINE_UP_TO_PER_S, processes=2) == 0


@pytest.mark.parametrize("qos", [1, 2])
def test_acknowledgements_never_wait_for_a_tick(qos):
    assert tick(10 * FINE_UP_TO_PER_S, qos=qos) == 0


@pytest.mark.parametrize("per_s", [1_000, 30_000, 44_000, 46_000, 74_000, 200_000, 1_000_000])
def test_with_enough_cores_nobody_gets_a_tick(per_s):
    assert tick(per_s, suggest_processes(build_plan(scenario(per_s).scenario), cores=1_000)) == 0


def test_a_suggestion_that_lacks_cores_gets_one():
    assert tick(200_000, suggest_processes(build_plan(scenario(200_000).scenario), cores=2)) == TICK_NS
