from __future__ import annotations

import socket
from pathlib import Path

import msgspec
import pytest

from battlebrokers.analysis.conclusion import conclude
from battlebrokers.catalog.entries import find_runs, is_under_way, runs_directory, settled
from battlebrokers.clock import SECOND_NS
from battlebrokers.errors import RunFolderError
from battlebrokers.processes import ProcessIdentity, own_identity
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


def test_an_invalid_run_is_listed_as_invalid_and_the_list_goes_on(make_run, tmp_path):
    make_run(run="good1").healthy().write()
    make_run(run="made1", started_ns=10**18 * 9).healthy().write()
    entries = find_runs(tmp_path / "runs")
    assert [(entry.run, entry.state) for entry in entries] == [("good1", "finished"), ("made1", "invalid")]
    assert "started_ns" in entries[1].damage


def gone() -> ProcessIdentity:
    return msgspec.structs.replace(own_identity(), boot_id="before the machine was started again")


@pytest.mark.parametrize("state", ["starting", "running"])
def test_a_run_whose_process_is_gone_was_killed_and_one_whose_is_not_goes_on(make_run, tmp_path, state):
    make_run(run="dead1", state=state, process=gone()).healthy().write()
    make_run(run="live1", state=state, process=own_identity()).healthy().write()
    make_run(run="done1", process=gone()).healthy().write()
    found = {entry.run: entry for entry in find_runs(tmp_path / "runs")}
    states = {run: entry.state for run, entry in found.items()}
    assert states == {"dead1": "killed", "live1": state, "done1": "finished"}
    assert [run for run, entry in found.items() if is_under_way(entry.folder.read_manifest())] == ["live1"]


def test_a_run_of_an_older_version_is_known_by_its_worker(make_run, tmp_path):
    folder = make_run(run="old01", state="running").healthy().write()
    manifest = folder.read_manifest()
    manifest.workers = [msgspec.structs.replace(manifest.workers[0], host=socket.gethostname(), boot_id="before")]
    folder.write_manifest(manifest)
    (entry,) = find_runs(tmp_path / "runs")
    assert (entry.state, entry.killed_while) == ("killed", "running")


def test_a_run_killed_while_its_broker_started_says_so(make_run, tmp_path):
    folder = make_run(run="dead1", state="starting", process=gone()).write()
    manifest = folder.read_manifest()
    manifest.contender = msgspec.structs.replace(manifest.contender, endpoints={})
    folder.write_manifest(manifest)
    for state in ("starting", "killed"):
        assert folder.read_manifest().state == state
        (entry,) = find_runs(tmp_path / "runs")
        assert (entry.state, entry.killed_while) == ("killed", "starting")
        settled(folder)


def test_that_a_run_was_killed_is_written_down_before_it_is_analysed(make_run):
    folder = make_run(run="dead1", state="running", process=gone()).healthy().write()
    settled(folder)
    assert folder.read_manifest().state == "killed"
    conclusion = conclude(folder)
    assert (conclusion.summary.state, conclusion.summary.verdict) == ("killed", "VOID")
    assert conclusion.summary.reasons[0] == "the run was killed: it was still running"


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
