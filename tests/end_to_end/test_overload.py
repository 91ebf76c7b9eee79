"""Brokers that are offered more than they deliver: slow is not lost, and a rate is what arrived in its time."""

from __future__ import annotations

from pathlib import Path

import pytest

from battlebrokers.analysis.conclusion import conclude
from support.runs import run_for_real, write_scenario
from support.slow_relay import SlowRelay

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

OFFERED_PER_S, WIRE_BYTES = 1000, 2 + 2 + len("load/00") + 64
SCENARIO = """
name: overload
fleets:
  sensor: {{devices: 10, topic: "load/0{{device}}", payload: {{random_bytes: 64}}, every: 100/s, qos: 0}}
clients:
  listener: {{count: 1, subscribe: ["load/#"]}}
phases: {{measure: 6s, drain: {drain}, quiet: 400ms}}
"""


def run_overloaded(tmp_path: Path, analyst, mosquitto, delivered_per_s: int, drain: str):
    port = int(mosquitto.endpoints["tcp"].rpartition(":")[2])
    seen = []
    with SlowRelay(port, delivered_per_s * WIRE_BYTES) as relay:
        scenario = write_scenario(tmp_path, SCENARIO.format(drain=drain))
        folder = run_for_real(scenario, f"mqtt://127.0.0.1:{relay.port}", tmp_path / "runs", watch=seen.append)
    analyst.analyze(str(folder.path))
    return conclude(folder), seen


def test_the_drain_goes_on_while_messages_arrive_and_nothing_is_lost(tmp_path, analyst, mosquitto):
    conclusion, seen = run_overloaded(tmp_path, analyst, mosquitto, delivered_per_s=600, drain="2s")
    summary = conclusion.summary
    counts = summary.messages
    drain_s = next(phase.duration_s for phase in summary.phases if phase.name == "drain")
    assert 2 < drain_s < 20, "longer than `drain`, and not to its limit: everything had come"
    assert (counts.lost, counts.overdue, counts.indeterminate) == (0, 0, 0)
    assert counts.delivered == counts.expected == counts.sent
    assert any(one.phase == "drain" and one.longest_s == 20 for one in seen), (
        "a watching user sees how long it may take"
    )
    # By plan all of it was delivered; in the time of the measure phase, only what the relay let through.
    assert summary.rates.delivered < 0.75 * summary.rates.sent
    assert summary.rates.delivered == pytest.approx(600, rel=0.15)
    found = {finding.id: finding.sentence for finding in conclusion.findings}
    assert "since second" in found["over-capacity"]
    assert "behind" not in found


def test_what_is_outstanding_when_a_drain_is_cut_off_is_overdue_and_never_lost(tmp_path, analyst, mosquitto):
    conclusion, _ = run_overloaded(tmp_path, analyst, mosquitto, delivered_per_s=300, drain="500ms")
    summary = conclusion.summary
    counts = summary.messages
    assert counts.overdue > 500
    assert (counts.lost, counts.indeterminate) == (0, 0)
    assert counts.expected == counts.delivered + counts.overdue
    assert summary.latency_ms.response.lost == counts.overdue
    assert "p99" in summary.latency_ms.response.infinite
    sentence = next(finding.sentence for finding in conclusion.findings if finding.id == "behind")
    assert "messages, about" in sentence
    assert sentence.endswith("s behind.")
    assert "loss" not in {finding.id for finding in conclusion.findings}
