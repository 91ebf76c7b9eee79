"""Two analyses of one run: the second is refused and told who has it; a killed one leaves nothing locked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from battlebrokers.catalog.analysis_lock import LOCK, analysis_lock
from battlebrokers.errors import EnvironmentNotReady, ExitCode

HOLD = """
import sys
from pathlib import Path
from battlebrokers.catalog.analysis_lock import analysis_lock
with analysis_lock(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def _holder(folder: Path) -> subprocess.Popen[str]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "locked\n"
    return holder


def test_a_second_analysis_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    with _holder(tmp_path) as holder:
        with pytest.raises(EnvironmentNotReady, match=f"is being analysed by process {holder.pid}") as caught:
            analysis_lock(tmp_path).__enter__()
        assert caught.value.exit_code is ExitCode.ENVIRONMENT
        assert str(holder.pid) in caught.value.hint
        holder.communicate("")
    with analysis_lock(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_killed_analysis_leaves_the_run_free(tmp_path: Path) -> None:
    with _holder(tmp_path) as holder:
        holder.kill()
        holder.wait()
    assert (tmp_path / LOCK).exists()
    with analysis_lock(tmp_path):
        pass
    assert not (tmp_path / LOCK).exists()


def test_the_lock_is_refused_within_one_process_too(tmp_path: Path) -> None:
    with analysis_lock(tmp_path), pytest.raises(EnvironmentNotReady, match=f"process {os.getpid()}"):
        analysis_lock(tmp_path).__enter__()


def test_where_no_lock_can_be_made_who_writes_the_tables_will_say_why(tmp_path: Path) -> None:
    with analysis_lock(tmp_path / "away"):
        pass
    (tmp_path / LOCK).mkdir()
    with analysis_lock(tmp_path):
        pass
