"""The broker inside the network while messages flow: subscriptions change, controllers die."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from battlebrokers.sdn.lab.open_vswitch import what_is_missing
from support.network_load import Load, changes_in_effect
from support.stage import Stage, stage
from support.waiting import until

_MISSING = what_is_missing()
pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(_MISSING is not None, reason=f"{_MISSING.message}: {_MISSING.hint}" if _MISSING else ""),
]
MODES = ("reactive", "direct", "group", "tree")
CYCLES = {"reactive": 30, "direct": 30, "group": 60, "tree": 60}


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("paper"), "paper") as made:
        yield made
        assert made.errors() == 0


@pytest.mark.parametrize("mode", MODES)
def test_subscribe_and_unsubscribe_are_in_effect_when_they_are_answered(paper: Stage, mode: str) -> None:
    # h7 and h8 are at the same switch: when h8 has its copy, h7's was made too, or was not.
    changes_in_effect(paper, mode, CYCLES[mode], changing="h7", beside="h8", far="h3")


def test_whoever_stays_subscribed_to_another_reactive_resource_gets_nothing_of_the_one_it_left(paper: Stage) -> None:
    # What is on its way is addressed to h7, and passes: the answer waits until it has.
    paper.create("reactive", subscribers=("h7",))
    changes_in_effect(paper, "reactive", 20, changing="h7", beside="h8", far="h3")


@pytest.mark.parametrize("mode", MODES)
def test_a_host_that_joins_gets_everything_from_the_answer_on(paper: Stage, mode: str) -> None:
    resource = paper.create(mode, subscribers=("h2", "h8"))
    with Load(paper, resource) as load:
        load.further(("h8",))
        paper.subscribe(resource, "h5")
        answered = time.monotonic_ns()
        load.further(("h2", "h5", "h8"), 100)
        load.ended(("h2", "h5", "h8"))
    first = next(number for number, sent_ns in enumerate(load.sent_ns) if sent_ns > answered)
    assert load.missing("h5", first) == []
    assert load.missing("h2") == load.missing("h8") == []
    assert {name for name, came in load.came.items() if came} == {"h2", "h5", "h8"}


@pytest.mark.parametrize("mode", ["group", "tree"])
def test_deliveries_go_on_without_a_controller_and_when_it_is_back(paper: Stage, mode: str) -> None:
    hosts = ("h2", "h3", "h4", "h5", "h6", "h7", "h8")
    resource = paper.create(mode, subscribers=hosts)
    with Load(paper, resource) as load:
        load.further(hosts)
        paper.kill_controller()
        load.further(hosts, 100)
        paper.start_controller()
        until(lambda: paper.is_whole(), what="all switches at the new controller")
        load.further(hosts, 100)
        load.ended(hosts)
    assert {host: load.missing(host) for host in hosts} == {host: [] for host in hosts}
    assert load.twice == 0
