from __future__ import annotations

import pytest

from battlebrokers.catalog.references import resolve_run, resolve_runs
from battlebrokers.clock import SECOND_NS
from battlebrokers.errors import RunFolderError
from battlebrokers.tables.manifest import BattleFacts


@pytest.fixture
def three(make_run, tmp_path):
    folders = {}
    for age, run in enumerate(["k3f9a", "k3x22", "m7777"]):
        folders[run] = make_run(run=run, started_ns=(1_800_000_000 + age) * SECOND_NS).healthy(10).write()
    return tmp_path / "runs", folders


def test_an_id_or_its_start_is_enough(three):
    runs, folders = three
    assert resolve_run("k3f9a", runs) == folders["k3f9a"]
    assert resolve_run("m", runs) == folders["m7777"]


def test_the_folders_name_and_path_work_too(three):
    runs, folders = three
    folder = folders["m7777"]
    assert resolve_run(folder.path.name, runs) == folder
    assert resolve_run(str(folder.path), runs) == folder
    assert resolve_run(str(folder.manifest_path), runs) == folder


def test_last_counts_back_from_the_newest(three):
    runs, folders = three
    assert resolve_run("LAST", runs) == folders["m7777"]
    assert resolve_run("last~1", runs) == folders["k3x22"]
    assert resolve_run("LAST~2", runs) == folders["k3f9a"]
    with pytest.raises(RunFolderError, match="no run 'LAST~3'"):
        resolve_run("LAST~3", runs)


def test_an_ambiguous_start_lists_the_candidates(three):
    runs, _ = three
    with pytest.raises(RunFolderError, match="could be 2 runs") as caught:
        resolve_run("k3", runs)
    assert "k3f9a" in caught.value.message
    assert "k3x22" in caught.value.message
    assert caught.value.hint == "Type more of the id."


@pytest.mark.parametrize("reference", ["", "zzz", "LAST~", "../etc", "*", "\x00", "k3f9a/../../.."])
def test_nonsense_is_a_clear_error(three, reference):
    runs, _ = three
    with pytest.raises(RunFolderError):
        resolve_run(reference, runs)


def test_a_folder_that_is_no_run_is_named(three, tmp_path):
    with pytest.raises(RunFolderError, match="not a run folder"):
        resolve_run(f"{tmp_path}/", three[0])


def test_a_damaged_newest_run_is_not_last(three):
    runs, folders = three
    folders["m7777"].manifest_path.write_text("{")
    assert resolve_run("LAST", runs) == folders["k3x22"]


def test_a_battles_id_stands_for_its_runs_in_order(make_run, tmp_path):
    made = [
        make_run(run=f"r{b}{o}", battle=BattleFacts("feed", b, o)).healthy(10).write()
        for b, o in ((1, 0), (0, 1), (0, 0))
    ]
    found = resolve_runs(["feed", "r10"], tmp_path / "runs")
    assert found == [made[2], made[1], made[0]]


def test_an_invalid_run_of_a_battle_is_named_and_not_left_out(make_run, tmp_path):
    for order, started_ns in enumerate((1_790_000_000 * 10**9, 0)):
        battle = BattleFacts("b1", 0, order)
        make_run(run=f"run{order}", started_ns=started_ns, battle=battle).healthy().write()
    folders = resolve_runs(["b1"], tmp_path / "runs")
    assert sorted(folder.run_id for folder in folders) == ["run0", "run1"]
    with pytest.raises(RunFolderError, match=r"run1/manifest\.json is invalid: started_ns is 0"):
        [folder.read_manifest() for folder in folders]
