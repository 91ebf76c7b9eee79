"""The analysis process beside a run: it gets a moment to start before anybody connects, and is held until the drain."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from battlebrokers.run.glimpse import Glimpse
from battlebrokers.run.orchestrator import Orchestrator, RunRequest
from battlebrokers.scenario.reader import load_scenario
from support.runs import write_scenario

SHORT = """
name: short
fleets: {sensor: {devices: 2, topic: "short/{device}", payload: {random_bytes: 32}, every: 50/s}}
clients: {listener: {count: 1, subscribe: ["short/#"]}}
phases: {measure: 1s, drain: 1s, quiet: 800ms}
"""


class Noted:
    """Remembers what was done to it, between the phases that were seen."""

    def __init__(self, *, ready: bool) -> None:
        self.ready = ready
        self.seen: list[str] = []

    def note(self, what: str) -> None:
        if not self.seen or self.seen[-1] != what:
            self.seen.append(what)

    def watch(self, glimpse: Glimpse) -> None:
        self.note(glimpse.phase)

    def pause(self) -> None:
        self.note("paused")

    def resume(self) -> None:
        self.note("resumed")


@pytest.mark.slow
@pytest.mark.parametrize("ready", [True, False])
def test_it_is_held_before_anybody_connects_and_until_the_drain_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ready: bool
) -> None:
    monkeypatch.setattr("battlebrokers.run.orchestrator._GET_READY_NS", 300_000_000)
    background = Noted(ready=ready)
    loaded = load_scenario(str(write_scenario(tmp_path, SHORT)), [], 1.0)
    request = RunRequest(loaded=loaded, broker="loopback://", seed=1, runs=tmp_path / "runs")
    folder = asyncio.run(Orchestrator(request, background.watch, background).run())
    assert folder.read_manifest().state == "finished"
    assert ("analysis" in background.seen) is not ready, "who is ready is not waited for"
    steps = [what for what in background.seen if what not in ("start", "analysis", "connect")]
    assert steps[0] == "paused"
    assert "connect" not in background.seen[: background.seen.index("paused")]
    assert steps.index("measure") < steps.index("drain") < steps.index("resumed")
