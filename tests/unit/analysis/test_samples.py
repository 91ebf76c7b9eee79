"""A percentile that the sample does not carry is not stated, decides nothing and says how many messages it needs."""

from __future__ import annotations

import json
import math

import pytest

from battlebrokers.analysis.comparison import compare
from battlebrokers.analysis.facts import read_facts
from battlebrokers.analysis.quantiles import highest_carried, samples_for
from battlebrokers.analysis.ranking import rank
from battlebrokers.analysis.story import tell
from battlebrokers.analysis.summary import build_summary, summarize
from battlebrokers.tables.manifest import BattleFacts


def judged(make_run, text, values_ms):
    run = make_run(expect=[text]).healthy(0)
    run.latency("response", values_ms)
    run.ledger(expected=len(values_ms), delivered=sum(map(math.isfinite, values_ms)), qos=0)
    run.publishing(planned=len(values_ms), sent=len(values_ms))
    summary = build_summary(run.write())
    return next(one for one in summary.expectations if one.text == text), summary


@pytest.mark.parametrize("p", [0.5, 0.9, 0.95, 0.99, 0.999])
def test_so_many_samples_carry_a_percentile_and_one_less_does_not(p):
    assert highest_carried(samples_for(p)) >= p > highest_carried(samples_for(p) - 1)


def test_a_percentile_without_samples_enough_is_null_with_the_number_it_needs(make_run):
    summary = build_summary(make_run().healthy(200).write())
    response = json.loads(summary.to_json())["latency_ms"]["response"]
    assert (response["p99"], response["p999"]) == (None, None)
    assert response["needed"] == {"p99": 299, "p999": 2995}
    assert response["p95"] is not None
    assert response["max"] is not None


def test_percentiles_of_those_that_arrived_need_samples_of_their_own(make_run):
    run = make_run().healthy(0)
    run.latency("response", [2.0] * 100 + [math.inf] * 300)
    found = build_summary(run.write()).latency_ms.response
    assert found.infinite == ["p50", "p90", "p95", "p99", "p999"]
    assert found.needed == {}
    assert found.of_delivered["p99"] is None
    assert found.needed_of_delivered == {"p99": 299, "p999": 2995}


def test_above_an_infinite_percentile_all_are_infinite(make_run):
    run = make_run().healthy(0)
    run.latency("response", [2.0] * 50 + [math.inf] * 50)
    found = build_summary(run.write()).latency_ms.response
    assert found.infinite == ["p90", "p95", "p99", "p999"]
    assert found.needed == {}


@pytest.mark.parametrize(
    ("text", "values_ms", "ok"),
    [
        ("delivery_p99 < 50ms", [2.0] * 200, None),
        ("delivery_p99 < 50ms", [2.0] * 150 + [80.0] * 50, False),
        ("delivery_p99 < 50ms", [2.0] * 298 + [80.0], True),
        ("delivery_p99 > 50ms", [2.0] * 150 + [80.0] * 50, True),
        ("delivery_p99 < 50ms", [2.0] * 100 + [math.inf] * 100, False),
    ],
)
def test_a_lower_percentile_may_decide_what_the_sample_does_not_carry(make_run, text, values_ms, ok):
    one, summary = judged(make_run, text, values_ms)
    if ok is None:
        assert summary.verdict == "VOID"
        assert "200 samples, and p99 needs 299" in summary.reasons[0]
    else:
        assert one.ok is ok, one.measured


def test_frozen_to_the_end_no_percentile_and_no_expectation_takes_what_arrived_before(make_run):
    one, summary = judged(make_run, "delivery_p99 < 50ms", [1.78] * 647 + [math.inf] * 2553)
    assert (one.ok, one.value) == (False, None)
    assert "∞" in one.measured
    assert "never arrived" in one.measured
    assert summary.latency_ms.response.infinite[0] == "p50"


def battle(make_run, n_of):
    made = []
    for order, (contender, n) in enumerate(n_of.items()):
        for block in range(2):
            run = make_run(run=f"{contender}{block}", contender=contender, battle=BattleFacts("b1", block, order))
            made.append(build_summary(run.healthy(n, 2.0 + 2 * order).write()))
    return rank(made)


def test_nobody_is_ranked_by_a_percentile_the_sample_does_not_carry(make_run):
    found = battle(make_run, {"one": 600, "two": 100, "three": 600})
    places = {standing.contender: standing.rank for standing in found.standings}
    assert places["one"] < places["three"]
    two = next(standing for standing in found.standings if standing.contender == "two")
    assert "response_p99" not in two.values
    assert two.needed["response_p99"] == 299
    assert not any(ratio.metric.name == "response_p99" and ratio.to == "two" for ratio in found.ratios)
    assert any("needs 299 messages in a run; the most were: two 100" in sentence for sentence in tell(found))


def test_where_no_sample_carries_it_all_share_a_place(make_run):
    found = battle(make_run, {"one": 100, "two": 100})
    assert {standing.rank for standing in found.standings} == {1}
    assert not any("faster" in sentence for sentence in tell(found))


def test_two_runs_are_not_compared_by_it(make_run):
    runs = [read_facts(make_run(run=name).healthy(100, ms).write()) for name, ms in (("aaaaa", 2.0), ("bbbbb", 9.0))]
    found = compare(*((facts, summarize(facts)) for facts in runs))
    row = next(row for row in found.rows if row.metric.name == "response_p99")
    assert (row.baseline, row.contender, row.answer, row.needed) == (None, None, "not judged", 299)


@pytest.mark.parametrize(("share", "lag_ms", "verdict"), [(0.16, 30.0, "VOID"), (0.32, 1.5, "PASS")])
def test_lateness_says_in_one_sentence_why_it_voids_the_run_or_does_not(make_run, share, lag_ms, verdict):
    n = 3000
    late = [place % 100 < 100 * share for place in range(n)]
    run = make_run().healthy(0)
    seconds = [run.warm_up_s + place % run.measure_s for place in range(n)]
    run.latency("lag", [lag_ms if one else 0.05 for one in late], second=seconds)
    run.latency("service", [2.0] * n, second=seconds)
    run.latency("response", [2.0 + (lag_ms if one else 0.05) for one in late], second=seconds)
    run.ledger(expected=n, delivered=n)
    run.publishing(planned=n, sent=n, acked=n)
    summary = build_summary(run.write())
    said = next(check.sentence for check in summary.trust.checks if check.id == "generator-late")
    assert summary.verdict == verdict
    assert said.startswith(f"{round(100 * share)} % of the sends nothing held left more than 1 ms")
    assert f"(limit 1 %); that moved p99 by {lag_ms:g}" in said
    assert f"from 2 ms after the actual send to {2 + lag_ms:g}" in said
    assert ("so the run is void" if verdict == "VOID" else "so the run is not void") in said
