"""Runs that have nothing to send: judged by their connects, subscriptions and what became of them."""

from __future__ import annotations

import pytest

from battlebrokers.analysis.conclusion import draw_conclusion
from battlebrokers.report.sentences import outcome
from battlebrokers.report.terminal import run_lines
from battlebrokers.report.view import tiles

IDLE = {"clients": {"idle": {"count": 5000}}, "fleets": {}}


def idle(make_run, connects: int = 5000, **values):
    made = make_run(resolved=IDLE, **values)
    made.service("broker", "contender", 5.0)
    made.service("worker-1", "generator", 5.0)
    made.service("host", "host", 10.0)
    if connects:
        made.action("connect", role="client", fleet="idle", n=connects)
    made.nodes("client", "idle", 10, worker="w1")
    return made


def summary_of(made):
    return draw_conclusion(made.write()).summary


def test_idle_connections_none_of_which_failed_pass(make_run):
    summary = summary_of(idle(make_run, expect=["connect_failures == 0", "connect_p99 < 1s"]))
    assert (summary.verdict, summary.reasons) == ("PASS", [])
    assert summary.trust.samples == 5000


def test_a_few_connections_are_enough_to_count_failures(make_run):
    assert summary_of(idle(make_run, connects=5, expect=["connect_failures == 0"])).verdict == "PASS"


def test_failed_connects_fail(make_run):
    made = idle(make_run, expect=["connect_failures == 0"])
    made.action("connect", role="client", fleet="idle", outcome="timeout", n=3)
    assert summary_of(made).verdict == "FAIL"


def test_connections_that_break_while_they_are_held_fail(make_run):
    made = idle(make_run, expect=["connect_failures == 0"])
    made.action("lost", role="client", fleet="idle", outcome="error", n=7)
    summary = summary_of(made)
    assert summary.verdict == "FAIL"
    assert "every connection is held to the end; 7 broke, of 5 000 connects" in summary.reasons[0]


def test_no_connect_at_all_says_nothing(make_run):
    summary = summary_of(idle(make_run, connects=0))
    assert (summary.verdict, summary.reasons) == ("VOID", ["0 connects measured; nothing was to be sent"])


@pytest.mark.parametrize("planned", [0, 5])
def test_a_scenario_that_speaks_is_not_judged_by_its_connects(make_run, planned):
    made = make_run(resolved={"fleets": {"air": {"every": "1h"}}})
    made.action("connect", n=5000)
    if planned:
        made.publishing(planned=planned, sent=planned)
    summary = summary_of(made)
    assert summary.verdict == "VOID"
    assert f"{planned} sends measured; fewer than 30 say nothing" in summary.reasons


def test_the_report_tells_connects(make_run):
    conclusion = draw_conclusion(idle(make_run).write())
    assert outcome(conclusion.summary).startswith("answered 5 000 of 5 000 connects, 99 of 100 within")
    text = "\n".join(line.plain for line in run_lines(conclusion))
    assert "connects 5 000   failed 0   broken 0   nothing was to be sent" in text
    assert "nothing was delivered or acknowledged" not in text
    shown = {tile.label: tile.value for tile in tiles(conclusion.summary)}
    assert (shown["connected"], shown["broken"]) == ("5 000", "0")
