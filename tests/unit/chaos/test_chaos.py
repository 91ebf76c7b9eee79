"""What chaos judges and tells, and that its own machinery notices what is wrong."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from chaos.__main__ import all_faults, main
from chaos.fault import Fault, Must, Result, Seen
from chaos.judging import complaints_about
from chaos.place import Place
from chaos.pool import try_all
from chaos.telling import as_json, block, total, with_block

WELL = Seen(0, "", 1.0, 1.0, 10)
PASS = Must(frozenset({0}))


def test_there_are_at_least_200_faults_with_names_of_their_own() -> None:
    faults = all_faults()
    names = [one.full_name for one in faults]
    assert len(set(names)) == len(names) >= 200
    assert {one.group for one in faults} >= {"kill", "pause", "interrupt", "disk", "limits", "server", "file"}
    assert {one.group for one in faults if one.short} >= {"kill", "interrupt", "disk", "server", "file"}


@pytest.mark.parametrize(
    ("seen", "must", "said"),
    [
        (replace(WELL, code=1), PASS, "exit code 1"),
        (replace(WELL, code=None), PASS, "did not end"),
        (replace(WELL, said="Traceback (most recent call last)"), PASS, "a traceback"),
        (replace(WELL, code=3), Must(frozenset({3})), "no error message"),
        (replace(WELL, code=3, said="error: a\nerror: b"), Must(frozenset({3})), "2 error messages"),
        (replace(WELL, code=3, said="error: a"), Must(frozenset({3}), says="disk"), "does not say"),
        (replace(WELL, said="a\x1b[2J"), PASS, "control character"),
        (replace(WELL, peak_mib=10_000), PASS, "used 10000 MiB"),
        (replace(WELL, after_fault_s=9), Must(frozenset({0}), ends_within_s=2), "after the fault"),
        (replace(WELL, left=("mosquitto",)), PASS, "left a process"),
        (replace(WELL, files_left=("bb-x",)), PASS, "temporary file"),
        (replace(WELL, unreadable=("a.parquet",)), PASS, "cannot be read"),
        (WELL, Must(frozenset({0}), states=frozenset({"killed"})), "no run folder"),
        (
            replace(WELL, runs=(("running", ""),)),
            Must(frozenset({0}), states=frozenset({"killed"})),
            "listed as 'running'",
        ),
        (replace(WELL, runs=(("", "is damaged"),)), PASS, "damaged run folder"),
        (WELL, Must(frozenset({0}), evidence=True), "nothing recorded"),
    ],
)
def test_whatever_does_not_hold_is_a_complaint(seen: Seen, must: Must, said: str) -> None:
    assert [one for one in complaints_about(seen, must) if said in one], complaints_about(seen, must)


def test_nothing_is_complained_of_when_all_holds() -> None:
    assert complaints_about(WELL, PASS) == ()
    assert (
        complaints_about(replace(WELL, code=4, said="error: disk full\nhint: x"), Must(frozenset({4}), says="FULL"))
        == ()
    )


def _shell(script: str):
    def apply(place: Place) -> Seen:
        place.start(["sh", "-c", script])
        return place.seen()

    return apply


def _left(marker: str) -> str:
    return subprocess.run(["pgrep", "-f", marker], capture_output=True, text=True, check=False).stdout


def test_processes_files_and_hangs_are_noticed_and_cleared_away(tmp_path: Path) -> None:
    marker = "86413.25"
    faults = [
        Fault("t", "well", _shell("true"), PASS),
        Fault("t", "orphan", _shell(f"setsid sleep {marker} & exit 0"), PASS),
        Fault("t", "file", _shell("touch $TMPDIR/left"), PASS),
        Fault("t", "hang", _shell(f"sleep {marker}"), PASS, within_s=1),
        Fault("t", "elsewhere", _shell("true"), PASS, needs="no-such-program"),
    ]
    told: list[Result] = []
    results = {one.fault: one for one in try_all(faults, tmp_path, 3, told.append)}
    assert len(told) == len(results) == 5
    assert results["t/well"].held
    assert "left a process" in results["t/orphan"].complaints[0]
    assert "temporary file: left" in results["t/file"].complaints[0]
    assert "did not end" in results["t/hang"].complaints[0]
    assert results["t/elsewhere"].skipped == "no-such-program is not installed"
    assert not _left(f"sleep {marker}")
    assert total(list(results.values())) == "tried 4, held 1, lost 3, not tried here 1"


def test_figures_go_into_the_page_in_place_of_older_ones() -> None:
    told = as_json([Result("kill/a", 1.0, 5), Result("kill/b", 1.0, 1, ("exit code 1, not 5",))], 90)
    assert (told["tried"], told["held"], told["lost"]) == (2, 1, 1)
    page = Path("docs/explanation/robustness.md").read_text(encoding="utf-8")
    once = with_block(page, block(told))
    assert "`kill/b`: exit code 1, not 5" in once
    assert with_block(once, block(told)) == once
    with pytest.raises(ValueError, match="no place"):
        with_block("nothing", block(told))


def test_a_fault_that_is_lost_makes_the_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = Fault("t", "wrong", _shell("echo error: no; exit 3"), PASS)
    monkeypatch.setattr("chaos.__main__.all_faults", lambda: [wrong])
    assert main([]) == 1
    assert "tried 1, held 0, lost 1" in capsys.readouterr().out
    monkeypatch.setattr("chaos.__main__.all_faults", lambda: [replace(wrong, must=Must(frozenset({3})))])
    assert main([]) == 0
    assert sys.exc_info() == (None, None, None)
