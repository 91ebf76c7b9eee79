"""A run whose clients were owed nothing, or whose expectation could not fail, does not pass without saying so."""

from __future__ import annotations

import pytest

from battlebrokers.analysis.conclusion import draw_conclusion
from battlebrokers.report.export import to_junit, to_markdown
from battlebrokers.report.terminal import run_lines
from battlebrokers.tables import OPERATIONS


def told(run):
    conclusion = draw_conclusion(run.write())
    return conclusion.summary, {finding.id: finding.sentence for finding in conclusion.findings}, conclusion


def subscribe(run, node):
    run.add(
        OPERATIONS,
        worker="w", role="client", node=node, kind="subscribe", started_ns=0, ended_ns=10, outcome="ok", reason=0,
        detail="", filter="hose/#", share=None, asked_qos=0, granted_qos=0, session_present=None, persistent=False,
        attempt=1,
    )  # fmt: skip
    return run


def test_clients_that_were_owed_nothing_are_told_everywhere(make_run):
    run = subscribe(subscribe(make_run().healthy(), 0), 1)  # the ledger owes client 0 all
    summary, findings, conclusion = told(run)
    assert summary.verdict == "PASS"
    assert findings["unheard-clients"].startswith("1 of 2 clients that subscribed was owed nothing (app; for example")
    assert any("warning: 1 of 2 clients" in line.plain for line in run_lines(conclusion))
    assert "owed nothing" in to_markdown([conclusion])
    assert b"owed nothing" in to_junit([conclusion])


def test_clients_that_were_owed_something_are_not(make_run):
    assert "unheard-clients" not in told(subscribe(make_run().healthy(), 0))[1]


@pytest.mark.parametrize("text", ["lost >= 0", "wills == 0", "sent <= 100% of planned"])
def test_an_expectation_that_can_never_fail_is_told(make_run, text):
    summary, findings, _ = told(make_run(expect=[text]).healthy())
    assert summary.verdict == "PASS"
    assert findings["vacuous-expectations"] == f"The expectation {text} can never fail, and shows nothing."


@pytest.mark.parametrize("text", ["lost == 0", "duplicates == 0", "unacked == 0", "retries == 0"])
def test_where_nothing_could_happen_that_it_did_not_is_no_pass(make_run, text):
    run = make_run(expect=[text]).healthy(0)
    run.publishing(planned=1000, sent=1000, qos=0)
    summary, _, _ = told(run)
    assert summary.verdict == "VOID"
    assert summary.reasons[0].startswith(f"{text} cannot be judged: no ")
