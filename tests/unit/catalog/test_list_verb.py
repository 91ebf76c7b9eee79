from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from battlebrokers.analysis.conclusion import conclude
from battlebrokers.cli.list_runs import list_runs

app = typer.Typer()
app.command()(list_runs)


@pytest.fixture
def bb(tmp_path):
    return lambda *arguments: CliRunner().invoke(
        app, ["--runs", str(tmp_path / "runs"), *arguments], catch_exceptions=False
    )


def test_an_empty_directory_says_so(bb):
    assert "no runs in" in bb().stdout


def test_the_list_shows_every_run_plainly(bb, make_run):
    conclude(make_run(run="k3f9a").healthy().write())
    make_run(run="hurt1").healthy().write().manifest_path.write_text("{")
    make_run(run="made1", started_ns=0).healthy().write()
    shown = bb().stdout
    assert "k3f9a" in shown
    assert "PASS" in shown
    assert "mosquitto 2.1.2" in shown
    assert "damaged" in shown
    assert "invalid" in shown
    assert "started_ns is 0" in shown
    assert "\x1b" not in shown


def test_the_json_list_has_everything(bb, make_run):
    make_run(run="k3f9a").healthy().write()
    (entry,) = json.loads(bb("--json").stdout)
    assert entry["run"] == "k3f9a"
    assert entry["verdict"] is None
    assert entry["contender"] == {"name": "mosquitto", "version": "2.1.2"}


def test_the_limit_says_what_it_hides(bb, make_run):
    for index in range(3):
        make_run(run=f"run{index}").healthy(10).write()
    assert "2 older ones" in bb("--limit", "1").stdout
