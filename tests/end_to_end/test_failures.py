"""Brokers that stop, die or vanish; users who press Ctrl-C; processes that are killed. Nothing measured is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from battlebrokers.analysis.summary import build_summary
from battlebrokers.errors import EnvironmentNotReady
from battlebrokers.tables import ACKS, DELIVERIES, PUBLISHES
from battlebrokers.tables.run_folder import RunFolder
from support.runs import BB, bb, run_for_real, start_bb, write_scenario
from support.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

STEADY = """
name: steady
fleets:
  sensor: {{devices: 5, topic: "steady/{{device}}", payload: {{random_bytes: 64}}, every: 100/s, qos: {qos}}}
clients:
  listener: {{count: 1, subscribe: ["steady/#"], qos: {qos}}}
phases: {{measure: {measure}, drain: 10s, quiet: 1s}}
"""


def in_measure(runs: Path) -> RunFolder | None:
    """The run under `runs` once its measure phase has recorded something."""
    for path in runs.glob("*/manifest.json") if runs.exists() else []:
        if list(path.parent.glob(f"{DELIVERIES.folder}/*.parquet")):
            return RunFolder(path.parent)
    return None


@pytest.mark.alone
@pytest.mark.parametrize("qos", [0, 1])
def test_a_broker_stopped_for_two_seconds_shows_in_p99_at_its_true_size(tmp_path, analyst, mosquitto, qos):
    scenario = write_scenario(tmp_path, STEADY.format(qos=qos, measure="8s"))
    broker = psutil.Process(mosquitto.process.pid)
    stopped = []

    def stop_once(seen) -> None:
        if seen.phase == "measure" and seen.share > 0.3 and not stopped:
            broker.suspend()
            stopped.append(time.monotonic())
        elif len(stopped) == 1 and time.monotonic() - stopped[0] >= 2.0:
            broker.resume()
            stopped.append(time.monotonic())

    folder = run_for_real(scenario, mosquitto.endpoints["tcp"], tmp_path / "runs", watch=stop_once)
    assert len(stopped) == 2
    pause_ms = 1000 * (stopped[1] - stopped[0])
    analyst.analyze(str(folder.path))
    summary = build_summary(folder)
    # 2 of 8 seconds' messages wait, evenly from 0 to the pause's length: the slowest 1 % waited nearly all of it.
    assert 0.90 * pause_ms < summary.latency_ms.response.p99 < 1.15 * pause_ms
    assert summary.latency_ms.response.p50 < 0.2 * pause_ms
    assert summary.messages.sent == summary.messages.planned
    assert summary.messages.lost == 0


@pytest.mark.alone
def test_a_broker_that_stops_until_the_load_is_over_fails_and_its_p99_is_infinite(tmp_path, analyst, mosquitto):
    text = STEADY.format(qos=1, measure="4s").replace("every: 100/s", "every: 100/s, inflight: 10")
    broker = psutil.Process(mosquitto.process.pid)

    def stop_until_drain(seen) -> None:
        if seen.phase == "measure" and seen.share > 0.3:
            broker.suspend()
        elif seen.phase == "drain":
            broker.resume()

    try:
        folder = run_for_real(
            write_scenario(tmp_path, text), mosquitto.endpoints["tcp"], tmp_path / "runs", watch=stop_until_drain
        )
    finally:
        broker.resume()
    analyst.analyze(str(folder.path))
    summary = build_summary(folder)
    assert summary.publishing.backlog > 500
    assert summary.publishing.shortfall < 0.01 * summary.messages.planned
    assert (summary.messages.lost, summary.messages.expected) == (0, summary.messages.sent)
    assert summary.latency_ms.response.lost == summary.publishing.backlog
    assert "p99" in summary.latency_ms.response.infinite
    (told,) = [one for one in summary.expectations if one.text == "every publish gets through"]
    assert "held by the broker (window, socket or connection) until the load was over" in told.measured
    assert summary.verdict in ("FAIL", "VOID"), "VOID only where this machine was late itself"


@pytest.mark.alone
def test_a_broker_frozen_to_the_end_does_not_hold_a_latency_with_the_few_messages_that_came(
    tmp_path, analyst, mosquitto
):
    text = STEADY.format(qos=1, measure="4s").replace("drain: 10s", "drain: 2s") + 'expect: ["delivery_p99 < 2s"]\n'
    broker = psutil.Process(mosquitto.process.pid)

    def freeze(seen) -> None:
        if seen.phase == "measure" and seen.share > 0.3:
            broker.suspend()

    try:
        folder = run_for_real(
            write_scenario(tmp_path, text), mosquitto.endpoints["tcp"], tmp_path / "runs", watch=freeze
        )
    finally:
        broker.resume()
    analyst.analyze(str(folder.path))
    summary = build_summary(folder)
    counts, response = summary.messages, summary.latency_ms.response
    assert counts.indeterminate > 200, "sent and never acknowledged"
    assert counts.overdue == 0, "nothing arrived any more: it is not merely slow"
    assert response.n == counts.expected + summary.publishing.backlog
    assert response.lost == counts.expected - counts.delivered + summary.publishing.backlog
    assert "p99" in response.infinite
    (judged,) = [one for one in summary.expectations if one.text == "delivery_p99 < 2s"]
    assert judged.measured.startswith("∞")
    assert judged.ok is not True
    assert summary.verdict in ("FAIL", "VOID"), "VOID only where this machine was late itself"


def test_a_broker_killed_mid_run_gives_a_report_and_exit_code_5(tmp_path, require_broker):
    require_broker("mosquitto")
    scenario = write_scenario(tmp_path, STEADY.format(qos=1, measure="20s"))
    running = start_bb("run", str(scenario), "--broker", "mosquitto", "--json", cwd=tmp_path, log=tmp_path / "log")
    folder = until(lambda: in_measure(tmp_path / "runs"))
    manifest = folder.read_manifest()
    os.kill(manifest.contender.services[0].pids[0], signal.SIGKILL)
    assert running.wait(120) == 5
    manifest = folder.read_manifest()
    assert manifest.state == "broker-failed"
    assert "signal 9" in manifest.state_detail
    assert folder.report_path.exists()
    told = build_summary(folder)
    assert told.verdict == "FAIL"
    assert any("mosquitto" in reason for reason in told.reasons)
    counted = manifest.workers[0].counters
    published = pq.read_table(folder.table(PUBLISHES))
    acked_later = pq.read_table(folder.table(ACKS)).num_rows if folder.table(ACKS).is_dir() else 0
    assert counted["received"] == pq.read_table(folder.table(DELIVERIES)).num_rows > 0
    assert counted["sent"] == published.num_rows - published["sent_ns"].null_count > 0
    assert counted["acked"] == published.num_rows - published["acked_ns"].null_count + acked_later > 0
    assert counted["recorder_overflow"] == 0


def test_ctrl_c_ends_the_load_and_still_reports(tmp_path, require_broker):
    require_broker("mosquitto")
    scenario = write_scenario(tmp_path, STEADY.format(qos=0, measure="60s"))
    running = start_bb("run", str(scenario), "--broker", "mosquitto", cwd=tmp_path, log=tmp_path / "log")
    folder = until(lambda: in_measure(tmp_path / "runs"))
    running.send_signal(signal.SIGINT)
    assert running.wait(120) == 130
    assert folder.read_manifest().state == "interrupted"
    assert folder.report_path.exists()
    summary = build_summary(folder)
    assert summary.verdict == "VOID"
    assert summary.messages.delivered > 0
    assert summary.messages.lost == 0


def test_a_run_killed_outright_is_readable_up_to_its_last_flush(tmp_path, require_broker):
    require_broker("mosquitto")
    scenario = write_scenario(tmp_path, STEADY.format(qos=0, measure="60s"))
    running = start_bb("run", str(scenario), "--broker", "mosquitto", cwd=tmp_path, log=tmp_path / "log")
    folder = until(lambda: in_measure(tmp_path / "runs"))
    family = psutil.Process(running.pid).children(recursive=True)
    running.kill()
    running.wait(60)
    _, left = psutil.wait_procs(family, timeout=60)
    assert not left, "workers, broker and analyst end with us"
    assert folder.read_manifest().state == "running"
    (listed,) = bb("list", "--json", cwd=tmp_path).json()
    assert (listed["state"], listed["killed_while"]) == ("killed", "running")
    result = bb("analyze", str(folder.path), "--json", cwd=tmp_path)
    assert result.code == 6, result.err
    told = result.json()
    assert (told["verdict"], told["state"]) == ("VOID", "killed")
    assert told["messages"]["delivered"] > 0
    assert folder.report_path.exists()


def test_a_worker_killed_mid_run_is_told_and_leaves_what_it_wrote(tmp_path, require_broker, analyst):
    require_broker("mosquitto")
    scenario = write_scenario(tmp_path, STEADY.format(qos=0, measure="60s"))
    running = start_bb("run", str(scenario), "--broker", "mosquitto", cwd=tmp_path, log=tmp_path / "log")
    folder = until(lambda: in_measure(tmp_path / "runs"))
    os.kill(folder.read_manifest().workers[0].pid, signal.SIGKILL)
    assert running.wait(120) == 4
    assert "the worker process was killed by signal 9 (SIGKILL)" in (tmp_path / "log").read_text()
    assert folder.read_manifest().state == "failed"
    analyst.analyze(str(folder.path))
    assert build_summary(folder).messages.delivered > 0


def worker_here() -> psutil.Process:
    """The worker among this process's children."""
    return next(child for child in psutil.Process().children() if "worker-0" in child.cmdline())


@pytest.mark.parametrize("phase", ["connect", "measure", "drain"])
def test_a_worker_that_hangs_ends_the_run_with_its_reason_and_keeps_what_it_wrote(
    tmp_path, monkeypatch, mosquitto, phase
):
    monkeypatch.setattr("battlebrokers.run.orchestrator.ANSWER_WITHIN_S", 3.0)
    text = STEADY.format(qos=1, measure="4s").replace("phases: {", "phases: {connect: 3/s, ")
    stopped = []

    def stop(seen) -> None:
        if seen.phase == phase and not stopped:
            stopped.append(worker_here())
            stopped[0].suspend()

    with pytest.raises(EnvironmentNotReady, match="the worker process stopped answering"):
        run_for_real(write_scenario(tmp_path, text), mosquitto.endpoints["tcp"], tmp_path / "runs", watch=stop)
    assert not stopped[0].is_running() or stopped[0].status() == psutil.STATUS_ZOMBIE
    folder = RunFolder(next((tmp_path / "runs").iterdir()))
    manifest = folder.read_manifest()
    assert manifest.state == "failed"
    assert "stopped answering" in manifest.state_detail
    if phase == "drain":
        assert pq.read_table(folder.table(DELIVERIES)).num_rows > 500


SECOND = [("starting the broker", signal.SIGINT), ("measure", signal.SIGTERM), ("analysing", signal.SIGHUP)]


@pytest.mark.parametrize(("phase", "number"), SECOND, ids=[phase for phase, _ in SECOND])
def test_the_second_signal_ends_everything_at_once_and_says_what_is_kept(tmp_path, require_broker, phase, number):
    require_broker("mosquitto")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    scenario = write_scenario(tmp_path, STEADY.format(qos=0, measure="2s" if phase == "analysing" else "60s"))
    log = tmp_path / "log"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TMPDIR", str(temporary))
        running = start_bb("run", str(scenario), "--broker", "mosquitto", cwd=tmp_path, log=log)
    until(lambda: phase in log.read_text() or running.poll() is not None, 120, phase)
    if phase == "measure":
        until(lambda: in_measure(tmp_path / "runs"))
    family = psutil.Process(running.pid).children(recursive=True)
    running.send_signal(number)
    time.sleep(0.06)  # what follows at once is taken for the same request
    running.send_signal(signal.SIGINT)
    # Nothing that is graceful takes less: the analysis, or the drain with the analysis behind it.
    assert running.wait(10) == 130, log.read_text()
    _, left = psutil.wait_procs(family, timeout=10)
    assert not left
    assert not list(temporary.glob("bb-*"))
    folders = list((tmp_path / "runs").iterdir()) if (tmp_path / "runs").exists() else []
    if phase == "starting the broker" and not folders:
        assert "nothing was measured" in log.read_text()
        return
    assert f"kept in {folders[0]}" in log.read_text()
    assert not (folders[0] / "contender").exists()
    assert RunFolder(folders[0]).read_manifest().state == ("finished" if phase == "analysing" else "interrupted")


@pytest.mark.parametrize(
    ("limit", "told"),
    [("ulimit -n 256", "Java files: at most 256"), ("ulimit -v 3000000", "address space: limited to")],
)
def test_what_the_analysis_would_lack_is_told_before_the_load(tmp_path, limit, told):
    scenario = write_scenario(tmp_path, STEADY.format(qos=0, measure="2s"))
    command = ["sh", "-c", f'{limit}; exec "$@"', "sh", str(BB), "run", str(scenario), "--broker", "loopback://"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert told in done.stderr
    assert "hint: ulimit" in done.stderr
    assert not (tmp_path / "runs").exists(), "nothing was started"


def test_what_is_wrong_before_the_load_is_told_at_once(tmp_path, free_port):
    scenario = write_scenario(tmp_path, STEADY.format(qos=0, measure="2s"))
    log = tmp_path / "log"
    running = start_bb("run", str(scenario), "--broker", f"mqtt://127.0.0.1:{free_port}", cwd=tmp_path, log=log)
    until(lambda: "error:" in log.read_text(), what="the error")
    # The analysis process was still starting, which takes it longer than this.
    assert running.wait(5) == 5


def test_a_broker_nobody_reaches_is_exit_code_5_with_a_hint(tmp_path, free_port):
    scenario = write_scenario(tmp_path, STEADY.format(qos=0, measure="2s"))
    result = bb("run", str(scenario), "--broker", f"mqtt://127.0.0.1:{free_port}", cwd=tmp_path)
    assert result.code == 5
    assert str(free_port) in result.err
    assert "hint:" in result.err


def test_a_battle_goes_on_without_a_broker_that_does_not_come_up(tmp_path, free_port):
    scenario = write_scenario(tmp_path, STEADY.format(qos=0, measure="2s"))
    nobody = f"mqtt://127.0.0.1:{free_port}"
    result = bb("battle", str(scenario), nobody, "amqtt", "--json", cwd=tmp_path)
    assert result.code == 5, result.err
    assert f"{nobody} missed round 1" in result.err
    assert [standing["contender"] for standing in result.json()["standings"]] == ["amqtt"]
    assert list((tmp_path / "runs").glob("battle-*.html"))


def test_ctrl_c_before_anything_is_loaded_is_no_traceback(tmp_path):
    # What Python does on Ctrl-C while the verbs are being imported, without having to hit that second.
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    command = [sys.executable, "-c", "from battlebrokers.cli.main import main; main()"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (130, "interrupted")
