from __future__ import annotations

import io
import math

import numpy as np
from rich.console import Console

from battlebrokers.analysis.conclusion import draw_conclusion
from battlebrokers.report.terminal import print_run, run_lines


def told(run):
    return [line.plain for line in run_lines(draw_conclusion(run.write()))]


def line(lines, label):
    return next(one for one in lines if one.strip().startswith(label))


def test_the_blocks_come_in_order(make_run):
    lines = told(make_run(run="k3f9a", expect=["lost == 0"]).healthy())
    labels = [one[2:17].strip() for one in lines[1:-1] if one[2:17].strip()]
    assert labels == ["EXPECTATIONS", "TRAFFIC", "LATENCY", "LEDGER", "RESOURCES", "TRUST"]
    assert lines[0].split("    ")[0].strip() == "PASS   smart-city on mosquitto 2.1.2"
    assert "run k3f9a · 41 s · 10 devices · 2 clients · seed 7" in lines[0]
    assert lines[-1].startswith("  next: bb report k3f9a --open")
    assert lines[-1].count(" · ") == 2


def test_a_scaled_run_is_not_told_under_the_plain_name(make_run):
    lines = told(make_run(title="smart-city at scale 0.1").healthy())
    assert lines[0].split("    ")[0].strip() == "PASS   smart-city at scale 0.1 on mosquitto 2.1.2"


def test_expectations_show_mark_and_value(make_run):
    lines = told(make_run(expect=["lost == 0", "delivery_p99 < 1ms"]).healthy())
    assert any("✓ lost == 0" in one and "0 of 3 000" in one for one in lines)
    assert any("✗ delivery_p99 < 1ms" in one and "2.1" in one for one in lines)
    assert any(one.strip().startswith("because delivery_p99 < 1ms does not hold") for one in lines)


def test_latency_is_said_to_count_from_the_planned_time(make_run):
    shown = line(told(make_run().healthy()), "LATENCY")
    assert "p50 2" in shown
    assert "delivery, from planned send time; one clock" in shown


def test_infinite_percentiles_are_shown_with_those_that_arrived(make_run):
    run = make_run().healthy(0)
    run.latency("response", [2.0] * 900 + [math.inf] * 100)
    run.ledger(expected=1000, delivered=900, lost=100, qos=0)
    run.publishing(planned=1000, sent=1000, qos=0)
    lines = told(run)
    assert "p99 ∞" in line(lines, "LATENCY")
    assert any("of those that arrived: p50 2" in one for one in lines)
    assert "lost 100" in line(lines, "LEDGER")


def test_deliveries_matched_by_order_are_counted_in_the_ledger(make_run):
    run = make_run().healthy(0)
    run.ledger(expected=1000, delivered=990, lost=10, qos=0, by_order=900)
    assert line(told(run), "LEDGER").endswith("   lost 10   matched by topic and order 900")
    assert "by topic and order" not in line(told(make_run().healthy()), "LEDGER")


def test_what_to_type_next_finds_runs_that_lie_elsewhere(make_run, monkeypatch):
    run = make_run(run="k3f9a").healthy()
    assert told(run)[-1].count(f" --runs {run.path.parent}") == 3
    monkeypatch.setenv("BB_RUNS", str(run.path.parent))
    assert "--runs" not in told(run)[-1]


def test_nobody_listening_is_told(make_run):
    run = make_run()
    run.latency("lag", np.full(300, 0.05), second=6)
    run.publishing(planned=300, sent=300, acked=300)
    lines = told(run)
    assert "nobody listens" in line(lines, "LEDGER")
    assert "nothing was delivered or acknowledged" in line(lines, "LATENCY")


def test_piped_output_is_plain_and_unwrapped(make_run):
    out = io.StringIO()
    print_run(Console(file=out), draw_conclusion(make_run(expect=["lost == 0"]).healthy().write()))
    text = out.getvalue()
    assert "\x1b" not in text
    assert any(len(one) > 100 for one in text.splitlines())


def test_names_with_markup_are_printed_as_they_are(make_run):
    out = io.StringIO()
    print_run(Console(file=out), draw_conclusion(make_run(scenario="[red]x[/nope]").healthy().write()))
    assert "[red]x[/nope] on mosquitto" in out.getvalue()


def test_warnings_of_trust_are_shown(make_run):
    run = make_run().healthy()
    run.service("host", "host", 50.0, steal_max_percent=9.0)
    assert any("warning: the hypervisor took away" in one for one in told(run))


def test_many_findings_are_cut(make_run):
    run = make_run().healthy()
    for name in ("reordered", "unexpected", "late", "recovered", "retained", "indeterminate"):
        run.rows["ledger"][0][name] = 4
    assert any("… and 2 more in the report" in one for one in told(run))
