"""The analyst as others meet it: a process that starts early, serves many runs, and never outlives its client."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from battlebrokers.errors import AnalysisStopped, EnvironmentNotReady, PipelineError, RunFolderError
from battlebrokers.pipeline.analyst import in_words
from battlebrokers.pipeline.client import Analyst
from battlebrokers.tables import LEDGER
from battlebrokers.tables.run_folder import RunFolder
from pipeline.world import Result, World
from support.capture_writer import pcap as pcap_file
from support.waiting import until

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def analyst() -> Iterator[Analyst]:
    with Analyst.start("local[2]", expected_events=1) as started:
        yield started


def _family(analyst: Analyst) -> list[psutil.Process]:
    parent = psutil.Process(analyst.pid)
    return [parent, *parent.children(recursive=True)]


def _policies(analyst: Analyst) -> set[int]:
    tasks: list[Path] = []
    for process in _family(analyst):
        # A process may end between the two looks, and so may a thread.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            tasks += Path(f"/proc/{process.pid}/task").iterdir()
    found = set()
    for task in tasks:
        with contextlib.suppress(ProcessLookupError):
            found.add(os.sched_getscheduler(int(task.name)))
    return found


def _run(path: Path) -> World:
    world = World()
    device, client = world.device(), world.client("t")
    world.deliver(client, world.publish(device, "t", 3.0, qos=1), 3.1)
    world.write(path)
    return world


def test_it_gets_ready_at_idle_priority(analyst: Analyst) -> None:
    analyst.wait_until_ready(timeout_s=240)
    assert _policies(analyst) == {os.SCHED_IDLE}


def test_it_analyses_one_run_after_the_other(analyst: Analyst, tmp_path: Path) -> None:
    told: list[str] = []
    for name in ("one", "two"):
        _run(tmp_path / name)
        analysis = analyst.analyze(tmp_path / name, on_progress=lambda step, done, of: told.append(step))
        assert analysis.seconds > 0
        assert "journeys" in analysis.steps
    assert told.count("journeys") == 2


def test_whoever_waits_is_served_with_normal_priority(analyst: Analyst, tmp_path: Path) -> None:
    if os.geteuid() != 0 and os.environ.get("CI"):
        pytest.skip("the system may forbid raising the priority again")
    policies: list[set[int]] = []
    _run(tmp_path / "run")
    analyst.analyze(tmp_path / "run", on_progress=lambda *_: policies.append(_policies(analyst)))
    assert os.SCHED_OTHER in policies[0]
    assert os.SCHED_IDLE not in policies[0]


def test_whoever_leaves_without_the_answer_does_not_leave_it_to_the_next(analyst: Analyst, tmp_path: Path) -> None:
    def leave(*_: object) -> None:
        raise KeyError("gone")

    _run(tmp_path / "left")
    with pytest.raises(KeyError, match="gone"):
        analyst.analyze(tmp_path / "left", on_progress=leave)
    with pytest.raises(RunFolderError, match="no manifest"):
        analyst.analyze(tmp_path / "nothing")


def test_what_goes_wrong_is_raised_here_and_the_next_run_is_served(analyst: Analyst, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no manifest"):
        analyst.analyze(tmp_path / "nothing")
    _run(tmp_path / "run")
    analyst.analyze(tmp_path / "run", out=str(tmp_path / "elsewhere"))
    assert len(Result(RunFolder(tmp_path / "elsewhere")).rows(LEDGER)) == 1
    assert not (tmp_path / "run" / "measures").exists()
    analyst.rest()


def test_a_place_that_cannot_be_written_to_is_named_in_one_line(analyst: Analyst, tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(pcap_file([]))
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EnvironmentNotReady, match="a file is in the way") as caught:
        analyst.decode([str(tmp_path / "a.pcap")], str(tmp_path / "file"), {})
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_what_a_worker_says_with_a_traceback_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n  File x\n"
    full = in_words(RuntimeError(f"{trace}OSError: [Errno 28] No space left on device"), "/town")
    assert isinstance(full, EnvironmentNotReady)
    assert full.message == "the tables cannot be written to /town: no space left"
    bug = in_words(RuntimeError(f"{trace}ValueError: seven"), "/town")
    assert isinstance(bug, PipelineError)
    assert bug.message == "the analysis failed: ValueError: seven"
    monkeypatch.setenv("BB_DEBUG", "1")
    assert "File x" in in_words(RuntimeError(f"{trace}ValueError: seven"), "/town").message
    assert in_words(RuntimeError(), "/town").message
    assert in_words(ConnectionRefusedError(111, "refused"), "/town").message.endswith("Spark's Java process is gone")


def _states(analyst: Analyst) -> set[str]:
    found = set()
    for process in _family(analyst):
        with contextlib.suppress(psutil.Error):
            found.add(process.status())
    return found


def test_it_uses_no_processor_time_while_it_is_held_and_works_on_afterwards(analyst: Analyst, tmp_path: Path) -> None:
    analyst.pause()
    until(lambda: _states(analyst) == {psutil.STATUS_STOPPED}, what="all of it to stop")
    analyst.pause()
    analyst.resume()
    until(lambda: psutil.STATUS_STOPPED not in _states(analyst), what="all of it to go on")
    analyst.pause()
    _run(tmp_path / "run")
    assert analyst.analyze(tmp_path / "run").seconds > 0, "who orders something lets it go on"


def test_a_java_that_hangs_has_a_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("battlebrokers.pipeline.client.ANSWER_WITHIN_S", 6.0)
    with Analyst.start("local[1]", expected_events=1, idle=False) as started:
        _run(tmp_path / "run")
        started.wait_until_ready(240)
        family = _family(started)
        next(each for each in family if "SparkSubmit" in " ".join(each.cmdline())).suspend()
        with pytest.raises(AnalysisStopped, match="the analysis process stopped answering"):
            started.analyze(tmp_path / "run")
        assert not psutil.wait_procs(family, timeout=60)[1]


def test_closing_ends_the_jvm_too(analyst: Analyst) -> None:
    until(lambda: any("java" in process.name() for process in _family(analyst)), what="Java")
    family = _family(analyst)
    analyst.close()
    _, alive = psutil.wait_procs(family, timeout=60)
    assert alive == []
    with pytest.raises(PipelineError):
        analyst.analyze("anything")


def test_an_analyst_that_was_killed_is_told_in_one_line(tmp_path: Path) -> None:
    with Analyst.start() as analyst:
        os.kill(analyst.pid, signal.SIGKILL)
        with pytest.raises(PipelineError, match="ended unexpectedly") as caught:
            analyst.analyze(tmp_path)
    assert "\n" not in caught.value.message
    assert "memory" in caught.value.hint


def test_a_missing_java_is_told_through_the_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with Analyst.start() as analyst, pytest.raises(EnvironmentNotReady) as caught:
        analyst.analyze(tmp_path)
    assert "openjdk" in caught.value.hint


@pytest.mark.parametrize("held", [False, True], ids=["at work", "held"])
def test_it_ends_when_its_client_is_killed(tmp_path: Path, held: bool) -> None:
    script = "import sys, time; from battlebrokers.pipeline.client import Analyst; a = Analyst.start(idle=False)\n"
    if held:
        script += "import psutil\nwhile not (a._up and psutil.Process(a.pid).children()): time.sleep(0.05)\n"
        script += "a.pause(); print(a.pid, flush=True); time.sleep(600)"
    else:
        script += "print(a.pid, flush=True)\ntry: a.analyze(sys.argv[1])\nexcept Exception: pass\ntime.sleep(600)"
    client = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert client.stdout is not None
        analyst = psutil.Process(int(client.stdout.readline()))
        family = [analyst, *analyst.children(recursive=True)]
    finally:
        client.send_signal(signal.SIGKILL)
        client.wait()
    _, alive = psutil.wait_procs(family, timeout=120)
    assert alive == []


def test_the_door_does_not_import_spark() -> None:
    check = "import sys, battlebrokers.pipeline.client; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
