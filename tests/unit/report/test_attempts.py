from __future__ import annotations

import pytest

from battlebrokers.analysis.conclusion import draw_conclusion
from battlebrokers.report.terminal import run_lines
from battlebrokers.report.view import failure_rows
from battlebrokers.tables.operations import OPERATIONS


@pytest.mark.parametrize(
    ("outcome", "reason", "said"),
    [("error", -7, "TLS"), ("timeout", -2, "timeout"), ("error", -4, "truncated"), ("error", None, "error")],
)
def test_who_is_never_let_in_is_told_why_by_kind(make_run, outcome, reason, said):
    run = make_run(counters={"malformed": 2, "unreadable": 3, "stray_acknowledgements": 1}).healthy()
    run.action("connect", outcome=outcome, n=2)
    for attempt in (1, 2):
        run.add(
            OPERATIONS,
            worker="worker-0", role="client", node=0, kind="connect", started_ns=attempt, ended_ns=attempt + 1,
            outcome=outcome, reason=reason, detail="", persistent=False, attempt=attempt,
        )  # fmt: skip
    conclusion = draw_conclusion(run.write())
    promise = next(one for one in conclusion.summary.expectations if one.text == "everybody gets a connection")
    assert promise.measured == f"1 of 1 never got one ({said})"
    assert conclusion.summary.actions["connect"].failures == {said: 2}
    assert conclusion.summary.messages.wrong_arrivals == {
        "malformed": 2, "unreadable": 3, "stray_acknowledgements": 1,
    }  # fmt: skip
    sentences = [finding.sentence for finding in conclusion.findings]
    assert f"2 of 12 connect attempts failed ({said} 2)." in sentences
    assert "3 notifications were not as the contender's file says." in sentences
    assert "1 acknowledgements of the broker named no message or request of ours." in sentences
    told = "\n".join(line.plain for line in run_lines(conclusion))
    assert f"connect without success: {said} 2" in told
    assert "arrivals that are no messages: malformed 2   unreadable 3   stray_acknowledgements 1" in told
    rows = failure_rows(conclusion)
    assert ("client app", f"connect: {said}", 2) in rows
    assert rows[0][1:] == ("notifications that cannot be read", 3)
