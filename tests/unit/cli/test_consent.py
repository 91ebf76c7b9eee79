from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from battlebrokers.cli import consent
from battlebrokers.cli.app import app
from battlebrokers.contenders.reader import SPECS
from battlebrokers.errors import BattleError, ExitCode, UsageError
from support.runs import BB

# Every way a file has to get something run, each leaving its own trace.
HUB = """\
name: hub
about: A hub.
needs: {{sh: {{executable: sh, at_least: "0"}}}}
install: {{npm: [hub@1]}}
version: [{{command: [/usr/bin/touch, "{traces}/version"]}}]
capabilities: {{since: {{"9": {{qos: 2}}}}}}
ports: [mqtt]
endpoints: {{tcp: "mqtt://${{host}}:${{port.mqtt}}"}}
run: {{command: ["${{sh}}", -c, "touch {traces}/main; exec sleep 9"], env: {{A: "\\e[2Jb"}}}}
beside: {{db: {{executable: sh, command: ["${{db}}", -c, "touch {traces}/beside; exec sleep 9"]}}}}
files: {{hub.conf: "x"}}
ready: {{within_s: 0.5}}
"""
SCENARIO = """\
name: one
fleets: {room: {devices: 1, topic: a, payload: {random_bytes: 10}, every: 1s}}
phases: {measure: 1s}
"""
EXTERNAL = """\
name: hub
about: A hub somebody else runs.
version: [{{command: [/usr/bin/touch, "{traces}/version"]}}]
needs: {{sh: {{executable: sh, at_least: "0"}}}}
ports: {{mqtt: 1}}
endpoints: {{tcp: "mqtt://${{host}}:${{port.mqtt}}"}}
run: {{external: true}}
"""


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    place = tmp_path / "traces"
    place.mkdir(mode=0o777)
    return place


@pytest.fixture
def folder(tmp_path: Path, traces: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "hub.yaml").write_text(HUB.format(traces=traces))
    (tmp_path / "one.yaml").write_text(SCENARIO)
    return tmp_path


VERBS = (
    ["run", "one.yaml", "--broker", "hub.yaml"],
    ["battle", "one.yaml", "amqtt", "hub.yaml"],
    ["brokers", "test", "hub.yaml"],
    ["brokers", "install", "hub.yaml"],
)


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_nothing_of_a_foreign_file_runs_where_nobody_can_be_asked(folder: Path, traces: Path, verb: list[str]) -> None:
    refused = CliRunner().invoke(app, verb)
    assert isinstance(refused.exception, UsageError)
    assert refused.exception.exit_code is ExitCode.USAGE
    assert "--trust" in refused.exception.hint
    assert refused.exception.message.startswith("hub.yaml did not come with BattleBrokers")
    assert list(traces.iterdir()) == []
    assert not (folder / "runs").exists()


def test_what_would_start_is_told_exactly_and_moves_no_cursor(folder: Path, traces: Path) -> None:
    refused = CliRunner().invoke(app, ["brokers", "test", "hub.yaml"])
    assert isinstance(refused.exception, UsageError)
    shell = refused.exception.message.splitlines()[1].partition(": ")[2].removesuffix(" --version")
    assert Path(shell).name == "sh"
    assert [line.strip() for line in refused.exception.message.splitlines()[1:]] == [
        f"asks for a version: {shell} --version",
        f"asks for a version: /usr/bin/touch {traces}/version",
        f"starts beside it: {shell} -c 'touch {traces}/beside; exec sleep 9'",
        f"starts: {shell} -c 'touch {traces}/main; exec sleep 9'",
        "with: 'A=\\x1b[2Jb'",
        "configured by: hub.conf",
    ]


def test_secrets_in_the_environment_are_masked_however_they_are_quoted_or_short(folder: Path, traces: Path) -> None:
    env = """env: {ADMIN_PASSWORD: "hu'nter two", DB_PASSWORD: pw12, JAVA_OPTS: "-Dpassword=qq77 -Dx=1"}"""
    (folder / "hub.yaml").write_text(HUB.format(traces=traces).replace('env: {A: "\\e[2Jb"}', env))
    refused = CliRunner().invoke(app, ["brokers", "test", "hub.yaml"])
    assert isinstance(refused.exception, UsageError)
    line = next(line for line in refused.exception.message.splitlines() if "with: " in line)
    assert "ADMIN_PASSWORD=" in line
    assert not [part for part in ("nter", "pw12", "qq77") if part in line]


def test_installing_tells_what_it_runs(folder: Path) -> None:
    refused = CliRunner().invoke(app, ["brokers", "install", "hub.yaml"])
    assert isinstance(refused.exception, UsageError)
    last = refused.exception.message.splitlines()[-1]
    assert "installs: " in last
    assert last.endswith(" hub@1")
    assert str(folder / "cache") in last


def test_at_a_terminal_the_user_is_asked(folder: Path, traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([False, True])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(consent.typer, "confirm", lambda *_, **__: next(answers))
    with pytest.raises(UsageError, match=r"hub\.yaml is not trusted; nothing of it was run"):
        consent.require_trust(["hub.yaml"], "stock", trusted=False)
    consent.require_trust(["hub.yaml"], "stock", trusted=False)
    assert list(traces.iterdir()) == []


@pytest.mark.parametrize(
    ("answer", "code"), [("n", ExitCode.USAGE), ("", ExitCode.USAGE), ("y", ExitCode.BROKER_FAILED)]
)
def test_a_real_terminal_shows_what_would_start_and_waits_for_yes(
    folder: Path, traces: Path, answer: str, code: ExitCode
) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [BB, "brokers", "test", "hub.yaml"], cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(ours, 4096)
    assert list(traces.iterdir()) == []
    assert f"touch {traces}/main".encode() in shown
    os.write(ours, f"{answer}\n".encode())
    with contextlib.suppress(OSError):  # the end of a terminal is an error on Linux
        while os.read(ours, 4096):
            pass
    assert process.wait(60) == code
    assert (traces / "version").exists() is (answer == "y")
    os.close(ours)


def test_trust_lets_it_run_and_says_first_what(folder: Path, traces: Path) -> None:
    tried = CliRunner().invoke(app, ["brokers", "test", "hub.yaml", "--trust"])
    assert isinstance(tried.exception, BattleError), tried.output
    assert tried.exception.exit_code is ExitCode.BROKER_FAILED
    assert "starts beside it: " in tried.stdout
    assert (traces / "version").exists()


def test_one_that_somebody_else_runs_needs_no_trust_and_runs_nothing(folder: Path, traces: Path) -> None:
    (folder / "hub.yaml").write_text(EXTERNAL.format(traces=traces))
    for verb in (["brokers", "test", "hub.yaml"], ["brokers", "install", "hub.yaml"]):
        told = CliRunner().invoke(app, verb)
        assert not isinstance(told.exception, UsageError), told.exception
    assert list(traces.iterdir()) == []


def test_a_host_makes_what_would_be_started_somebody_elses(folder: Path) -> None:
    boxed = EXTERNAL.format(traces=folder).replace("{external: true}", '{container: "vendor/hub:1"}')
    (folder / "hub.yaml").write_text(boxed)
    consent.require_trust(["hub.yaml@127.0.0.1"], "stock", trusted=False)
    with pytest.raises(UsageError, match="starts: the container vendor/hub:1"):
        consent.require_trust(["hub.yaml"], "stock", trusted=False)


def test_a_refusal_comes_before_anything_runs(folder: Path, traces: Path) -> None:
    text = (folder / "one.yaml").read_text().replace("topic: a,", "topic: a, protocol: coap,")
    (folder / "one.yaml").write_text(text)
    refused = CliRunner().invoke(
        app, ["battle", "one.yaml", "hub.yaml", "hub.yaml", "--trust", "--runs", str(folder / "runs")]
    )
    assert isinstance(refused.exception, BattleError)
    assert refused.exception.exit_code is ExitCode.INVALID_INPUT, refused.exception
    assert list(traces.iterdir()) == []


def test_what_came_with_us_and_urls_need_no_trust() -> None:
    consent.require_trust(
        ["mosquitto", "mqtt://127.0.0.1:1", "mqtt://h/x.yaml", str(SPECS / "mosquitto.yaml")], "tuned", trusted=False
    )
