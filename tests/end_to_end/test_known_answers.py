"""A proxy hits known messages; the ledger must name exactly those, for every QoS."""

from __future__ import annotations

from statistics import quantiles
from typing import Any

import pyarrow.parquet as pq
import pytest

from battlebrokers.analysis.conclusion import draw_conclusion
from battlebrokers.analysis.summary import build_summary
from battlebrokers.contenders.broker_url import parse_broker_url
from battlebrokers.report.terminal import run_lines
from battlebrokers.tables import JOURNEYS
from battlebrokers.tables.run_folder import RunFolder
from support.mqtt_proxy import Done, Faults, MqttProxy
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

EVERY_QOS = """
name: every-qos
seed: 3
defaults: {payload: {random_bytes: 64}, every: 100/s}
fleets:
  zero: {devices: 1, topic: known/zero, qos: 0}
  one: {devices: 1, topic: known/one, qos: 1}
  two: {devices: 1, topic: known/two, qos: 2}
clients:
  hears-zero: {count: 1, subscribe: [known/zero], qos: 2}
  hears-one: {count: 1, subscribe: [known/one], qos: 2}
  hears-two: {count: 1, subscribe: [known/two], qos: 2}
  beside: {count: 1, subscribe: [known/#], qos: 2}
phases: {measure: 3s, drain: 5s, quiet: 1s}
"""


def port_of(contender) -> int:
    return parse_broker_url(contender.endpoints["tcp"]).port


def measured(tmp_path, analyst, contender, faults: Faults, text: str) -> tuple[RunFolder, Done]:
    scenario = write_scenario(tmp_path, text)
    with MqttProxy(port_of(contender), faults) as proxy:
        folder = run_for_real(scenario, f"mqtt://127.0.0.1:{proxy.port}", tmp_path / "runs")
        done = proxy.done
    analyst.analyze(str(folder.path))
    return folder, done


def journeys(folder: RunFolder) -> list[dict[str, Any]]:
    return pq.read_table(folder.table(JOURNEYS)).sort_by("seq").to_pylist()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_ledger_names_exactly_the_messages_that_were_hit(tmp_path, analyst, mosquitto, qos):
    faults = Faults(
        drop=frozenset({10, 50, 51, 300}),
        duplicate=frozenset({20, 60, 400}),
        duplicate_flagged=frozenset({30, 31}),
        swap_with_next=frozenset({100, 200}),
        astray=frozenset({500, 501, 550}),
        astray_to=b"known/else",
    )
    folder, done = measured(tmp_path, analyst, mosquitto, faults, SCENARIO.format(qos=qos, size=64))
    assert sorted(done.dropped) == [10, 50, 51, 300]
    assert sorted(done.duplicated) == [20, 30, 31, 60, 400]
    assert sorted(done.swapped) == [100, 200]
    assert sorted(done.astray) == [500, 501, 550]
    told = journeys(folder)
    assert [row["seq"] for row in told if row["outcome"] == "lost"] == [10, 50, 51, 300, 500, 501, 550]
    wrong = [(row["seq"], row["topic"]) for row in told if row["outcome"] == "wrong_topic"]
    assert wrong == [(seq, "known/else") for seq in (500, 501, 550)]
    copies = {row["seq"]: row["duplicates"] for row in told if row["duplicates"]}
    assert copies == {20: 1, 30: 1, 31: 1, 60: 1, 400: 1}
    assert [row["seq"] for row in told if row["duplicates_flagged"]] == ([30, 31] if qos else [])
    assert [row["seq"] for row in told if row["reordered"]] == [100, 200]
    summary = build_summary(folder)
    messages = summary.messages
    assert messages.planned == messages.sent == messages.expected == 600
    assert messages.lost == 7
    assert messages.delivered == 593
    assert messages.wrong_topic == 3
    assert any("3 on a wrong topic" in reason for reason in summary.reasons) or summary.verdict == "VOID"
    (ledger,) = [line.plain for line in run_lines(draw_conclusion(folder)) if "LEDGER" in line.plain]
    assert "wrong topic 3" in ledger
    assert messages.duplicates == 5
    assert messages.duplicates_flagged == (2 if qos else 0)
    assert messages.reordered == 2
    assert messages.indeterminate == 0
    assert messages.unexpected == 0
    assert messages.acked == (600 if qos else 0)


def test_a_clean_path_has_a_clean_ledger(tmp_path, analyst, mosquitto):
    folder, _ = measured(tmp_path, analyst, mosquitto, Faults(), SCENARIO.format(qos=2, size=64))
    messages = build_summary(folder).messages
    assert (messages.expected, messages.delivered, messages.lost, messages.duplicates) == (600, 600, 0, 0)
    assert (messages.reordered, messages.unexpected, messages.indeterminate) == (0, 0, 0)


@pytest.mark.alone
def test_a_delay_of_20_ms_shows_as_20_ms_with_its_jitter_for_every_qos(tmp_path, analyst, mosquitto):
    faults = Faults(delay_s=0.020, jitter_s=0.004, spare=b"known/#")
    folder, done = measured(tmp_path, analyst, mosquitto, faults, EVERY_QOS)
    told = journeys(folder)
    # The same messages also reach a client without the delay: what this machine does to both goes away.
    plain = {(row["device"], row["seq"]): row for row in told if row["client_fleet"] == "beside"}
    delayed = {(row["device"], row["seq"]): row for row in told if row["client_fleet"] != "beside"}
    assert plain.keys() == delayed.keys() == done.delays_s.keys()
    for group in build_summary(folder).groups:
        if group.client_fleet == "beside":
            continue
        mine = [message for message, row in delayed.items() if row["fleet"] == group.fleet]
        assert len(mine) == 300
        injected = quantiles([1000 * done.delays_s[one] for one in mine], n=4)
        assert 19 < injected[1] < 25
        # Jitter of ±4 ms on messages 10 ms apart, so that none waits for another: half of them within ±2 ms.
        assert injected[2] - injected[0] > 3
        added = quantiles([(delayed[one]["received_ns"] - plain[one]["received_ns"]) / 1e6 for one in mine], n=4)
        assert added == pytest.approx(injected, abs=1.0), f"QoS {group.qos}"
        response_ms = sorted((delayed[one]["received_ns"] - delayed[one]["planned_ns"]) / 1e6 for one in mine)
        # The message that is stated is the one in the middle, not what lies between two of them; buckets add 1 %.
        assert group.response.p50 == pytest.approx(response_ms[len(mine) // 2 - 1], rel=0.0101), f"QoS {group.qos}"
    assert {group.qos for group in build_summary(folder).groups} == {0, 1, 2}


def test_payloads_too_small_for_the_header_are_matched_by_order_and_said_so(tmp_path, analyst, mosquitto):
    folder, _ = measured(tmp_path, analyst, mosquitto, Faults(), SCENARIO.format(qos=1, size=8))
    conclusion = draw_conclusion(folder)
    messages = conclusion.summary.messages
    assert (messages.expected, messages.delivered, messages.lost) == (600, 600, 0)
    assert conclusion.summary.publishing.unstamped == messages.by_order == 600
    (ledger,) = [line.plain for line in run_lines(conclusion) if "LEDGER" in line.plain]
    assert "matched by topic and order 600" in ledger
