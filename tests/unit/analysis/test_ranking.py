from __future__ import annotations

import math

import pytest

from battlebrokers.analysis.ranking import rank
from battlebrokers.analysis.story import tell, tell_notes
from battlebrokers.analysis.summary import build_summary
from battlebrokers.tables.manifest import BattleFacts


@pytest.fixture
def battle(make_run):
    """A function that runs a made-up battle: contender → latency in ms per block."""

    def fight(latencies_ms, *, lost=None, **values):
        made = []
        for order, (contender, per_block) in enumerate(latencies_ms.items()):
            for block, ms in enumerate(per_block):
                run = make_run(
                    run=f"{contender[:3]}{block}", contender=contender, battle=BattleFacts("b1", block, order), **values
                ).healthy(600, ms)
                if (lost or {}).get(contender):
                    run.rows["ledger"][0] |= {"lost": lost[contender], "delivered": 600 - lost[contender], "qos": 0}
                    run.latency("response", [math.inf] * lost[contender], second=6)
                made.append(build_summary(run.write()))
        return rank(made)

    return fight


def test_six_blocks_give_a_ratio_with_confidence(battle):
    found = battle({"amqtt": [4.0, 4.2, 3.9, 4.1, 4.0, 4.3], "mosquitto": [2.0, 2.1, 2.0, 1.9, 2.1, 2.0]})
    assert [(s.rank, s.contender) for s in found.standings] == [(1, "mosquitto"), (2, "amqtt")]
    ratio = next(r for r in found.ratios if r.metric.name == "response_p99")
    assert ratio.confident
    assert ratio.answer == "better"
    assert ratio.ratio == pytest.approx(0.5, rel=0.05)
    (sentence,) = tell(found)
    assert sentence.startswith("mosquitto was ")
    assert sentence.endswith("faster than amqtt in delivery p99.")
    assert "×" in sentence
    assert tell_notes(found) == []


def test_few_blocks_show_a_range_and_say_why(battle):
    found = battle({"amqtt": [4.0, 4.2], "mosquitto": [2.0, 2.1]})
    assert "(range" in tell(found)[0]
    assert "needs 6 trusted repeats" in tell_notes(found)[0]


def test_the_same_is_a_possible_answer(battle):
    found = battle({"one": [2.0, 2.01, 2.0, 2.0, 1.99, 2.0], "two": [2.0] * 6})
    assert {s.rank for s in found.standings} == {1}
    assert "are the same in delivery p99" in tell(found)[0]


def test_contradicting_blocks_show_no_difference(battle):
    found = battle({"one": [2.0, 4.0, 2.0, 4.0, 2.0, 4.0], "two": [4.0, 2.0, 4.0, 2.0, 4.0, 2.0]})
    assert {s.rank for s in found.standings} == {1}
    assert tell(found)[0].startswith("No difference shown between")


def test_the_block_pairs_runs_not_the_order_they_are_given(battle):
    """Both slow down over time alike; paired, the factor two stays visible."""
    found = battle({"one": [2, 4, 8, 16, 32, 64], "two": [4, 8, 16, 32, 64, 128]})
    ratio = next(r for r in found.ratios if r.metric.name == "response_p99")
    assert (ratio.low, ratio.high) == (pytest.approx(0.5, rel=0.05), pytest.approx(0.5, rel=0.05))
    assert ratio.answer == "better"


def test_less_loss_ranks_before_less_latency(battle):
    found = battle({"fast": [1.0] * 3, "safe": [3.0] * 3}, lost={"fast": 60})
    assert [s.contender for s in found.standings] == ["safe", "fast"]
    assert "fast lost 10 % of the deliveries, safe 0 %." in tell(found)
    assert any("has no finite delivery p99" in sentence for sentence in tell(found))


def test_void_runs_are_left_out_and_counted(battle, make_run):
    from battlebrokers.analysis.model import Summary

    found = battle({"one": [2.0, 2.0], "two": [3.0, 3.0]})
    void = build_summary(
        make_run(contender="three", run="void1", counters={"recorder_overflow": 1}).healthy(600).write()
    )
    assert isinstance(void, Summary)
    again = rank([*found.summaries, void])
    assert again.standings[-1].contender == "three"
    assert tell(again)[0] == (
        "three cannot be ranked: every run of it is VOID: 1 events did not fit into the recorder."
    )
    assert again.standings[-1].rank is None
    assert tell_notes(again)[0] == "1 of 5 runs are VOID and were left out of the comparison."


def test_all_void_cannot_be_ranked(battle):
    found = battle({"one": [2.0], "two": [2.0]}, counters={"recorder_overflow": 1})
    assert tell(found)[0] == "No contender can be ranked: every run is VOID."
    assert "1 events did not fit into the recorder" in tell(found)[1]
    assert [standing.place for standing in found.standings] == ["–", "–"]


def test_two_versions_of_one_broker_are_told_apart(make_run):
    made = [
        build_summary(make_run(run=f"v{v}", version=v).healthy(600, ms).write())
        for v, ms in (("2.0", 4.0), ("2.1", 2.0))
    ]
    found = rank(made)
    assert [s.contender for s in found.standings] == ["mosquitto 2.1", "mosquitto 2.0"]
    assert any("not part of a battle" in note for note in tell_notes(found))


def test_one_contender_alone_is_no_battle(battle):
    assert tell(battle({"one": [2.0] * 3})) == ["Only one took part."]


def test_on_a_machine_others_used_missing_an_expectation_of_latency_does_not_rank(make_run):
    def summary(contender, order, ms):
        run = make_run(
            run=f"{contender}-1", contender=contender, battle=BattleFacts("b1", 0, order), host={"cpu_cores": 2},
            expect=["delivery_p99 < 3ms", "lost == 0"],
        ).healthy(600, ms)  # fmt: skip
        run.service("host", "host", 50.0, cpu_mean_percent=190.0)
        run.rows["services"] = [row for row in run.rows["services"] if row["cpu_mean_percent"] != 50.0]
        return build_summary(run.write())

    found = rank([summary("fast", 0, 2.0), summary("slow", 1, 5.0)])
    assert [one.verdicts for one in found.standings] == [{"PASS": 1}, {"FAIL": 1}]
    assert {one.rank for one in found.standings} == {1}
    assert not any("met the expectations" in sentence for sentence in tell(found))
