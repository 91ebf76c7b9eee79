from __future__ import annotations

import math

import pytest

from battlebrokers.analysis.summary import build_summary
from battlebrokers.analysis.verdict import exit_code
from battlebrokers.errors import ExitCode
from battlebrokers.tables.operations import OPERATIONS
from battlebrokers.units import format_count


def judged(summary, text):
    return next(one for one in summary.expectations if one.text == text)


def lossy(make_run, *, qos=1, lost=10, duplicates=0, **values):
    n = 3000
    run = make_run(**values).healthy(0)
    at = [5 + i % 30 for i in range(n)]
    for kind in ("response", "service"):
        run.latency(kind, [2.0] * (n - lost) + [math.inf] * lost, second=at, qos=qos)
    run.latency("lag", [0.05] * n, second=at, qos=qos)
    kept = not (qos and lost) and not (qos == 2 and duplicates)
    run.ledger(expected=n, delivered=n - lost, lost=lost, qos=qos, duplicates=duplicates, promise_kept=kept)
    run.publishing(planned=n, sent=n, acked=n if qos else 0, qos=qos)
    return run


def test_a_failed_expectation_fails_with_its_measured_value(make_run):
    summary = build_summary(make_run(expect=["delivery_p99 < 1ms", "lost == 0"]).healthy(ms=2.0).write())
    assert summary.verdict == "FAIL"
    assert len(summary.reasons) == 1
    assert summary.reasons[0].startswith("delivery_p99 < 1ms does not hold: 2.")
    assert judged(summary, "lost == 0").ok is True
    assert judged(summary, "lost == 0").measured == "0 of 3 000"
    assert exit_code(summary) == ExitCode.EXPECTATION_FAILED


@pytest.mark.parametrize(("limit", "verdict"), [("1ms", "FAIL"), ("5ms", "VOID"), ("9ms", "VOID"), ("20ms", "PASS")])
def test_a_latency_our_own_ticks_would_decide_is_not_judged(make_run, limit, verdict):
    text = f"delivery_p99 < {limit}"
    summary = build_summary(make_run(expect=[text], tick_ns=4_000_000).healthy(ms=10.0).write())
    assert summary.verdict == verdict
    if verdict == "VOID":
        assert "up to 8 ms of it our own ticks" in summary.reasons[0]


def test_no_expectations_means_the_qos_promises(make_run):
    summary = build_summary(lossy(make_run).write())
    assert summary.verdict == "FAIL"
    assert "QoS 1: nothing acknowledged is lost" in summary.reasons[0]
    assert "10 of 3 000 lost (air → app)" in summary.reasons[0]


def test_qos_0_promises_nothing(make_run):
    summary = build_summary(lossy(make_run, qos=0).write())
    assert (summary.verdict, summary.expectations) == ("PASS", [])
    assert exit_code(summary) == ExitCode.PASS


def test_qos_2_duplicates_break_the_promise(make_run):
    summary = build_summary(lossy(make_run, qos=2, lost=0, duplicates=3).write())
    assert summary.verdict == "FAIL"
    assert "3 twice" in summary.reasons[0]


def test_qos_1_duplicates_do_not(make_run):
    assert build_summary(lossy(make_run, qos=1, lost=0, duplicates=3).write()).verdict == "PASS"


def test_an_infinite_percentile_fails_every_upper_limit(make_run):
    summary = build_summary(lossy(make_run, qos=0, lost=300, expect=["delivery_p99 < 1h"]).write())
    assert summary.verdict == "FAIL"
    assert summary.reasons == ["delivery_p99 < 1h does not hold: ∞ (10 % never arrived)"]
    assert judged(summary, "delivery_p99 < 1h").value is None


def test_shares_are_judged_against_their_base(make_run):
    expect = ["sent >= 99% of planned", "lost < 0.5%", "sent_rate >= 0.99 planned", "delivered_rate >= 99/s"]
    summary = build_summary(lossy(make_run, qos=0, expect=expect).write())
    assert [one.ok for one in summary.expectations] == [True, True, True, True]
    assert judged(summary, "lost < 0.5%").measured == "10, 0.333 % of expected"


def test_failures_of_connects_can_be_expected_away(make_run):
    run = make_run(expect=["connect_failures == 0", "subscribe_failures == 0", "connect_max < 1s"]).healthy()
    run.action("connect", outcome="timeout", n=2)
    summary = build_summary(run.write())
    assert summary.reasons == ["connect_failures == 0 does not hold: 2"]


def test_what_the_broker_held_until_the_end_fails_also_without_expectations(make_run):
    run = make_run(expect=["lost == 0", "delivered >= 99% of expected", "planned > 0"]).healthy()
    run.publishing(planned=3000, unsent=3000, backlog=2900, held_socket=3000)
    summary = build_summary(run.write())
    assert summary.verdict == "FAIL"
    assert summary.reasons == [
        (
            "a promise was broken: every publish gets through; 2 900 of 6 000 did not: "
            "2 900 held by the broker (window, socket or connection) until the load was over"
        )
    ]


@pytest.mark.parametrize(
    "text", ["sent >= 40% of planned", "unsent < 60%", "sent_rate > 1/s", "acked > 40% of planned"]
)
def test_who_says_how_much_of_the_plan_must_leave_decides_about_the_backlog(make_run, text):
    run = make_run(expect=[text]).healthy()
    run.publishing(planned=3000, unsent=3000, backlog=2900, held_socket=3000)
    assert build_summary(run.write()).verdict == "PASS"


def test_a_percentile_without_enough_samples_is_void(make_run):
    summary = build_summary(make_run(expect=["delivery_p999 < 1s"]).healthy(2000).write())
    assert summary.verdict == "VOID"
    assert f"{format_count(2000)} samples, and p99.9 needs {format_count(2995)}" in summary.reasons[0]
    assert exit_code(summary) == ExitCode.VOID


def test_something_never_measured_cannot_be_judged(make_run):
    run = make_run(expect=["last_p99 < 1s"])
    run.healthy()
    run.rows["latencies"] = [row for row in run.rows["latencies"] if row["kind"] != "last"]
    summary = build_summary(run.write())
    assert (summary.verdict, summary.reasons) == ("VOID", ["last_p99 < 1s cannot be judged: nothing was measured"])


def test_an_expectation_nobody_can_read_is_void_not_a_crash(make_run):
    summary = build_summary(make_run(expect=["speed > fast"]).healthy().write())
    assert summary.verdict == "VOID"
    assert "cannot be read" in summary.reasons[0]


def test_void_wins_over_fail_and_leaves_expectations_unjudged(make_run):
    run = lossy(make_run, expect=["lost == 0"], counters={"recorder_overflow": 1})
    summary = build_summary(run.write())
    assert summary.verdict == "VOID"
    assert [one.ok for one in summary.expectations] == [None, None]
    assert judged(summary, "lost == 0").measured == "10 of 3 000"


def test_a_dead_broker_wins_over_void(make_run):
    run = lossy(
        make_run,
        state="broker-failed",
        state_detail="mosquitto died with signal 9 after 12 s",
        counters={"recorder_overflow": 1},
    )
    summary = build_summary(run.write())
    assert summary.verdict == "FAIL"
    assert summary.reasons == ["the broker failed: mosquitto died with signal 9 after 12 s"]
    assert exit_code(summary) == ExitCode.BROKER_FAILED


def test_a_broker_that_dies_before_measuring_still_fails(make_run):
    summary = build_summary(make_run(state="broker-failed", measure_s=0, cool_down_s=0, drain_s=0).healthy(0).write())
    assert summary.verdict == "FAIL"


def test_an_interrupted_run_exits_as_interrupted(make_run):
    summary = build_summary(make_run(state="interrupted", expect=["delivery_p999 < 1s"]).healthy(100).write())
    assert summary.reasons == ["the run was interrupted"]
    assert exit_code(summary) == ExitCode.INTERRUPTED


@pytest.mark.parametrize(
    "metric", ["planned", "sent", "acked", "unsent", "refused", "retries", "expected", "delivered", "late"]
)
def test_every_count_can_be_expected(make_run, metric):
    summary = build_summary(make_run(expect=[f"{metric} >= 0"]).healthy().write())
    assert judged(summary, f"{metric} >= 0").ok is True


def test_every_metric_of_the_language_can_be_judged(make_run):
    from battlebrokers.scenario.expectations import METRICS

    limits = {m: "1h" for m in METRICS if m.rpartition("_")[2] in ("p50", "p90", "p95", "p99", "p999", "max", "mean")}
    expect = [
        f"{m} >= 0" if m not in limits and not m.endswith("_rate") else f"{m} < {limits.get(m, '1M/s')}"
        for m in METRICS
    ]
    summary = build_summary(make_run(expect=expect).healthy(3000).write())
    unread = [one for one in summary.expectations if "cannot be read" in one.measured]
    assert unread == []


def refusing(make_run, *, qos=0, **values):
    run = make_run(**{key: values.pop(key) for key in ("expect",) if key in values}).healthy()
    run.publishing(planned=96, sent=96, qos=qos, **values)
    return run


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"failed": 81}, "81 of 3 096 did not: 81 failed"),
        ({"refused": 2}, "2 of 3 096 did not: 2 refused"),
        ({"unacked": 1, "failed": 3}, "4 of 3 096 did not: 3 failed, 1 unanswered"),
    ],
)
def test_publishes_that_fail_make_a_run_fail_though_nobody_expects_anything(make_run, qos, counts, said):
    summary = build_summary(refusing(make_run, qos=qos, **counts).write())
    assert summary.verdict == "FAIL"
    assert summary.reasons == [f"a promise was broken: every publish gets through; {said}"]
    assert exit_code(summary) == ExitCode.EXPECTATION_FAILED


def test_expectations_that_do_not_speak_of_publishes_do_not_excuse_them(make_run):
    summary = build_summary(refusing(make_run, failed=81, expect=["lost == 0", "sent >= 99% of planned"]).write())
    assert [one.ok for one in summary.expectations if one.source == "scenario"] == [True, True]
    assert summary.verdict == "FAIL"


@pytest.mark.parametrize(
    ("expect", "verdict"),
    [
        ("failed <= 81", "PASS"),
        ("failed < 3%", "PASS"),
        ("failed < 2%", "FAIL"),
        ("failed == 0", "FAIL"),
        ("acked >= 90% of sent", "PASS"),
        ("refused == 0", "FAIL"),
    ],
)
def test_an_expectation_of_publishes_decides(make_run, expect, verdict):
    summary = build_summary(refusing(make_run, failed=81, expect=[expect]).write())
    assert summary.verdict == verdict
    assert ("every publish gets through" in {one.text for one in summary.expectations}) is (expect == "refused == 0")


def turned_away(make_run, *, kind="subscribe", later="refused", **values):
    """Client 0 is let in; client 1 is refused, tries again, and is told `later`."""
    run = make_run(**values).healthy()
    for node, attempt, outcome in ((0, 1, "ok"), (1, 1, "refused"), (1, 2, later)):
        run.add(
            OPERATIONS,
            worker="worker-0", role="client", node=node, kind=kind, started_ns=attempt, ended_ns=attempt + 1,
            outcome=outcome, reason=128 if outcome == "refused" else None, detail="", persistent=False, attempt=attempt,
            filter="greenhouse/#" if kind == "subscribe" else None,
        )  # fmt: skip
    return run


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("subscribe", "every subscription is granted; 1 of 2 never were (refused with 128; greenhouse/#)"),
        ("connect", "everybody gets a connection; 1 of 2 never got one (refused with 128)"),
    ],
)
def test_who_is_never_let_in_makes_a_run_fail_though_nothing_was_lost(make_run, kind, said):
    summary = build_summary(turned_away(make_run, kind=kind, expect=["lost == 0"]).write())
    assert judged(summary, "lost == 0").ok is True
    assert (summary.verdict, summary.reasons) == ("FAIL", [f"a promise was broken: {said}"])
    assert exit_code(summary) == ExitCode.EXPECTATION_FAILED


@pytest.mark.parametrize("kind", ["connect", "subscribe"])
def test_a_second_try_that_holds_is_enough(make_run, kind):
    assert build_summary(turned_away(make_run, kind=kind, later="ok").write()).verdict == "PASS"


@pytest.mark.parametrize("kind", ["connect", "subscribe"])
def test_an_expectation_of_failures_decides_who_may_be_turned_away(make_run, kind):
    accepting = turned_away(make_run, kind=kind, expect=[f"{kind}_failures <= 2"])
    assert build_summary(accepting.write()).verdict == "PASS"
