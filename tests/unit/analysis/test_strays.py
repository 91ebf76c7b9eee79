from __future__ import annotations

import pytest

from battlebrokers.analysis.conclusion import draw_conclusion


def summary_of(made):
    return draw_conclusion(made.write()).summary


def foreign_check(summary):
    (check,) = [check for check in summary.trust.checks if check.id == "foreign-messages"]
    return check


def test_messages_of_another_run_void_a_run_and_name_the_likely_cause(make_run):
    made = make_run().healthy()
    made.ledger(fleet="", device=-1, unexpected=3200, foreign=3200, foreign_runs=3200)
    summary = summary_of(made)
    assert summary.verdict == "VOID"
    (reason,) = summary.reasons
    assert "3 200 of the arrivals were messages this run never sent" in reason
    assert "with the header of another BattleBrokers run" in reason
    assert "another run or publisher used the same broker and topics at the same time" in reason


def test_messages_without_our_header_are_another_publishers(make_run):
    made = make_run().healthy()
    made.ledger(fleet="", device=-1, unexpected=50, foreign=50)
    (reason,) = summary_of(made).reasons
    assert "BattleBrokers" not in reason
    assert "another publisher used the same broker" in reason


def test_a_few_are_noted_and_let_pass(make_run):
    made = make_run().healthy()
    made.ledger(fleet="", device=-1, unexpected=10, foreign=10)
    summary = summary_of(made)
    assert (summary.verdict, foreign_check(summary).level) == ("PASS", "note")


def test_our_own_messages_at_those_who_did_not_ask_are_the_brokers_fault(make_run):
    made = make_run().healthy()
    made.ledger(expected=0, unexpected=50)
    summary = summary_of(made)
    assert (summary.verdict, foreign_check(summary).level) == ("FAIL", "ok")
    assert "50 messages of this run arrived where nobody had asked for them" in summary.reasons[0]


@pytest.mark.parametrize("foreign", [0, 50])
def test_who_expects_something_of_unexpected_decides(make_run, foreign):
    made = make_run(expect=["unexpected < 100"]).healthy()
    made.ledger(fleet="", device=-1, unexpected=50, foreign=foreign)
    assert summary_of(made).verdict == "PASS"


def test_a_single_message_on_a_wrong_topic_is_the_brokers_fault(make_run):
    made = make_run().healthy()
    made.ledger(expected=0, wrong_topic=1)
    conclusion = draw_conclusion(made.write())
    summary = conclusion.summary
    assert summary.verdict == "FAIL"
    assert (summary.messages.wrong_topic, sum(group.wrong_topic for group in summary.groups)) == (1, 1)
    assert "messages arrive on the topic they were published on; 1 on a wrong topic" in summary.reasons[0]
    (finding,) = [finding for finding in conclusion.findings if finding.id == "wrong_topic"]
    assert (finding.severity, finding.evidence[0].value) == ("critical", 1)


def test_who_expects_something_of_wrong_topic_decides(make_run):
    made = make_run(expect=["wrong_topic < 5"]).healthy()
    made.ledger(expected=0, wrong_topic=3)
    assert summary_of(made).verdict == "PASS"


def test_a_flood_that_was_not_recorded_whole_voids_a_run_and_is_counted(make_run):
    counters = {"received": 5_000_000, "arrivals_not_recorded": 4_000_000, "oversized": 2}
    conclusion = draw_conclusion(make_run(counters=counters).healthy().write())
    summary = conclusion.summary
    (check,) = [check for check in summary.trust.checks if check.id == "flood"]
    assert (summary.verdict, check.level, check.measured) == ("VOID", "void", 4_000_000)
    assert "5 000 000 messages" in check.sentence.replace("\u202f", " ").replace("\u00a0", " ")
    assert summary.messages.unrecorded == 4_000_000
    assert summary.messages.wrong_arrivals == {"oversized": 2}
    assert {"arrivals_not_recorded", "oversized"} <= {finding.id for finding in conclusion.findings}


def test_who_records_everything_is_told_so(make_run):
    summary = summary_of(make_run(counters={"received": 3000}).healthy())
    assert [check.level for check in summary.trust.checks if check.id == "flood"] == ["ok"]
    assert summary.messages.unrecorded == 0
