"""A disk that is full before the broker is up: the disk is named, not the broker."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from battlebrokers.errors import ContenderError, EnvironmentNotReady, ExitCode
from battlebrokers.run import orchestrator
from battlebrokers.run.orchestrator import Orchestrator, RunRequest
from battlebrokers.scenario.reader import load_scenario
from support.runs import write_scenario

SCENARIO = """\
name: one
fleets: {room: {devices: 1, topic: a, payload: {random_bytes: 10}, every: 1s}}
phases: {measure: 1s}
"""
FULL = os.strerror(errno.ENOSPC)


@pytest.mark.parametrize(
    "failure",
    [
        OSError(errno.ENOSPC, FULL, ".0123.tmp"),
        OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
        ContenderError(f"amqtt cannot be started: {FULL}: output.log"),
        ContenderError(f"amqtt did not start: it ended with status 1\n  its last lines:\n    write: {FULL}"),
    ],
    ids=["file", "quota", "output", "last words"],
)
def test_a_full_disk_before_the_load_is_exit_4_and_names_the_place_and_the_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    async def fails(*_: object) -> None:
        raise failure

    monkeypatch.setattr(orchestrator, "start_patiently", fails)
    loaded = load_scenario(str(write_scenario(tmp_path, SCENARIO)), [], 1.0)
    run = Orchestrator(RunRequest(loaded, "amqtt", 1, tmp_path / "runs"))
    with pytest.raises(EnvironmentNotReady) as told:
        asyncio.run(run.run())
    assert told.value.exit_code is ExitCode.ENVIRONMENT
    assert str(tmp_path / "runs") in told.value.message
    assert "the evidence of this load takes about" in told.value.message
    assert "bb analyze" not in told.value.hint  # nothing was kept
    assert list((tmp_path / "runs").iterdir()) == []


def test_another_failure_of_the_broker_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: object) -> None:
        raise ContenderError("amqtt did not start: it ended with status 1")

    monkeypatch.setattr(orchestrator, "start_patiently", fails)
    loaded = load_scenario(str(write_scenario(tmp_path, SCENARIO)), [], 1.0)
    run = Orchestrator(RunRequest(loaded, "amqtt", 1, tmp_path / "runs"))
    with pytest.raises(ContenderError, match="status 1"):
        asyncio.run(run.run())
