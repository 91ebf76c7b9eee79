"""The real command on a terminal, fed with control characters from everywhere: none of them gets through."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from battlebrokers.tables.run_folder import RunFolder
from support.made_up_runs import MadeUpRun, make_run
from support.runs import BB, bb, run_for_real, write_scenario

__all__ = ["make_run"]

pytestmark = [pytest.mark.slow]

HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\x7f\u202egpj.\r\b[red]:boom:[/red]"
OUR_OWN = re.compile(rb"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[[0-2]?K|\x1b\[1A|\r")
"""Colours, the cursor of progress bars, and lines rewritten by them."""


def in_a_terminal(*arguments: str, cwd: Path, timeout_s: float = 60) -> bytes:
    """What the real command writes to a terminal, stdout and stderr alike."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200", "BB_DEBUG": "1"}
    process = subprocess.Popen(
        [str(BB), *arguments], cwd=cwd, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    told, until = b"", time.monotonic() + timeout_s
    try:
        while select.select([ours], [], [], max(0.0, until - time.monotonic()))[0]:
            try:
                told += os.read(ours, 65_536)
            except OSError:  # the other end is closed
                break
    finally:
        os.close(ours)
        process.kill()
        process.wait()
    return told


def assert_harmless(told: bytes) -> None:
    """Nothing steers the terminal but what draws colours and progress."""
    rest = OUR_OWN.sub(b"", told).decode()
    found = sorted({f"U+{ord(c):04X}" for c in rest if c != "\n" and not c.isprintable()})
    assert found == [], rest


@pytest.fixture
def hostile(make_run: Callable[..., MadeUpRun], tmp_path: Path) -> Path:
    """Two runs whose manifests somebody has edited."""
    for number in range(2):
        folder = (
            make_run(run=f"r{number}aaa", title=f"title {HOSTILE}", contender=f"broker {HOSTILE}").healthy().write()
        )
        document = json.loads(folder.manifest_path.read_text())
        document["scenario"]["name"] = f"name {HOSTILE}"
        document["contender"]["version"] = f"2 {HOSTILE}\nnext: rm"
        document["state_detail"] = HOSTILE
        document["tags"] = {HOSTILE: HOSTILE}
        document["settings"]["recorder_failure"] = HOSTILE
        folder.manifest_path.write_text(json.dumps(document))
    damaged = tmp_path / "runs" / "20261115T120000-\x1b[2Jx-zzzzz"
    damaged.mkdir()
    (damaged / "manifest.json").write_text(json.dumps({"run": HOSTILE, "state": HOSTILE}))
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["list"], ["list", "--json"], ["report", "r0"], ["report", "r0", "r1"], ["report", "r0", "--markdown"],
        ["report", "r0", "--json"], ["compare", "r0", "r1"], ["compare", "r0", "r1", "--json"], ["trace", "r0"],
        ["explain", "r0"], ["report", "r0", "--html", f"page{HOSTILE}.html"], ["report", HOSTILE],
        ["report", "runs/20261115T120000-\x1b[2Jx-zzzzz"], ["analyze", f"no{HOSTILE}"],
    ],
    ids=lambda words: " ".join(words).encode("unicode_escape").decode()[:40],
)  # fmt: skip
def test_hostile_manifests_are_told_harmlessly(hostile: Path, words: list[str]) -> None:
    told = in_a_terminal(*words, cwd=hostile)
    assert told.strip()
    assert_harmless(told)


@pytest.mark.parametrize(
    "words",
    [
        ["check", "scenario.yaml"], ["check", "scenario.yaml", "--json"],
        ["check", "scenario.yaml", "--set", f"about={HOSTILE}"], ["check", "scenario.yaml", "--set", f"{HOSTILE}=1"],
        ["check", "wrong.yaml"], ["check", "wrong.yaml", "--json"], ["check", f"{HOSTILE}.yaml"],
        ["run", "scenario.yaml", "--broker", f"mqtt://{HOSTILE}"], ["run", "scenario.yaml", "--broker", HOSTILE],
        ["run", "scenario.yaml", f"--{HOSTILE}"], ["run", "scenario.yaml", "--scale", HOSTILE], [HOSTILE],
        ["run", "scenario.yaml", "--tag", HOSTILE], ["pcap", f"{HOSTILE}.pcap", "--out", "o"],
        ["brokers", "test", "broker.yaml"], ["brokers", "test", "wrong-broker.yaml"], ["doctor", "-s", HOSTILE],
        ["sdn", "list", "--url", f"http://{HOSTILE}"],
    ],
    ids=lambda words: " ".join(words).encode("unicode_escape").decode()[:40],
)  # fmt: skip
def test_hostile_files_and_arguments_are_told_harmlessly(tmp_path: Path, words: list[str]) -> None:
    quoted = json.dumps(HOSTILE)
    write_scenario(
        tmp_path,
        f"name: hostile\nabout: {quoted}\nfleets:\n  air: {{devices: 2, topic: {json.dumps('a/' + HOSTILE)}, "
        f"every: 1s, category: {quoted}, payload: {{text: {quoted}}}}}\nclients:\n  all: {{count: 1, subscribe: '#'}}\n"
        "phases: {measure: 1s}\n",
    )
    (tmp_path / "wrong.yaml").write_text(
        f"name: {quoted}\n{quoted}: 1\nphases: {{measure: {quoted}}}\nfleets: {quoted}\n"
    )
    prints = f"import sys; print({HOSTILE!r}); print({HOSTILE!r}, file=sys.stderr); sys.exit(3)"
    (tmp_path / "broker.yaml").write_text(
        f"name: mine\nabout: {quoted}\nports: [mqtt]\nendpoints: {{tcp: 'mqtt://${{host}}:${{port.mqtt}}'}}\n"
        f"run: {{command: [{json.dumps(sys.executable)}, -c, {json.dumps(prints)}]}}\n"
    )
    (tmp_path / "wrong-broker.yaml").write_text(f"name: mine\nabout: x\n{quoted}: {quoted}\n")
    told = in_a_terminal(*words, cwd=tmp_path)
    assert told.strip()
    assert_harmless(told)


def test_what_a_broker_says_of_a_password_is_recorded_masked_and_told_harmlessly(tmp_path: Path) -> None:
    marker = "Zq7vmark-repeated"
    scenario = write_scenario(
        tmp_path,
        "name: refused\ndefaults: {version: 5}\nfleets:\n  air: {devices: 2, topic: a, every: 100ms, "
        f"credentials: {{username: me, password: '{marker}-{{index}}'}}, payload: {{text: x}}}}\n"
        "phases: {measure: 300ms, drain: 0s, quiet: 0s}\n",
    )
    with _Refusing(f"who says {{password}} is wrong \u202e{HOSTILE}") as broker:
        folder = run_for_real(scenario, f"mqtt://127.0.0.1:{broker.port}", tmp_path / "runs")
    details = [row["detail"] for row in pq.read_table(folder.path / "recorded" / "operations").to_pylist()]
    assert broker.passwords >= {f"{marker}-1".encode(), f"{marker}-2".encode()}
    assert any(details)
    assert marker not in str(details)
    manifest = folder.read_manifest()
    assert manifest.state == "broker-failed"
    assert manifest.state_detail
    everything = b"".join(path.read_bytes() for path in folder.path.rglob("*") if path.is_file())
    assert marker.encode() not in everything
    told = bb("list", "--json", cwd=tmp_path)
    assert_harmless((told.out + told.err).encode())
    assert_harmless(in_a_terminal("analyze", folder.run_id, cwd=tmp_path, timeout_s=5))
    assert RunFolder(folder.path).read_manifest().scenario.secrets_masked


class _Refusing:
    """An MQTT 5 broker that lets nobody in, and repeats the password in its reason."""

    def __init__(self, reason: str) -> None:
        self._reason = reason
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.passwords: set[bytes] = set()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> _Refusing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(10)

    def _accepted(self) -> Iterator[socket.socket]:
        while True:
            try:
                yield self._server.accept()[0]
            except OSError:
                return

    def _serve(self) -> None:
        for link in self._accepted():
            with link:
                link.settimeout(5)
                try:
                    packet = link.recv(4096)
                except OSError:
                    continue
                if not packet:
                    continue  # who only looks whether somebody is here
                password = packet[packet.rindex(b"Zq7v") :] if b"Zq7v" in packet else b""
                self.passwords.add(password)
                reason = self._reason.replace("{password}", password.decode()).encode()
                properties = b"\x1f" + len(reason).to_bytes(2, "big") + reason
                body = b"\x00\x87" + _length(len(properties)) + properties
                link.sendall(b"\x20" + _length(len(body)) + body)


def _length(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128, number >> 7])
