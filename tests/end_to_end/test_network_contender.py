"""The network as a contender: runs, captures and battles on real switches, and nothing left behind, however it ends."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from battlebrokers.errors import ExitCode
from battlebrokers.namespaces import NAMED
from battlebrokers.sdn.lab.open_vswitch import kernel_switches, what_is_missing
from support.runs import bb, start_bb, write_scenario
from support.waiting import until

_MISSING = what_is_missing()
pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.broker,
    pytest.mark.skipif(_MISSING is not None, reason=f"{_MISSING.message}: {_MISSING.hint}" if _MISSING else ""),
]
TALK = """\
name: talk
about: Two devices, five clients, on whatever the broker speaks.
protocol: auto
fleets:
  sensors: {devices: 2, topic: "talk/{device}", payload: {random_bytes: 64}, every: 50/s}
clients:
  monitors: {count: 5, subscribe: "talk/#"}
phases: {connect: 20/s, warm_up: 500ms, measure: 2s, cool_down: 200ms, drain: 5s}
expect: ["lost == 0", "duplicates == 0"]
"""
MEASURED = (ExitCode.PASS, ExitCode.VOID)
"""A busy machine makes a measurement void; what was delivered is true all the same."""


_SERVED = re.compile(r"(bbs|b\d{4,5})[-a-z]")
"""What the lab of `bb sdn serve`, or of a contender, calls its things."""


def left_behind() -> list[str]:
    """Namespaces, interfaces and daemons of such labs."""
    named = [path.name for path in NAMED.iterdir()] if NAMED.is_dir() else []
    interfaces = [name for _, name in socket.if_nameindex()]
    daemons = [
        words
        for process in psutil.process_iter(["cmdline"])
        if re.search(r"battlebrokers-(bbs|b\d{4,5})/", words := " ".join(process.info["cmdline"] or ()))
    ]
    return [name for name in named + interfaces if _SERVED.match(name)] + daemons


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    assert left_behind() == []
    yield
    assert left_behind() == []


def all_once(summary: dict[str, Any], clients: int = 5) -> None:
    messages = summary["messages"]
    assert messages["sent"] == messages["planned"] > 0
    assert messages["delivered"] == messages["expected"] == clients * messages["sent"]
    assert messages["lost"] == messages["duplicates"] == messages["unexpected"] == 0


def ask(port: int, method: str, path: str, body: object = None) -> tuple[int, Any]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        json.dumps(body).encode() if body is not None else None,
        {"Content-Type": "application/json"},
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            told, status = answer.read(), answer.status
    except urllib.error.HTTPError as fault:
        told, status = fault.read(), fault.code
    return status, json.loads(told) if told else None


def served(folder: Path, topology: str = "chain:2x2", prefix: str = "bbs") -> tuple[subprocess.Popen[bytes], int]:
    log = folder / "serve.log"
    process = start_bb(
        "sdn", "serve", "--topology", topology, "--port", "0", "--openflow-port", "0", "--prefix", prefix,
        cwd=folder, log=log,
    )  # fmt: skip
    until(lambda: b"REST" in log.read_bytes() or process.poll() is not None, what="the network")
    words = log.read_text().split()
    assert "page:" in words, log.read_text()
    return process, int(words[words.index("page:") + 1].rstrip("/").rpartition(":")[2])


def test_a_captured_run_whose_rate_rises_delivers_everything_once_and_sees_it_on_the_switches(tmp_path: Path) -> None:
    scenario = str(write_scenario(tmp_path, TALK.replace("every: 50/s", "every: ramp 50/s..400/s over 2s")))
    result = bb("run", scenario, "--broker", "sdn", "--capture", "--json", cwd=tmp_path, timeout=400)
    assert result.code in MEASURED, result.err
    all_once(result.json())
    # More than at the first rate, and no more than at the last.
    assert 50 * 2 * 2.5 < result.json()["messages"]["sent"] < 400 * 2 * 3
    manifest = json.loads(next(tmp_path.glob("runs/*/manifest.json")).read_text())
    captures = {each["service"]: each for each in manifest["captures"]}
    assert set(captures) == {"controller", "switches"}
    # Each message is seen where it enters, on links, and where its copies leave.
    assert captures["switches"]["packets"] > 6 * result.json()["messages"]["sent"]
    assert captures["controller"]["packets"] > 0


def test_two_modes_battle(tmp_path: Path) -> None:
    scenario = str(write_scenario(tmp_path, TALK))
    result = bb("battle", scenario, "sdn-group", "sdn-reactive", "--repeat", "1", "--json", cwd=tmp_path, timeout=500)
    assert result.code in MEASURED, result.err
    summaries = [json.loads(path.read_text()) for path in tmp_path.glob("runs/**/summary.json")]
    assert {summary["contender"]["name"] for summary in summaries} == {"sdn-group", "sdn-reactive"}
    for summary in summaries:
        all_once(summary)


def test_ctrl_c_in_the_middle_of_a_run_takes_the_network_down(tmp_path: Path) -> None:
    scenario = write_scenario(tmp_path, TALK.replace("measure: 2s", "measure: 60s"))
    log = tmp_path / "run.log"
    process = start_bb("run", str(scenario), "--broker", "sdn", cwd=tmp_path, log=log)
    try:
        until(lambda: b"measure" in log.read_bytes() or process.poll() is not None, 180, "the load")
        assert left_behind() != []
        process.send_signal(signal.SIGINT)
        until(lambda: left_behind() == [], 120, "the end of the network")
    finally:
        # What was measured is being analysed: that is not of interest here.
        process.send_signal(signal.SIGINT)
        process.wait(120)
    assert process.returncode == ExitCode.INTERRUPTED, log.read_text()


def test_two_interrupts_in_the_middle_of_a_run_take_the_network_down_at_once(tmp_path: Path) -> None:
    scenario = write_scenario(tmp_path, TALK.replace("measure: 2s", "measure: 60s"))
    log = tmp_path / "run.log"
    process = start_bb("run", str(scenario), "--broker", "sdn", cwd=tmp_path, log=log)
    until(lambda: b"measure" in log.read_bytes() or process.poll() is not None, 180, "the load")
    assert left_behind() != []
    process.send_signal(signal.SIGHUP)
    until(lambda: b"press again" in log.read_bytes(), what="the first answer")
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == ExitCode.INTERRUPTED, log.read_text()
    assert f"kept in {tmp_path}/runs/" in log.read_text()
    until(lambda: left_behind() == [], 10, "the end of the network")


@pytest.mark.parametrize("numbers", [(signal.SIGHUP,), (signal.SIGTERM,), (signal.SIGTERM, signal.SIGINT)])
@pytest.mark.parametrize("up", [False, True], ids=["while it is built", "when it is up"])
def test_whatever_signal_ends_a_served_network_nothing_of_it_is_left(
    tmp_path: Path, up: bool, numbers: tuple[int, ...]
) -> None:
    log = tmp_path / "serve.log"
    process = start_bb("sdn", "serve", "--port", "0", "--openflow-port", "0", cwd=tmp_path, log=log)
    if up:
        until(lambda: b"REST" in log.read_bytes(), what="the network")
    else:
        until(lambda: len(list(NAMED.glob("bbs-*"))) > 1, what="the first hosts")
    for place, number in enumerate(numbers):
        if place:
            time.sleep(0.06)  # what follows at once is taken for the same request
        process.send_signal(number)
    assert process.wait(30) == (ExitCode.PASS if len(numbers) == 1 else ExitCode.INTERRUPTED)
    until(lambda: left_behind() == [], 10, "the end of the network")
    assert not Path("/run/battlebrokers-bbs.lock").exists()


def test_seats_are_given_and_given_back_and_a_second_network_is_refused(tmp_path: Path) -> None:
    process, port = served(tmp_path)
    try:
        status, lab = ask(port, "GET", "/api/v1/lab")
        assert (status, lab["device_hosts"], lab["client_seats"], lab["seats"]) == (200, ["h1", "h3"], 2, [])
        _, resource = ask(port, "POST", "/api/v1/resources", {"name": "t"})
        assert resource["port"] == 20_000 + resource["id"]
        (_, first), (_, second) = (ask(port, "POST", "/api/v1/lab/seats", {"role": "client"}) for _ in range(2))
        assert (NAMED / first["namespace"]).exists()
        assert first["switch"] != second["switch"]
        status, told = ask(port, "POST", "/api/v1/lab/seats", {"role": "client"})
        assert (status, told["message"]) == (409, "all 2 seats for clients are taken")
        subscribers = f"/api/v1/resources/{resource['address']}/subscribers"
        ask(port, "POST", subscribers, {"mac": first["mac"], "ipv4": first["ipv4"]})
        assert ask(port, "DELETE", f"/api/v1/lab/seats/{first['seat']}")[0] == 204
        assert ask(port, "DELETE", f"/api/v1/lab/seats/{first['seat']}")[0] == 404
        assert ask(port, "GET", f"/api/v1/resources/{resource['address']}")[1]["subscribers"] == []
        assert ask(port, "POST", "/api/v1/lab/seats", {"role": "captain"})[0] == 422
        refused = bb("sdn", "serve", "--port", "0", "--openflow-port", "0", cwd=tmp_path)
        assert refused.code == ExitCode.ENVIRONMENT
        assert "another network is served" in refused.err
        if not kernel_switches():
            beside = bb("sdn", "lab", "up", "chain:1x1", cwd=tmp_path)
            assert beside.code == ExitCode.ENVIRONMENT
            assert "another Open vSwitch switches here already" in beside.err
    finally:
        process.terminate()
        assert process.wait(60) == 0


def test_what_a_kill_left_is_gone_with_the_next_start_and_its_end(tmp_path: Path) -> None:
    process, _ = served(tmp_path)
    process.kill()
    process.wait(60)
    assert left_behind() != []
    process, port = served(tmp_path, "chain:1x3", "b40000")
    assert ask(port, "GET", "/api/v1/lab")[1]["hosts"] == 3
    assert {path.name for path in NAMED.glob("b*-*")} >= {"b40000-h1", "b40000-h2", "b40000-h3"}
    assert not list(NAMED.glob("bbs-*"))
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
