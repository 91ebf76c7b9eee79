"""A run has a manifest before its broker is started: killed meanwhile it is listed, failed meanwhile it is removed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support.runs import bb, write_scenario
from support.waiting import until

SCENARIO = """
name: never-begun
fleets: {sensor: {devices: 1, topic: t, payload: {random_bytes: 64}, every: 1/s}}
phases: {measure: 1s}
"""
RUN = """
import sys
from pathlib import Path
from support.runs import run_for_real
run_for_real(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
"""
TESTS = Path(__file__).parents[2]


@contextmanager
def a_broker_that_does_not_accept() -> Iterator[int]:
    """A port that is open, with nobody behind it who takes connections, and no room for one more to wait."""
    with ExitStack() as opened:
        server = opened.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield server.getsockname()[1]


def _start(tmp_path: Path, port: int) -> subprocess.Popen[bytes]:
    scenario = write_scenario(tmp_path, SCENARIO)
    command = [sys.executable, "-c", RUN, str(scenario), f"mqtt://127.0.0.1:{port}", str(tmp_path / "runs")]
    return subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(TESTS)})


def _states(runs: Path) -> list[str]:
    return [json.loads(path.read_bytes())["state"] for path in runs.glob("*/manifest.json")]


def test_a_run_killed_while_its_broker_starts_is_listed_as_such(tmp_path: Path) -> None:
    with a_broker_that_does_not_accept() as port, _start(tmp_path, port) as running:
        until(lambda: _states(tmp_path / "runs") == ["starting"])
        running.send_signal(signal.SIGKILL)
        running.communicate()
    (listed,) = bb("list", "--json", cwd=tmp_path).json()
    assert (listed["state"], listed["killed_while"]) == ("killed", "starting")
    assert listed["scenario"] == "never-begun"
    assert listed["contender"]["name"] == f"127.0.0.1:{port}"
    assert "killed while its broker started" in bb("list", cwd=tmp_path).out


def test_a_run_whose_broker_does_not_come_up_leaves_no_folder(tmp_path: Path) -> None:
    with a_broker_that_does_not_accept() as port, _start(tmp_path, port) as running:
        _, said = running.communicate()
    assert running.returncode == 1
    assert b"ContenderError" in said
    assert list((tmp_path / "runs").iterdir()) == []
