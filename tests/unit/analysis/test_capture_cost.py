from __future__ import annotations

import io

import pytest
from rich.console import Console

from battlebrokers.analysis.comparison import compare
from battlebrokers.analysis.facts import read_facts
from battlebrokers.analysis.summary import summarize
from battlebrokers.report.battle import print_comparison
from battlebrokers.tables.manifest import CaptureFacts

CAPTURE = CaptureFacts("broker", ["recorded/captures/broker-00001.pcapng"], packets=1200, dropped=3)


def ready(run, *captures):
    facts = read_facts(run.write())
    facts.manifest.captures = list(captures)
    return facts, summarize(facts)


def test_one_captured_run_tells_what_capturing_cost(make_run):
    found = compare(ready(make_run().healthy(ms=2.0)), ready(make_run(run="bbbbb").healthy(ms=3.0), CAPTURE))
    cost = found.capture_cost
    assert cost.captured == "bbbbb"
    by_name = {each.metric.name: each for each in cost.costs}
    assert by_name["response_p50"].ratio == pytest.approx(1.5, rel=0.03)
    assert not by_name["response_p50"].noise
    assert by_name["delivered_rate"].noise
    assert found.to_dict()["capture_cost"]["packets"] == 1200


def test_it_is_the_same_cost_whichever_run_is_named_first(make_run):
    cost = compare(ready(make_run().healthy(ms=3.0), CAPTURE), ready(make_run().healthy(ms=2.0))).capture_cost
    by_name = {each.metric.name: each for each in cost.costs}
    assert by_name["response_p99"].ratio == pytest.approx(1.5, rel=0.03)


def printed(found):
    out = io.StringIO()
    print_comparison(Console(file=out, width=160), found)
    return out.getvalue()


@pytest.mark.parametrize("captured_first", [False, True])
def test_it_is_said_in_words(make_run, captured_first):
    runs = [ready(make_run().healthy(ms=2.0)), ready(make_run(run="bbbbb").healthy(ms=3.0), CAPTURE)]
    said = printed(compare(*(reversed(runs) if captured_first else runs)))
    _, _, cost = said.partition("WHAT CAPTURING COST")
    assert "bbbbb captured 1 200 packets (3 dropped), the other run none" in cost
    lines = {line.strip().partition("  ")[0]: line.split() for line in cost.splitlines()}
    median = lines["delivery p50"]
    assert [float(median[place]) for place in (2, 4)] == pytest.approx([2, 3], rel=0.03)
    assert 47 <= int(median[-2]) <= 53
    assert lines["delivered"][-1] == "noise"
    assert "not to be trusted" not in cost


def test_a_void_run_casts_doubt_on_the_cost(make_run):
    void = make_run(run="bbbbb", state="running").healthy(ms=3.0)
    found = compare(ready(make_run().healthy(ms=2.0)), ready(void, CAPTURE), anyway=True)
    assert not found.capture_cost.trusted
    assert "not to be trusted, because a run is VOID" in printed(found)


@pytest.mark.parametrize("captures", [((), ()), ((CAPTURE,), (CAPTURE,)), ((), (CaptureFacts("broker", missing="x"),))])
def test_without_a_difference_in_capturing_there_is_no_cost(make_run, captures):
    first, second = captures
    found = compare(ready(make_run().healthy(), *first), ready(make_run().healthy(), *second))
    assert found.capture_cost is None
    assert found.to_dict()["capture_cost"] is None


def test_another_version_of_the_broker_is_not_the_captures_fault(make_run):
    other = ready(make_run(version="9.9").healthy(ms=3.0), CAPTURE)
    assert compare(ready(make_run().healthy()), other).capture_cost is None


def test_runs_that_were_not_made_alike_tell_nothing(make_run):
    other = ready(make_run(seed=8).healthy(ms=3.0), CAPTURE)
    assert compare(ready(make_run().healthy()), other, anyway=True).capture_cost is None
