from __future__ import annotations

import numpy as np
import pytest

from battlebrokers import tables
from battlebrokers.analysis.latency import needed_samples
from battlebrokers.analysis.summary import build_summary


def level(summary, check_id):
    return next(check.level for check in summary.trust.checks if check.id == check_id)


def seconds(run, n):
    return run.warm_up_s + np.arange(n) % run.measure_s


def lagging(make_run, lag_ms, *, share=0.05, n=3000, service_ms=2.0, tick_ns=0):
    """A run in which a share of the sends was late; response = service + lag."""
    run = make_run(tick_ns=tick_ns).healthy(0)
    lags = np.where(np.arange(n) % round(1 / share) == 0, lag_ms, 0.05)
    run.latency("lag", lags, second=seconds(run, n))
    run.latency("service", np.full(n, service_ms), second=seconds(run, n))
    run.latency("response", service_ms + lags, second=seconds(run, n))
    run.ledger(expected=n, delivered=n)
    run.publishing(planned=n, sent=n, acked=n)
    return build_summary(run.write())


def test_a_late_generator_voids_the_run(make_run):
    summary = lagging(make_run, 30.0)
    assert summary.verdict == "VOID"
    assert level(summary, "generator-late") == "void"
    assert summary.trust.late_share == pytest.approx(0.05, abs=0.001)
    assert "5 % of the sends" in summary.reasons[0]
    assert "30 ms" in summary.reasons[0]


@pytest.mark.parametrize(("thread", "blames_machine"), [(12.0, True), (80.0, False)])
def test_lateness_says_what_was_seen_in_peoples_numbers(make_run, thread, blames_machine):
    run = make_run().healthy(0)
    run.rows[tables.SERVICES.name] = []
    run.service("worker-0", "generator", thread)
    lags = np.where(np.arange(3000) % 20 == 0, 3580.0, 0.05)
    for kind, values in (("lag", lags), ("service", np.full(3000, 2.0)), ("response", 2.0 + lags)):
        run.latency(kind, values, second=seconds(run, 3000))
    run.ledger(expected=3000, delivered=3000)
    run.publishing(planned=3000, sent=3000, acked=3000)
    check = next(one for one in build_summary(run.write()).trust.checks if one.id == "generator-late")
    assert "left more than 1 ms after their planned time (limit 1 %); that moved p99 by 3.5" in check.sentence
    assert "e+" not in check.sentence
    assert f"busiest thread used {thread:.0f} % of a core" in check.sentence
    assert ("this machine woke it late" in check.sentence) is blames_machine


def test_lateness_that_does_not_move_the_p99_is_a_warning(make_run):
    summary = lagging(make_run, 1.8)
    assert level(summary, "generator-late") == "warning"
    assert summary.verdict == "PASS"


@pytest.mark.parametrize(("lag_ms", "verdict"), [(1.8, "FAIL"), (30.0, "VOID")])
def test_lateness_is_no_excuse_for_a_broker_whose_p99_is_infinite(make_run, lag_ms, verdict):
    run = make_run().healthy(0)
    lags = np.where(np.arange(3000) % 20 == 0, lag_ms, 0.05)
    for kind, values in (("lag", lags), ("service", np.full(3000, 2.0)), ("response", 2.0 + lags)):
        run.latency(kind, values, second=seconds(run, 3000))
    run.latency("response", np.full(3000, np.inf), second=seconds(run, 3000))
    run.ledger(expected=3000, delivered=3000)
    run.publishing(planned=6000, sent=3000, acked=3000, unsent=3000, backlog=3000, held_window=3000)
    assert build_summary(run.write()).verdict == verdict


def test_one_late_send_in_a_thousand_is_fine(make_run):
    assert level(lagging(make_run, 500.0, share=0.001), "generator-late") == "ok"


def test_lateness_of_a_tenth_of_a_slow_response_is_fine(make_run):
    assert level(lagging(make_run, 15.0, service_ms=200.0), "generator-late") == "ok"


def test_sends_that_waited_for_the_tick_are_told_as_such_and_do_not_void(make_run):
    summary = lagging(make_run, 3.9, share=1.0, tick_ns=4_000_000)
    assert summary.verdict == "PASS"
    assert level(summary, "generator-late") == "ok"
    assert summary.trust.late_limit_ms == 6.0
    check = next(check for check in summary.trust.checks if check.id == "coarse-ticks")
    assert (check.level, check.measured) == ("warning", 4.0)
    assert "every 4 ms" in check.sentence
    assert "response is up to 8 ms too long" in check.sentence
    assert "more processes" in check.sentence


def test_a_qos_that_was_lowered_is_told_as_a_warning(make_run):
    assert level(build_summary(make_run().healthy().write()), "lowered-qos") == "ok"
    run = make_run(contender="hub", settings={"lowered_qos": {"air": "0 instead of 1"}}).healthy()
    summary = build_summary(run.write())
    assert summary.verdict == "PASS"
    check = next(check for check in summary.trust.checks if check.id == "lowered-qos")
    assert (check.level, check.sentence.split(":")[0]) == ("warning", "air had QoS 0 instead of 1")


def test_the_same_lateness_without_a_tick_voids(make_run):
    summary = lagging(make_run, 3.9, share=1.0)
    assert level(summary, "generator-late") == "void"
    assert level(summary, "coarse-ticks") == "ok"


def test_sends_later_than_the_tick_explains_void_all_the_same(make_run):
    assert level(lagging(make_run, 9.0, tick_ns=4_000_000), "generator-late") == "void"


def test_messages_held_by_the_broker_never_void(make_run):
    run = make_run(expect=["sent >= 80% of planned"]).healthy(3000)
    run.publishing(planned=600, sent=0, unsent=600, backlog=600, held_socket=600)
    run.latency("held", [5000.0] * 600)
    summary = build_summary(run.write())
    assert summary.verdict == "PASS"
    assert level(summary, "generator-short") == "note"


def test_messages_that_were_held_and_then_sent_do_not_excuse_our_own_shortfall(make_run):
    run = make_run().healthy(3000)
    run.publishing(planned=1200, sent=600, acked=600, unsent=600, shortfall=600, held_window=600)
    summary = build_summary(run.write())
    assert summary.verdict == "VOID"
    assert "600 were held by nobody" in summary.reasons[0]


def test_a_planned_absence_until_the_end_is_nobodys_fault(make_run):
    run = make_run().healthy(3000)
    run.publishing(planned=600, sent=0, unsent=600, held_offline=600)
    summary = build_summary(run.write())
    assert (summary.verdict, level(summary, "generator-short")) == ("PASS", "note")


def test_a_generator_that_sends_too_little_voids(make_run):
    run = make_run().healthy(3000)
    run.publishing(planned=600, sent=0, unsent=600, shortfall=600)
    summary = build_summary(run.write())
    assert summary.verdict == "VOID"
    assert "83.3 % of the planned" in summary.reasons[0]


def test_connects_that_waited_for_others_are_told(make_run):
    summary = build_summary(make_run(counters={"connects_held": 1200}).healthy().write())
    assert (summary.verdict, level(summary, "connects-held")) == ("PASS", "note")
    (check,) = [check for check in summary.trust.checks if check.id == "connects-held"]
    assert check.sentence.startswith("1 200 connects had to wait")


def test_a_full_generator_core_voids(make_run):
    run = make_run().healthy()
    run.service("worker-2", "generator", 97.0)
    summary = build_summary(run.write())
    assert summary.verdict == "VOID"
    assert summary.reasons == [
        "the generator's busiest thread used 97 % of a core (limit 90 %): it may have been the limit"
    ]


def test_a_full_broker_core_is_not_our_problem(make_run):
    run = make_run().healthy()
    run.service("kernel", "contender", 100.0)
    assert build_summary(run.write()).verdict == "PASS"


def test_recorder_overflow_voids(make_run):
    summary = build_summary(make_run(counters={"recorder_overflow": 12}).healthy().write())
    assert (summary.verdict, summary.trust.recorder_overflow) == ("VOID", 12)


def test_a_recorder_that_could_not_write_voids_also_when_nothing_was_counted(make_run):
    failure = "acks could not be written: [Errno 28] No space left on device"
    summary = build_summary(make_run(settings={"recorder_failure": failure}).healthy().write())
    assert summary.verdict == "VOID"
    assert summary.reasons == [f"the recorder could not write everything: {failure}"]


@pytest.mark.parametrize(
    ("file", "verdict"), [("recorded/deliveries/w1-3.parquet", "VOID"), ("recorded/resources/r1.parquet", "PASS")]
)
def test_damaged_evidence_voids_unless_it_is_only_resources(make_run, file, verdict):
    run = make_run().healthy()
    run.defects.append({"file": file, "reason": "cut short"})
    assert build_summary(run.write()).verdict == verdict


def test_what_could_not_be_read_beside_the_evidence_is_named(make_run):
    run = make_run().healthy()
    run.defects.append({"file": "recorded/captures", "reason": "cut short"})
    said = next(check.sentence for check in build_summary(run.write()).trust.checks if check.id == "evidence-damaged")
    assert said == "could not be read, beside the evidence: recorded/captures"


def test_an_unreadable_list_of_defects_is_itself_a_defect(make_run):
    folder = make_run().healthy().write()
    (folder.path / "measures" / "defects.json").write_text("{oops")
    summary = build_summary(folder)
    assert level(summary, "evidence-damaged") == "warning"


@pytest.mark.parametrize("state", ["interrupted", "running", "failed"])
def test_an_unfinished_run_is_void(make_run, state):
    summary = build_summary(make_run(state=state).healthy().write())
    assert summary.verdict == "VOID"
    assert summary.trust.checks[0].level == "void"


def test_a_run_that_never_measured_is_void(make_run):
    summary = build_summary(make_run(measure_s=0).healthy(0).write())
    assert summary.verdict == "VOID"
    assert "never reached its measure phase" in summary.reasons[0]


def test_fewer_than_thirty_samples_are_void(make_run):
    assert build_summary(make_run().healthy(29).write()).verdict == "VOID"


def growing(make_run, **values):
    run = make_run(**values).healthy(0)
    n = 3000
    at = seconds(run, n)
    latency = 5.0 * (1 + at - run.warm_up_s)
    for kind in ("response", "service"):
        run.latency(kind, latency, second=at)
    run.latency("lag", np.full(n, 0.05), second=at)
    run.ledger(expected=n, delivered=n)
    run.publishing(planned=n, sent=n, acked=n)
    return build_summary(run.write())


def test_a_growing_queue_is_unsteady_and_void(make_run):
    summary = growing(make_run)
    assert summary.trust.steady is False
    assert summary.verdict == "VOID"
    assert "never settled" in summary.reasons[0]


def test_latency_that_moves_by_plan_is_only_noted(make_run):
    summary = growing(make_run, resolved={"clients": {"app": {"away": {"at": "5s", "for": "3s"}}}})
    assert level(summary, "unsteady") == "note"
    assert summary.verdict == "PASS"


def test_a_short_window_is_noted_not_voided(make_run):
    summary = growing(make_run, measure_s=10)
    assert summary.trust.steady is None
    assert summary.verdict == "PASS"


def test_steal_is_a_warning(make_run):
    run = make_run().healthy()
    run.service("host", "host", 50.0, steal_max_percent=7.5)
    summary = build_summary(run.write())
    assert level(summary, "steal") == "warning"
    assert (summary.verdict, summary.trust.steal_percent) == ("PASS", 7.5)


def test_a_machine_busy_with_other_things_is_a_warning(make_run):
    run = make_run(host={"cpu_cores": 2}).healthy()
    run.service("host", "host", 50.0, cpu_mean_percent=190.0)
    run.rows["services"] = [row for row in run.rows["services"] if row["cpu_mean_percent"] != 50.0]
    summary = build_summary(run.write())
    check = next(check for check in summary.trust.checks if check.id == "other-load")
    assert (check.level, check.measured) == ("warning", 0.6)
    assert "others used 60 % of this machine's 2 cores" in check.sentence


def test_clocks_further_apart_than_the_latency_void(make_run):
    run = make_run(workers=2).healthy(ms=2.0)
    for worker in ("w0", "w1"):
        run.add(tables.CLOCKS, worker=worker, same_clock=False, t1_ns=0, t2_ns=0, t3_ns=0, t4_ns=9_000_000)
    summary = build_summary(run.write())
    assert summary.trust.clock_error_us == 9000
    assert summary.verdict == "VOID"


def test_needed_samples_grow_with_the_percentile():
    assert [needed_samples(p) for p in ("p50", "p90", "p95", "p99", "p999")] == [5, 29, 59, 299, 2995]
