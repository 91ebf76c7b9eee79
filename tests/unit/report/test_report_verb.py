from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from battlebrokers.cli.compare import compare
from battlebrokers.cli.report import report
from battlebrokers.errors import RunFolderError, UsageError
from battlebrokers.tables.manifest import BattleFacts

app = typer.Typer()
app.command("report")(report)
app.command("compare")(compare)


@pytest.fixture
def bb(tmp_path):
    def invoke(verb, *arguments):
        return CliRunner().invoke(app, [verb, "--runs", str(tmp_path / "runs"), *arguments], catch_exceptions=False)

    return invoke


def test_without_options_the_run_is_told_in_the_terminal(bb, make_run):
    make_run(run="k3f9a").healthy().write()
    assert "PASS   smart-city on mosquitto" in bb("report", "LAST").stdout


def test_json_is_the_documented_object_on_stdout(bb, make_run):
    make_run(run="k3f9a").healthy().write()
    assert json.loads(bb("report", "k3f", "--json").stdout)["run"] == "k3f9a"


def test_files_are_written_where_asked(bb, make_run, tmp_path):
    make_run(run="k3f9a").healthy().write()
    out = tmp_path / "out"
    done = bb("report", "LAST", "--html", str(out / "r.html"), "--csv", str(out / "csv"), "--junit", str(out / "j.xml"))
    assert done.exit_code == 0
    assert sorted(path.name for path in out.iterdir()) == ["csv", "j.xml", "r.html"]
    assert done.stdout == ""
    assert "wrote" in done.stderr


def test_several_runs_are_a_battle(bb, make_run, tmp_path):
    for order, name in enumerate(["mosquitto", "amqtt"]):
        make_run(run=f"r{order}", contender=name, battle=BattleFacts("b1", 0, order)).healthy(600, 2.0 + order).write()
    assert "BATTLE" in bb("report", "b1").stdout
    assert "### Battle" in bb("report", "r0", "r1", "--markdown").stdout
    bb("report", "b1", "--csv", str(tmp_path / "csv"))
    assert sorted(path.name for path in (tmp_path / "csv").iterdir()) == ["r0", "r1"]


def test_open_shows_the_page_in_a_browser(bb, make_run, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    folder = make_run(run="k3f9a").healthy().write()
    bb("report", "LAST", "--open")
    assert opened == [folder.report_path.resolve().as_uri()]
    assert folder.report_path.exists()


def test_a_missing_run_is_a_clear_error(bb):
    with pytest.raises(RunFolderError, match="no run 'nope'"):
        bb("report", "nope")


def test_a_place_that_cannot_be_written_is_a_usage_error(bb, make_run, tmp_path):
    make_run(run="k3f9a").healthy().write()
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="cannot be written"):
        bb("report", "LAST", "--html", str(tmp_path / "file" / "r.html"))


def test_compare_prints_a_table_or_json(bb, make_run):
    make_run(run="aaaaa").healthy().write()
    make_run(run="bbbbb").healthy(ms=4.0).write()
    assert "worse" in bb("compare", "aaaaa", "bbbbb").stdout
    found = json.loads(bb("compare", "aaaaa", "bbbbb", "--json").stdout)
    assert (found["baseline"], found["contender"]) == ("aaaaa", "bbbbb")


def test_compare_refuses_runs_not_made_alike(bb, make_run):
    make_run(run="aaaaa").healthy().write()
    make_run(run="bbbbb", seed=9).healthy().write()
    with pytest.raises(UsageError, match="the seeds differ"):
        bb("compare", "aaaaa", "bbbbb")
    assert "not made alike" in bb("compare", "aaaaa", "bbbbb", "--anyway").stdout
