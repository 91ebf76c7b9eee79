from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from battlebrokers.catalog.analysis_lock import analysis_lock
from battlebrokers.errors import ExitCode
from battlebrokers.processes import own_identity
from support.made_up_runs import make_run

__all__ = ["make_run"]


@pytest.mark.parametrize("part", [".", "measures", "measures/ledger"])
def test_tables_that_may_not_be_replaced_are_left_alone_before_anything_starts(make_run, part):
    folder = make_run().healthy().write()
    ledger = {file: file.read_bytes() for file in folder.path.glob("measures/ledger/*")}
    assert ledger
    powerless = []
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("as root nothing is forbidden, and setpriv is not here to change that")
        powerless = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"]
    command = [*powerless, sys.executable, "-m", "battlebrokers.cli.main", "analyze", str(folder.path)]
    place = folder.path / part
    place.chmod(0o500)
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    finally:
        place.chmod(0o700)
    assert said.returncode == ExitCode.ENVIRONMENT
    assert f"{place} is not yours to change" in said.stderr
    assert "--out" in said.stderr
    assert {file: file.read_bytes() for file in folder.path.glob("measures/ledger/*")} == ledger


def _analyze(folder):
    command = [sys.executable, "-m", "battlebrokers.cli.main", "analyze", str(folder.path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_a_run_that_is_being_analysed_is_refused_with_the_process_that_does_it(make_run):
    folder = make_run().healthy().write()
    with analysis_lock(folder.path):
        said = _analyze(folder)
    assert said.returncode == ExitCode.ENVIRONMENT
    assert f"is being analysed by process {os.getpid()}" in said.stderr


def test_a_run_that_is_still_under_way_is_refused(make_run):
    said = _analyze(make_run(state="running", process=own_identity()).healthy().write())
    assert said.returncode == ExitCode.ENVIRONMENT
    assert f"still under way: process {os.getpid()}" in said.stderr


def test_an_impossible_manifest_is_refused_before_anything_starts(make_run):
    folder = make_run(started_ns=0).healthy().write()
    said = _analyze(folder)
    assert said.returncode == ExitCode.INVALID_INPUT
    assert "started_ns is 0" in said.stderr
