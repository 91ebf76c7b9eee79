"""Passwords and tokens in every place where one can stand: they reach the broker, and nothing else ever shows them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest

from battlebrokers.cli import app
from battlebrokers.secrets import forget_all
from support.links import mosquitto
from support.runs import start_bb, write_scenario
from support.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.xdist_group("secrets")]

MARK = "Zq7vmark"
"""Part of every planted secret; nothing else is called so."""
URL_PASSWORD, URL_TOKEN = f"{MARK}/url@pass", f"{MARK}urltoken"
WRITTEN, ANCHORED, GIVEN = f"{MARK} written: here", f"{MARK}anchored", f"{MARK}given"
ENVIRONMENT, FROM_FILE = f"{MARK}environment", f"{MARK}file"
PROMETHEUS, TAG = f"{MARK}prometheus", f"{MARK}tag"

SCENARIO = f"""
name: guarded
defaults: {{protocol: mqtt, transport: ws, qos: 1, every: 200ms, payload: {{random_bytes: 40}}}}
fleets:
  written:  # its password is {ANCHORED}, as everybody knows
    devices: 1
    topic: guarded/{{device}}
    credentials: {{username: written, password: "{WRITTEN}"}}
  anchored: {{devices: 1, topic: "guarded/{{device}}", credentials: {{username: anchored, password: &it {ANCHORED}}}}}
  given: {{devices: 1, topic: "guarded/{{device}}"}}
  environment:
    devices: 1
    topic: guarded/{{device}}
    credentials: {{username: environment, password: "{{env:BB_TEST_SECRET}}"}}
  file: {{devices: 1, topic: "guarded/{{device}}", credentials: {{csv: logins.csv}}}}
clients:
  url: {{count: 1, subscribe: "guarded/#"}}
phases: {{measure: 2s, drain: 2s, quiet: 500ms}}
"""
USERS = {
    "url": URL_PASSWORD, "written": WRITTEN, "anchored": ANCHORED, "given": GIVEN, "environment": ENVIRONMENT,
    "file": FROM_FILE,
}  # fmt: skip


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Mosquitto that lets in only those who know their password, over WebSocket."""
    folder = tmp_path_factory.mktemp("broker")
    passwords = folder / "passwords"
    passwords.touch()
    for name, password in USERS.items():
        subprocess.run(["mosquitto_passwd", "-b", str(passwords), name, password], check=True, capture_output=True)
    lines = ("allow_anonymous false", f"password_file {passwords}", "user root")
    with mosquitto(folder, *lines, listeners=[(), ("protocol websockets",)]) as (_, port):
        yield f"ws://url:{quote(URL_PASSWORD, safe='')}@127.0.0.1:{port}/mqtt?token={URL_TOKEN}"


@pytest.mark.timeout(600)
def test_no_secret_is_shown_or_kept_anywhere(
    guarded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BB_TEST_SECRET", ENVIRONMENT)
    write_scenario(tmp_path, SCENARIO)
    (tmp_path / "logins.csv").write_text(f"username,password\nfile,{FROM_FILE}\n")
    runs, log = tmp_path / "runs", tmp_path / "told.txt"
    options = (
        "--set", f"fleets.given.credentials={{username: given, password: {GIVEN}}}",
        "--tag", f"api_token={TAG}", "--prometheus", f"http://prom:{PROMETHEUS}@127.0.0.1:1",
        "--metric", "broker.rss_bytes=process_resident_memory_bytes", "--processes", "2",
    )  # fmt: skip
    umask = os.umask(0)  # not even then may others look into a run
    try:
        process = start_bb("run", "scenario.yaml", "--broker", guarded, *options, cwd=tmp_path, log=log)
        arguments = _Arguments()
        try:
            # What the shell handed over is overwritten first of all; from the first word on nothing may be seen.
            until(lambda: runs.exists() and any(runs.iterdir()), what="a run folder")
            arguments.start()
            code = process.wait(240)
        finally:
            arguments.stop()
            process.kill()
            process.wait()
    finally:
        os.umask(umask)
    told = log.read_text()
    assert code in (0, 6), told
    (folder,) = (path for path in runs.iterdir() if path.is_dir())

    # They were needed: each of them opened a connection.
    operations = pq.read_table(folder / "recorded" / "operations").to_pylist()
    connects = [row["outcome"] for row in operations if row["kind"] == "connect"]
    assert connects == ["ok"] * len(USERS)
    assert arguments.seen > 3
    assert arguments.with_secrets == []

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert MARK not in folder.name
    assert folder.name.split("-", 2)[2].startswith("ws-127.0.0.1")
    assert 'secrets_masked": true' in (folder / "manifest.json").read_text()
    assert "{env:BB_TEST_SECRET}" in (folder / "manifest.json").read_text()

    monkeypatch.chdir(tmp_path)
    for words in (
        ["list"], ["list", "--json"],
        ["report", "LAST"], ["report", "LAST", "--markdown"], ["report", "LAST", "--json"],
        ["report", "LAST", "--csv", "csv", "--html", "page.html", "--junit", "junit.xml"],
        ["check", "scenario.yaml", *options[:2]], ["check", "scenario.yaml", "--json", "--plan", "plan.jsonl"],
        ["check", "scenario.yaml", "--set", f"fleets.given.credentials.password=[{GIVEN}]"],
        ["check", "scenario.yaml", "--set", f"nothing.password={GIVEN}"],
        ["brokers", "test", guarded], ["doctor", "--broker", guarded],
        ["compare", "LAST", guarded], ["run", "scenario.yaml", "--scale", guarded],
    ):  # fmt: skip
        told += _told(words, monkeypatch, capsys)
    assert "•••" in told
    assert MARK not in told, [line for line in told.splitlines() if MARK in line]
    planted = {"scenario.yaml", "logins.csv"}
    assert [path for path in _files(tmp_path) if path.name not in planted and _holds_a_secret(path)] == []


def _told(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints in this process, which knows as little of secrets as a new one."""
    forget_all()
    monkeypatch.setattr(sys, "argv", ["bb", *words])
    monkeypatch.setattr(app, "print_errors_visibly", lambda: None)
    with pytest.raises(SystemExit):
        app.run_command_line()
    printed = capsys.readouterr()
    return printed.out + printed.err


class _Arguments(threading.Thread):
    """Looks at the arguments of all processes again and again."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._stopped = threading.Event()
        self.seen = 0
        self.with_secrets: list[str] = []

    def run(self) -> None:
        """Until it is stopped."""
        while not self._stopped.wait(0.05):
            self.seen += 1
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    words = path.read_bytes()
                except OSError:
                    continue
                if MARK.encode() in words:
                    self.with_secrets.append(words.decode(errors="replace"))

    def stop(self) -> None:
        """Look no more."""
        self._stopped.set()
        if self.is_alive():
            self.join()


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _holds_a_secret(path: Path) -> bool:
    if MARK in path.name or MARK.encode() in path.read_bytes():
        return True
    # Values in Parquet are compressed.
    return path.suffix == ".parquet" and MARK in str(pq.read_table(path).to_pydict())
