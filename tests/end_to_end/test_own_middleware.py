"""The how-to is true: a made-up middleware, one file, no Python, and every line it promises is printed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from battlebrokers.contenders.reader import parse_contender
from battlebrokers.errors import ExitCode, InputError
from battlebrokers.tables.run_folder import RunFolder
from support.cost_table import cost_table
from support.runs import bb, run_for_real, write_scenario

HOW_TO = (Path(__file__).parents[2] / "docs" / "how-to" / "add-a-middleware.md").read_text(encoding="utf-8")
SERVER = Path(__file__).parents[1] / "support" / "noticeboard.py"
[SPEC] = re.findall(r"```yaml\n(.*?)```", HOW_TO, re.DOTALL)

TALK = """
name: notes
protocol: http
seed: 3
fleets:
  rooms: {devices: 4, topic: "house/{device}", payload: {random_bytes: 40..400}, every: 50ms, at_most: 20}
clients:
  wall: {count: 2, subscribe: ["house/+"]}
phases: {connect: 100/s, measure: 2s, drain: 10s}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the file of the how-to, and the made-up program on PATH."""
    programs = tmp_path / "programs"
    programs.mkdir()
    program = programs / "noticeboard"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{SERVER}" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    (tmp_path / "noticeboard.yaml").write_text(SPEC, encoding="utf-8")
    return tmp_path


@pytest.mark.broker
def test_what_the_how_to_prints_is_what_is_printed(folder: Path) -> None:
    tried = bb("brokers", "test", "noticeboard.yaml", "--trust", cwd=folder)
    assert tried.code == 0, tried.out + tried.err
    [promised] = re.findall(r"\$ bb brokers test noticeboard.yaml --trust\n(.*?)```", HOW_TO, re.DOTALL)
    said = tried.out.replace(str(folder / "programs"), "/usr/local/bin")
    assert said.splitlines() == promised.splitlines()


@pytest.mark.broker
def test_a_file_that_promises_what_does_not_come_is_found_out(folder: Path) -> None:
    (folder / "wrong.yaml").write_text(
        SPEC.replace('"${payload}"}, is: 201', '"${payload}"}, is: 299'), encoding="utf-8"
    )
    tried = bb("brokers", "test", "wrong.yaml", "--trust", "--json", cwd=folder)
    assert tried.code == 10, tried.out + tried.err
    failed = [each for each in tried.json() if each["holds"] is False]
    assert [(each["what"], each["detail"]) for each in failed] == [("publish", "refused, 201")]
    not_tried = [each["what"] for each in tried.json() if each["detail"].startswith("not tried")]
    assert {"exactly once", "topics", "64 KiB"} <= set(not_tried)


@pytest.mark.broker
def test_the_middleware_of_the_how_to_carries_a_scenario(folder: Path) -> None:
    run = run_for_real(write_scenario(folder, TALK), str(folder / "noticeboard.yaml"), folder / "runs")
    manifest = run.read_manifest()
    assert manifest.state == "finished", manifest.detail
    counted = manifest.workers[0].counters
    assert counted["sent"] == 80
    assert counted["received"] == 160


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_every_command_of_the_how_to_does_what_it_says(folder: Path, require_broker: Callable[[str], str]) -> None:
    require_broker("mosquitto")
    (folder / "noticeboard.yaml").unlink()
    said = re.findall(r"^\$ bb (.*)$", HOW_TO, re.MULTILINE)
    assert [line.split()[0] for line in said] == ["brokers", "brokers", "run", "battle"]
    began, _, run, battle = (line.split() for line in said)
    made = bb(*began, cwd=folder)
    [promised] = re.findall(r"\$ bb brokers new noticeboard\n(.*?)\n```", HOW_TO, re.DOTALL)
    assert (made.code, made.out.strip()) == (0, promised)
    # What the scaffold becomes is the file of this page.
    (folder / "noticeboard.yaml").write_text(SPEC, encoding="utf-8")
    # A busy machine may make a measurement void, which is told; what was sent came all the same.
    played = bb(*run, cwd=folder)
    assert played.code in (ExitCode.PASS, ExitCode.VOID), played.out + played.err
    fought = bb(*battle, cwd=folder)
    assert fought.code in (ExitCode.PASS, ExitCode.VOID), fought.out + fought.err
    runs = [RunFolder(place).read_manifest() for place in sorted((folder / "runs").iterdir()) if place.is_dir()]
    assert sorted(run.contender.name for run in runs) == ["mosquitto", "noticeboard", "noticeboard"]
    for manifest in runs:
        counted = manifest.workers[0].counters
        assert (manifest.state, counted["sent"], counted["received"]) == ("finished", 200, 200)
    [page] = (folder / "runs").glob("battle-*.html")
    assert sorted(row["contender"] for row in cost_table(page)) == ["mosquitto", "noticeboard"]


def test_the_mistake_of_the_how_to_is_told_as_it_says() -> None:
    [promised] = re.findall(r"```text\n(.*?)\n```", HOW_TO, re.DOTALL)
    with pytest.raises(InputError) as caught:
        parse_contender(SPEC.replace("${payload}", "${paylod}"), "noticeboard.yaml")
    assert promised in caught.value.message


def test_the_file_is_as_long_as_the_how_to_says() -> None:
    lines = [line for line in SPEC.splitlines() if line.strip() and not line.strip().startswith("#")]
    assert "Twenty-three lines." in HOW_TO
    assert len(lines) == 23
