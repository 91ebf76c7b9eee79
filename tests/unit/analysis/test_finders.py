from __future__ import annotations

import json
import math

import msgspec
import numpy as np
import pytest

from battlebrokers import tables
from battlebrokers.analysis.conclusion import conclude, draw_conclusion
from battlebrokers.analysis.findings import Finding
from battlebrokers.analysis.wire import read_wire
from battlebrokers.clock import SECOND_NS
from battlebrokers.report.terminal import run_lines
from battlebrokers.tables.manifest import CaptureFacts
from support.wires import small_system


def findings(run):
    return {finding.id: finding for finding in draw_conclusion(run.write()).findings}


def test_a_healthy_run_has_nothing_to_say(make_run):
    assert findings(make_run().healthy()) == {}


def test_losses_are_located_where_they_gather(make_run):
    run = make_run().healthy(3000)
    run.ledger(
        fleet="cameras",
        device=7,
        client_fleet="archive",
        client=9,
        topic="cam/7",
        qos=0,
        expected=100,
        delivered=40,
        lost=60,
    )
    run.latency("response", [math.inf] * 60, second=6)
    found = findings(run)["loss"]
    assert found.sentence.startswith("60 of 3 100 deliveries were lost (1.94 %). 100 % of them ")
    assert found.severity == "warning"
    filters = {evidence.filter for evidence in found.evidence}
    assert "phase = 'measure' AND client_fleet = 'archive' AND client = 9" in filters
    assert all(evidence.value == 60 for evidence in found.evidence)


def test_losses_that_break_a_promise_are_critical_and_explain_infinity(make_run):
    run = make_run().healthy(0)
    run.latency("response", [2.0] * 2970 + [math.inf] * 30)
    run.ledger(expected=3000, delivered=2970, lost=30, promise_kept=False)
    run.publishing(planned=3000, sent=3000, acked=3000)
    found = findings(run)
    assert found["loss"].severity == "critical"
    assert found["infinite"].sentence == "p99.9 of delivery is infinite, because 1 % of the messages never arrived."


def test_the_busy_thread_of_a_service_is_named(make_run):
    run = make_run().healthy()
    run.service("kernel", "contender", 98.0)
    assert (
        findings(run)["busy-thread"].sentence == "One thread of kernel was busy 98 % of the time: it is at its limit."
    )


def test_a_busy_machine_is_named(make_run):
    run = make_run(host={"cpu_cores": 2}).healthy()
    run.rows["services"][-1]["cpu_mean_percent"] = 195.0
    assert "98 % of 2 cores" in findings(run)["busy-host"].sentence


def test_messages_that_had_to_wait_are_explained(make_run):
    run = make_run().healthy(3000)
    run.rows["publishing"][0] |= {"held_window": 250, "held_socket": 50}
    run.latency("held", [40.0] * 300)
    sentence = findings(run)["held"].sentence
    assert "10 % of the messages had to wait" in sentence
    assert "250 because the in-flight window was full and 50 because the broker did not read" in sentence


def test_a_slow_fleet_of_listeners_is_named(make_run):
    run = make_run().healthy(3000)
    run.ledger(client_fleet="slow", expected=300, delivered=300)
    run.latency("response", [80.0] * 300, client_fleet="slow")
    assert findings(run)["slow-listeners"].sentence.startswith("Listeners of slow are slow: p99 80")


def test_an_uneven_shared_group_is_named(make_run):
    run = make_run().healthy()
    for client, delivered in enumerate([90, 10]):
        run.add(tables.BALANCE, share="archive", client=client, client_fleet="archive", delivered=delivered)
    assert "the busiest member took 90, the least busy 10" in findings(run)["unfair-share"].sentence


def test_growing_memory_is_found_in_the_samples(make_run):
    run = make_run().healthy()
    start = run.started_ns + 6 * SECOND_NS
    for i in range(30):
        run.add(
            tables.RESOURCES,
            sampled_ns=start + i * SECOND_NS, service="broker", role="contender", rss_bytes=(50 + 10 * i) << 20,
            cpu_percent=10.0, busiest_thread_percent=10.0, read_bytes=0, written_bytes=0, received_bytes=0,
            sent_bytes=0, open_files=5, threads=1, processes=1, steal_percent=None, load_1min=None,
        )  # fmt: skip
    assert findings(run)["memory-growth"].sentence == "Memory of broker grew from 50 MiB to 340 MiB in 30 s."


@pytest.mark.parametrize("name", ["reordered", "unexpected", "wills", "late", "recovered", "retained", "indeterminate"])
def test_oddities_of_the_ledger_are_said(make_run, name):
    run = make_run().healthy()
    run.rows["ledger"][0][name] = 4
    assert findings(run)[name].sentence.startswith("4 ")


@pytest.mark.parametrize("name", ["refused", "unsent", "retries", "unstamped"])
def test_oddities_of_publishing_are_said(make_run, name):
    run = make_run().healthy()
    run.rows["publishing"][0][name] = 4
    assert findings(run)[name].evidence[0].table == "measures/publishing"


def test_broken_connections_and_failed_connects_are_said(make_run):
    run = make_run(counters={"malformed": 2, "reconnects": 3}).healthy()
    run.action("lost", outcome="error", n=5)
    run.action("connect", outcome="refused", n=2)
    found = findings(run)
    assert found["connections-lost"].sentence == "5 connections broke during the run."
    assert found["connect-failures"].sentence == "2 of 12 connect attempts failed."
    assert found["malformed"].severity == "warning"
    assert found["reconnects"].severity == "info"


def test_the_gravest_comes_first(make_run):
    run = make_run(state="broker-failed", state_detail="killed").healthy()
    run.rows["publishing"][0]["retries"] = 4
    found = draw_conclusion(run.write()).findings
    assert [finding.severity for finding in found] == ["critical", "info"]


def test_waiting_and_long_tails_are_said(make_run):
    run = make_run().healthy(0)
    n = 5000
    at = 5 + np.arange(n) % 30
    values = np.where(np.arange(n) % 50 == 0, 900.0, 2.0)
    run.latency("response", values, second=at)
    run.latency("service", np.full(n, 2.0), second=at)
    run.ledger(expected=n, delivered=n)
    run.publishing(planned=n, sent=n, acked=n)
    found = findings(run)
    assert "450 times the median" in found["long-tail"].sentence
    assert "passed before the message was sent" in found["waiting-dominates"].sentence


def test_conclude_writes_summary_and_findings(make_run):
    folder = make_run(counters={"malformed": 1}).healthy().write()
    conclusion = conclude(folder)
    written = msgspec.json.decode(folder.findings_path.read_bytes(), type=list[Finding])
    assert written == conclusion.findings
    assert json.loads(folder.summary_path.read_text())["verdict"] == "PASS"


def captured(make_run):
    run = make_run(captures=[CaptureFacts("redis", ["recorded/captures/redis.pcapng"])]).healthy()
    return run.write()


def about_captures(folder):
    return [one.sentence for one in draw_conclusion(folder).findings if one.id.startswith("capture")]


def test_captures_decoded_to_the_end_are_nothing_to_talk_about(make_run):
    assert about_captures(small_system().write(captured(make_run).path)) == []


def test_captures_decoded_in_part_are_said_and_not_shown(make_run):
    folder = small_system().write(captured(make_run).path)
    folder.decoded_summary_path.unlink()
    run = folder.read_manifest().run
    (sentence,) = about_captures(folder)
    assert "decoded only in part, so nothing of them is shown" in sentence
    assert f"`bb analyze {run}` decodes them again" in sentence
    assert read_wire(folder) is None
    told = "\n".join(line.plain for line in run_lines(draw_conclusion(folder)))
    assert sentence in told


def test_why_the_captures_were_not_decoded_is_said(make_run):
    run = make_run(
        captures=[CaptureFacts("redis", ["recorded/captures/redis.pcapng"])],
        defects=[{"file": "recorded/captures", "reason": "no space left"}],
    ).healthy()
    folder = run.write()
    (sentence,) = about_captures(folder)
    assert sentence.startswith("The captures were not decoded: no space left. `bb analyze ")


def test_a_capture_that_is_not_whole_is_named(make_run):
    folder = small_system().write(captured(make_run).path)
    folder.decoded_summary_path.write_text(
        '{"defects": [{"file": "/a/redis.pcapng", "reason": "cut off", "count": 1}]}'
    )
    assert about_captures(folder) == [
        "The capture redis.pcapng is not whole: cut off. What the captures tell lacks that."
    ]
