from __future__ import annotations

import json
import math

import pytest

from battlebrokers.analysis.comparison import compare
from battlebrokers.analysis.facts import read_facts
from battlebrokers.analysis.summary import summarize
from battlebrokers.errors import UsageError


def ready(run):
    facts = read_facts(run.write())
    return facts, summarize(facts)


def answers(found):
    return {row.metric.name: row.answer for row in found.rows}


def test_twice_as_slow_is_worse(make_run):
    found = compare(ready(make_run().healthy(ms=2.0)), ready(make_run().healthy(ms=4.0)))
    assert answers(found)["response_p99"] == "worse"
    assert answers(found)["delivered_rate"] == "same"
    row = next(row for row in found.rows if row.metric.name == "response_p99")
    assert row.ratio == pytest.approx(2.0, rel=0.03)
    assert row.low * 0.98 <= 2.0 <= row.high * 1.02  # buckets are exact to 1 %


def test_the_other_way_round_it_is_better(make_run):
    assert (
        answers(compare(ready(make_run().healthy(ms=4.0)), ready(make_run().healthy(ms=2.0))))["response_p50"]
        == "better"
    )


def test_three_percent_are_noise(make_run):
    assert (
        answers(compare(ready(make_run().healthy(ms=2.0)), ready(make_run().healthy(ms=2.06))))["response_p50"]
        == "noise"
    )


def test_loss_is_judged_by_its_count(make_run):
    def lossy(lost):
        run = make_run().healthy(3000)
        run.rows["ledger"][0] |= {"lost": lost, "delivered": 3000 - lost, "qos": 0}
        return ready(run)

    assert answers(compare(lossy(0), lossy(0)))["lost"] == "same"
    assert answers(compare(lossy(3), lossy(5)))["lost"] == "noise"
    assert answers(compare(lossy(3), lossy(300)))["lost"] == "worse"
    assert answers(compare(lossy(300), lossy(0)))["lost"] == "better"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"seed": 8}, "the seeds differ: 7 and 8"),
        ({"plan_sha256": "q" * 64}, "the plans differ"),
        ({"scenario": "fan-in"}, "the scenarios differ"),
        ({"tick_ns": 4_000_000}, "handled as they came and every 4 ms"),
        (
            {"host": {"hostname": "lab-1", "cpu_cores": 8, "cpu_model": "Example CPU"}},
            "the machines differ in cpu_cores: 4 and 8",
        ),
    ],
)
def test_runs_not_made_alike_are_refused_with_the_reason(make_run, change, reason):
    first, second = ready(make_run().healthy()), ready(make_run(**change).healthy())
    with pytest.raises(UsageError, match=reason) as caught:
        compare(first, second)
    assert "--anyway" in caught.value.hint
    assert any(reason in difference for difference in compare(first, second, anyway=True).differences)


def test_volatile_host_facts_do_not_matter(make_run):
    first = ready(make_run(host={"cpu_cores": 4, "memory_available_bytes": 1, "load_1min": 0.1}).healthy())
    second = ready(make_run(host={"cpu_cores": 4, "memory_available_bytes": 2, "load_1min": 2.2}).healthy())
    assert compare(first, second).differences == ()


def test_the_json_has_no_infinities(make_run):
    run = make_run().healthy(3000)
    run.latency("response", [math.inf] * 600, second=6)
    found = compare(ready(make_run().healthy(3000)), ready(run))
    assert answers(found)["response_p99"] == "worse"
    json.dumps(found.to_dict(), allow_nan=False)


def test_no_latency_is_judged_where_others_used_the_machine(make_run):
    def disturbed(ms):
        run = make_run(host={"cpu_cores": 2}).healthy(ms=ms)
        run.service("host", "host", 50.0, cpu_mean_percent=190.0)
        run.rows["services"] = [row for row in run.rows["services"] if row["cpu_mean_percent"] != 50.0]
        return ready(run)

    found = compare(disturbed(2.0), disturbed(4.0))
    assert answers(found)["response_p99"] == answers(found)["response_p50"] == "not judged"
    assert answers(found)["delivered_rate"] == "same"
    assert all("others used 60 % of this machine's 2 cores" in words for words in found.disturbed)
    assert len(found.to_dict()["disturbed"]) == 2
