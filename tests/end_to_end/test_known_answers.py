"""A proxy hits known messages; the ledger must name exactly those, for every QoS."""

from __future__ import annotations

from statistics import median

import pytest

from battlebrokers.analysis.summary import build_summary
from battlebrokers.contenders.broker_url import parse_broker_url
from support.mqtt_proxy import Faults, MqttProxy
from support.runs import run_for_real, write_scenario

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

SCENARIO = """
name: known-answers
seed: 3
fleets:
  sensor: {{devices: 1, topic: "known/{{device}}", payload: {{random_bytes: {size}}}, every: 200/s, qos: {qos}}}
clients:
  listener: {{count: 1, subscribe: ["known/#"], qos: {qos}}}
phases: {{measure: 3s, drain: 5s, quiet: 1s}}
"""


def port_of(contender) -> int:
    return parse_broker_url(contender.endpoints["tcp"]).port


def measured(tmp_path, analyst, contender, faults: Faults, qos: int, size: int = 64):
    scenario = write_scenario(tmp_path, SCENARIO.format(qos=qos, size=size))
    with MqttProxy(port_of(contender), faults) as proxy:
        folder = run_for_real(scenario, f"mqtt://127.0.0.1:{proxy.port}", tmp_path / "runs")
        done = proxy.done
    analyst.analyze(str(folder.path))
    return build_summary(folder), done


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_ledger_names_exactly_the_messages_that_were_hit(tmp_path, analyst, mosquitto, qos):
    faults = Faults(
        drop=frozenset({10, 50, 51, 300}),
        duplicate=frozenset({20, 60, 400}),
        duplicate_flagged=frozenset({30, 31}),
        swap_with_next=frozenset({100, 200}),
    )
    summary, done = measured(tmp_path, analyst, mosquitto, faults, qos)
    assert sorted(done.dropped) == [10, 50, 51, 300]
    assert sorted(done.duplicated) == [20, 30, 31, 60, 400]
    assert sorted(done.swapped) == [100, 200]
    messages = summary.messages
    assert messages.planned == messages.sent == messages.expected == 600
    assert messages.lost == 4
    assert messages.delivered == 596
    assert messages.duplicates == 5
    assert messages.duplicates_flagged == 2
    assert messages.reordered == 2
    assert messages.indeterminate == 0
    assert messages.unexpected == 0
    assert messages.acked == (600 if qos else 0)


def test_a_clean_path_has_a_clean_ledger(tmp_path, analyst, mosquitto):
    summary, _ = measured(tmp_path, analyst, mosquitto, Faults(), 2)
    messages = summary.messages
    assert (messages.expected, messages.delivered, messages.lost, messages.duplicates) == (600, 600, 0, 0)
    assert (messages.reordered, messages.unexpected, messages.indeterminate) == (0, 0, 0)


@pytest.mark.alone
def test_a_delay_of_20_ms_shows_as_20_ms(tmp_path, analyst, mosquitto):
    plain, _ = measured(tmp_path, analyst, mosquitto, Faults(), 0)
    delayed, done = measured(tmp_path, analyst, mosquitto, Faults(delay_s=0.020, jitter_s=0.002), 0)
    injected_ms = 1000 * median(done.delays_s)
    assert 19 < injected_ms < 25
    added_ms = delayed.latency_ms.response.p50 - plain.latency_ms.response.p50
    assert added_ms == pytest.approx(injected_ms, abs=1.0)


def test_payloads_too_small_for_the_header_are_matched_by_order_and_said_so(tmp_path, analyst, mosquitto):
    summary, _ = measured(tmp_path, analyst, mosquitto, Faults(), 1, size=8)
    assert (summary.messages.expected, summary.messages.delivered, summary.messages.lost) == (600, 600, 0)
    assert summary.publishing.unstamped == 600
    assert b"order" in summary.to_json()
