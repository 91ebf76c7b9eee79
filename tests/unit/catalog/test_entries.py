from __future__ import annotations

from pathlib import Path

import pytest

from battlebrokers.analysis.conclusion import conclude
from battlebrokers.catalog.entries import find_runs, runs_directory
from battlebrokers.clock import SECOND_NS
from battlebrokers.errors import RunFolderError
from battlebrokers.tables.manifest import BattleFacts


def test_runs_are_listed_newest_first_with_their_verdict(make_run, tmp_path):
    conclude(make_run(run="old1a").healthy().write())
    make_run(run="new1a", started_ns=1_800_000_000 * SECOND_NS, battle=BattleFacts("b1", 2, 0)).healthy().write()
    entries = find_runs(tmp_path / "runs")
    assert [entry.run for entry in entries] == ["new1a", "old1a"]
    assert [entry.verdict for entry in entries] == ["", "PASS"]
    assert (entries[0].battle, entries[0].block) == ("b1", 2)
    assert (entries[0].scenario, entries[0].contender, entries[0].version) == ("smart-city", "mosquitto", "2.1.2")


@pytest.mark.parametrize("content", [b"", b"{", b"\x00\xff" * 50, b"[]", b'{"run": 7}', b"null"])
def test_a_damaged_run_is_listed_as_damaged(make_run, tmp_path, content):
    make_run(run="good1").healthy().write()
    folder = make_run(run="hurt1").healthy().write()
    folder.manifest_path.write_bytes(content)
    entries = find_runs(tmp_path / "runs")
    assert [entry.run for entry in entries] == ["good1", "hurt1"]
    assert "damaged" in entries[1].damage


def test_a_damaged_summary_only_hides_the_verdict(make_run, tmp_path):
    folder = make_run().healthy().write()
    folder.summary_path.write_text("{oops")
    (entry,) = find_runs(tmp_path / "runs")
    assert (entry.verdict, entry.damage) == ("", "")


def test_other_folders_and_files_are_not_runs(make_run, tmp_path):
    make_run().healthy().write()
    (tmp_path / "runs" / "battle-1.html").write_text("x")
    (tmp_path / "runs" / "notes").mkdir()
    assert len(find_runs(tmp_path / "runs")) == 1


def test_no_directory_means_no_runs(tmp_path):
    assert find_runs(tmp_path / "nowhere") == []


def test_a_file_is_no_directory_of_runs(tmp_path):
    (tmp_path / "runs").write_text("x")
    with pytest.raises(RunFolderError, match="cannot be read"):
        find_runs(tmp_path / "runs")


def test_the_directory_is_the_one_given_else_the_environment_else_runs(monkeypatch):
    monkeypatch.delenv("BB_RUNS", raising=False)
    assert runs_directory() == Path("runs")
    monkeypatch.setenv("BB_RUNS", "/data/runs")
    assert runs_directory() == Path("/data/runs")
    assert runs_directory(Path("mine")) == Path("mine")
