from __future__ import annotations

import io
import json

from rich.console import Console

from battlebrokers.analysis.comparison import compare
from battlebrokers.analysis.facts import read_facts
from battlebrokers.analysis.ranking import rank
from battlebrokers.analysis.summary import build_summary, summarize
from battlebrokers.report.battle import print_battle, print_comparison
from battlebrokers.report.export import ranking_json
from battlebrokers.tables.manifest import BattleFacts


def fight(make_run, names=("mosquitto", "amqtt"), title=""):
    made = []
    for block in range(2):
        for order, name in enumerate(names):
            run = make_run(run=f"r{block}{order}", contender=name, battle=BattleFacts("b1", block, order), title=title)
            made.append(build_summary(run.healthy(600, 2.0 + 2 * (name == "amqtt")).write()))
    return rank(made)


def printed(function, *arguments):
    out = io.StringIO()
    function(Console(file=out), *arguments)
    return out.getvalue()


def test_a_battle_names_the_better_and_the_uncertainty(make_run):
    text = printed(print_battle, fight(make_run))
    assert "smart-city: mosquitto against amqtt" in text
    assert "mosquitto was 2.01× (range 2.01–2.01 over 2 repeats) faster than amqtt in delivery p99." in text
    assert "2 PASS" in text
    assert "note: A confidence interval needs 6" in text
    assert "\x1b" not in text


def test_a_battle_of_scaled_runs_says_so(make_run):
    ranking = fight(make_run, title="smart-city at scale 0.1")
    assert "smart-city at scale 0.1: mosquitto against amqtt" in printed(print_battle, ranking)
    plain = json.loads(ranking_json(ranking, "b1", None))
    assert (plain["scenario"], plain["title"]) == ("smart-city", "smart-city at scale 0.1")


def test_the_same_broker_twice_is_a_null_pair(make_run):
    text = printed(print_battle, fight(make_run, ("mosquitto", "mosquitto")))
    assert "mosquitto and mosquitto (again) are the same in delivery p99" in text


def test_the_ranking_as_json_has_no_infinities(make_run):
    found = json.loads(ranking_json(fight(make_run), "b1", None))
    assert [standing["contender"] for standing in found["standings"]] == ["mosquitto", "amqtt"]
    assert found["standings"][0]["rank"] == 1
    assert found["decided_by"] == "response_p99"
    assert {ratio["metric"] for ratio in found["ratios"]} >= {"response_p50", "response_p99"}
    assert found["runs"] == ["r00", "r01", "r10", "r11"]


def test_two_runs_are_printed_side_by_side(make_run):
    def ready(run):
        facts = read_facts(run.write())
        return facts, summarize(facts)

    found = compare(
        ready(make_run(run="aaaaa").healthy()), ready(make_run(run="bbbbb", seed=8).healthy(ms=4.0)), anyway=True
    )
    text = printed(print_comparison, found)
    assert "baseline    PASS   aaaaa" in text
    assert "not made alike: the seeds differ: 7 and 8" in text
    assert "worse" in text
    assert "noise: within ±5 %" in text
