"""A VOID run is named first with its reason, and nothing is said of who is better, worse or to blame."""

from __future__ import annotations

import io
import json
import math

import pytest
from rich.console import Console

from battlebrokers.analysis.comparison import compare
from battlebrokers.analysis.conclusion import conclude, draw_conclusion
from battlebrokers.analysis.examples import read_examples
from battlebrokers.analysis.explanation import explain
from battlebrokers.analysis.facts import read_facts
from battlebrokers.analysis.ranking import rank
from battlebrokers.analysis.story import tell
from battlebrokers.analysis.summary import build_summary, summarize
from battlebrokers.errors import UsageError
from battlebrokers.report.battle import print_battle, print_comparison
from battlebrokers.report.export import ranking_json, to_markdown
from battlebrokers.report.middleware import costs
from battlebrokers.report.middleware import explain as explain_costs
from battlebrokers.tables import OPERATIONS
from battlebrokers.tables.manifest import BattleFacts
from support.wires import small_system

DROPPED = {"recorder_overflow": 9}
REASON = "9 events did not fit into the recorder"


def printed(function, *arguments):
    out = io.StringIO()
    function(Console(file=out, width=200), *arguments)
    return out.getvalue()


def ready(run):
    facts = read_facts(run.write())
    return facts, summarize(facts)


def fight(make_run, contenders, **hosts):
    made = []
    for order, (name, counters) in enumerate(contenders.items()):
        run = make_run(run=f"{name}0", contender=name, battle=BattleFacts("b1", 0, order), counters=counters)
        run.healthy(600, 2.0 + 2 * order)
        if name in hosts:
            run.rows["services"][-1]["cpu_mean_percent"] = hosts[name]
        made.append(build_summary(run.write()))
    return rank(made)


def test_comparing_a_void_run_needs_anyway_and_gives_no_answer(make_run):
    runs = ready(make_run(run="aaaaa").healthy(ms=2.0)), ready(make_run(run="bbbbb", counters=DROPPED).healthy(ms=9.0))
    with pytest.raises(UsageError) as refused:
        compare(*runs)
    assert f"bbbbb is VOID: {REASON}" in refused.value.message
    assert "--anyway" in refused.value.hint
    found = compare(*runs, anyway=True)
    assert {row.answer for row in found.rows} == {"not judged"}
    assert found.to_dict()["void"] == [f"bbbbb is VOID: {REASON}"]
    text = printed(print_comparison, found)
    assert text.index("bbbbb is VOID") < text.index("delivery p50")
    assert "better" not in text
    assert "worse" not in text


def test_findings_of_a_void_run_begin_with_that(make_run):
    run = make_run(counters=DROPPED).healthy()
    run.service("kernel", "contender", 98.0)
    findings = draw_conclusion(run.write()).findings
    assert findings[0].id == "void"
    assert REASON in findings[0].sentence
    assert not any("limit" in finding.sentence for finding in findings)


def test_the_summary_carries_the_findings(make_run):
    run = make_run().healthy()
    run.service("kernel", "contender", 98.0)
    conclusion = conclude(run.write())
    stored = json.loads(conclusion.folder.summary_path.read_text())
    assert [finding["id"] for finding in stored["findings"]] == ["busy-thread"]
    assert stored["findings"] == json.loads(conclusion.folder.findings_path.read_text())


def test_a_void_contender_has_no_place_and_its_reason_comes_first(make_run):
    found = fight(make_run, {"one": {}, "two": DROPPED, "three": {}})
    assert tell(found)[0] == f"two cannot be ranked: every run of it is VOID: {REASON}."
    assert {standing.contender: standing.place for standing in found.standings}["two"] == "–"


def test_who_is_alone_with_a_run_that_is_not_void_has_beaten_nobody(make_run):
    found = fight(make_run, {"one": {}, "two": DROPPED})
    assert [standing.place for standing in found.standings] == ["–", "–"]
    assert tell(found)[-1] == "Nothing can be ranked: only one has a run that is not VOID."
    assert {standing["rank"] for standing in json.loads(ranking_json(found, "b1", None))["standings"]} == {None}


def test_markdown_gives_a_void_contender_no_place(make_run):
    runs = [make_run(run=f"run{n}", contender=f"c{n}", counters=DROPPED).healthy(600) for n in range(2)]
    text = to_markdown([draw_conclusion(run.write()) for run in runs])
    assert "| – | c0 |" in text
    assert "| 1 |" not in text


def test_where_others_used_the_machine_nobody_is_ranked_on_latency(make_run):
    # 60 % of four cores: 240 % are used, 70 % of it by broker and generator.
    found = fight(make_run, {"one": {}, "two": {}}, two=240.0)
    assert {standing.rank for standing in found.standings} == {1}
    assert "Nobody is ranked on latency: in 1 of 2 runs" in tell(found)[0]
    assert not any(ratio.metric.name.startswith(("response", "service", "publish")) for ratio in found.ratios)
    text = printed(print_battle, found)
    assert "faster" not in text
    ranked = fight(make_run, {"one": {}, "two": {}})
    assert [standing.rank for standing in ranked.standings] == [1, 2]


def test_costs_of_a_void_contender_are_its_reason(make_run):
    runs = {
        "one": build_summary(make_run().healthy().write()),
        "two": build_summary(make_run(run="v", counters=DROPPED).healthy().write()),
    }
    found = costs([(name, [run]) for name, run in runs.items()])
    assert [cost.label for cost in found] == ["two", "one"]
    assert found[0].cells[0] == "VOID"
    assert set(found[0].cells[1:]) == {"–"}
    assert explain_costs(found).startswith(f"two is VOID, so nothing is said of its cost: {REASON}.")


def test_nobody_is_named_as_slow_in_a_void_run(tmp_path):
    explanation = explain(read_examples(small_system(400).write(tmp_path)), REASON)
    assert explanation.culprit is None
    assert explanation.sentences()[0] == f"The run is VOID: {REASON}."
    assert not any("holds" in sentence for sentence in explanation.sentences())


def test_refused_subscriptions_are_named_before_the_machine(make_run):
    run = make_run(host={"cpu_cores": 2}, counters=DROPPED).healthy()
    run.rows["services"][-1]["cpu_mean_percent"] = 195.0
    run.action("subscribe", role="client", fleet="app", outcome="timeout", n=2)
    run.add(
        OPERATIONS,
        worker="w", role="client", node=0, kind="subscribe", started_ns=0, ended_ns=10, outcome="timeout", reason=0,
        detail="", filter="a/#", share=None, asked_qos=None, granted_qos=None, session_present=None, persistent=False,
        attempt=1,
    )  # fmt: skip
    conclusion = draw_conclusion(run.write())
    assert "every subscription is granted" in conclusion.summary.reasons[0]
    assert REASON in conclusion.summary.reasons[1]
    ids = [finding.id for finding in conclusion.findings]
    assert ids.index("subscribe-failures") < ids.index("busy-host")


@pytest.mark.parametrize(
    ("own", "late", "words"),
    [(150.0, False, "sends left in time"), (150.0, True, "slow each other"), (10.0, False, "by others than broker")],
)
def test_a_full_machine_slowed_them_only_where_that_was_seen(make_run, own, late, words):
    run = make_run(host={"cpu_cores": 2}).healthy(3000)
    run.rows["services"] = []
    run.service("broker", "contender", own / 2)
    run.service("worker-1", "generator", own / 2)
    run.service("host", "host", 195.0)
    if late:
        run.latency("lag", [1.5] * 200, second=6)
    (finding,) = [one for one in draw_conclusion(run.write()).findings if one.id == "busy-host"]
    assert words in finding.sentence
    assert ("slow each other" in finding.sentence) is (words == "slow each other")


def test_a_ratio_of_what_never_arrived_has_no_bounds_in_words(make_run):
    run = make_run(run="bbbbb").healthy(ms=2.0)
    run.latency("response", [math.inf] * 5_000, second=6)
    words = printed(print_comparison, compare(ready(make_run(run="aaaaa").healthy(ms=2.0)), ready(run)))
    assert "∞" in words
    assert "inf" not in words
