"""Whole runs over every link, several protocols at once: planned = sent = delivered, nothing lost, a report at the end.

Each run is judged and told as `bb run` does it; only Spark is shared among them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from battlebrokers.analysis.conclusion import conclude
from battlebrokers.analysis.verdict import exit_code
from battlebrokers.errors import ExitCode, UsageError
from battlebrokers.record.capture_tool import Limits
from battlebrokers.report.html import write_report
from support.middleware.described import described
from support.middleware.process import contract_server
from support.runs import run_for_real, write_scenario

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

RABBITMQ = """
name: three-ways-into-rabbitmq
defaults: {payload: {random_bytes: 20..2000}, every: 20/s, qos: 1}
fleets:
  confirmed: {devices: 2, protocol: amqp, topic: "three/{device}/air"}
  plain: {devices: 2, topic: "three/{device}/air"}
  web: {devices: 2, transport: ws, topic: "three/{device}/air"}
clients:
  queues: {count: 2, protocol: amqp, subscribe: "three/#"}
  listeners: {count: 1, subscribe: "three/+/air"}
phases: {measure: 2s, drain: 10s, quiet: 500ms}
"""
PONTE = """
name: two-ways-into-ponte
defaults: {payload: {random_bytes: 20..1000}, every: 10/s}
fleets:
  small: {devices: 3, protocol: coap, topic: "two/{device}/air"}
  web: {devices: 3, protocol: http, topic: "two/{device}/air"}
clients:
  listeners: {count: 2, protocol: mqtt, subscribe: "two/#", qos: 1}
phases: {measure: 2s, drain: 10s, quiet: 500ms}
"""
ACME = """
name: notified-by-acme
defaults: {payload: {random_bytes: 20..200}, every: 4/s}
fleets:
  web: {devices: 2, protocol: http, topic: "told/{device}"}
  small: {devices: 1, protocol: coap, topic: "told/{device}"}
clients:
  called: {count: 2, protocol: http, subscribe: "told/#"}
phases: {measure: 2s, drain: 10s, quiet: 500ms}
"""
DEVICEHIVE = """
name: pushed-by-devicehive
protocol: websocket
fleets:
  web: {devices: 3, topic: "hive/{device}", payload: {random_bytes: 20..200}, every: 10/s}
clients:
  pushed: {count: 2, subscribe: "hive/#"}
phases: {measure: 2s, drain: 10s, quiet: 500ms}
"""


def adds_up(folder, analyst, *, sent: int, listeners: int) -> None:
    """Every message is in the ledger as delivered to everybody, and the report is there."""
    manifest = folder.read_manifest()
    assert manifest.state == "finished", manifest.state_detail
    analyst.analyze(str(folder.path))
    conclusion = conclude(folder)
    messages = conclusion.summary.messages
    assert (messages.planned, messages.sent, messages.acked) == (sent, sent, sent)
    assert (messages.expected, messages.delivered) == (sent * listeners, sent * listeners)
    assert (messages.lost, messages.duplicates, messages.failures) == (0, 0, {})
    # On a machine that is busy otherwise the generator may have been late; that says nothing of the link.
    assert exit_code(conclusion.summary) in (ExitCode.PASS, ExitCode.VOID), conclusion.summary.reasons
    write_report([folder], folder.report_path)
    assert manifest.scenario.name in folder.report_path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("broker", "scenario", "sent", "listeners"),
    [("rabbitmq", RABBITMQ, 240, 3), ("ponte", PONTE, 120, 2), ("acme-onem2m", ACME, 24, 2)],
    ids=["rabbitmq", "ponte", "acme"],
)
def test_several_protocols_at_once_lose_nothing(
    tmp_path: Path, analyst, require_broker, broker: str, scenario: str, sent: int, listeners: int
) -> None:
    require_broker(broker)
    folder = run_for_real(write_scenario(tmp_path, scenario), broker, tmp_path / "runs")
    adds_up(folder, analyst, sent=sent, listeners=listeners)


def test_our_own_overhead_is_measured_in_memory_by_any_scenario(tmp_path: Path, analyst) -> None:
    scenario = "one-to-one"
    phases = {"warm_up": "200ms", "measure": "1s", "cool_down": "0s", "quiet": "200ms"}
    overrides = [f"phases.{name}={value}" for name, value in phases.items()]
    folder = run_for_real(scenario, "loopback://", tmp_path / "runs", overrides=overrides)
    manifest = folder.read_manifest()
    assert (manifest.contender.name, manifest.contender.endpoints) == ("loopback", {"loopback": "loopback://"})
    assert manifest.settings["processes"] == 1
    adds_up(folder, analyst, sent=500, listeners=1)


def test_what_has_no_wire_cannot_be_captured(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no wire to capture"):
        run_for_real("one-to-one", "loopback://", tmp_path / "runs", capture=Limits())


def test_json_over_websocket_loses_nothing(tmp_path: Path, analyst) -> None:
    with contract_server("devicehive") as ports:
        spec = described("devicehive", ports, tmp_path)
        folder = run_for_real(write_scenario(tmp_path, DEVICEHIVE), str(spec), tmp_path / "runs")
    adds_up(folder, analyst, sent=60, listeners=2)
