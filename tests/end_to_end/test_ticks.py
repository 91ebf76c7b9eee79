"""Loads above what a process handles as they come: in ticks, or by more processes. Counted without the pipeline."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from battlebrokers.clock import SECOND_NS
from battlebrokers.run.glimpse import Glimpse
from battlebrokers.run.orchestrator import Orchestrator, RunRequest
from battlebrokers.run.tick import FINE_UP_TO_PER_S, TICK_NS
from battlebrokers.scenario.reader import load_scenario
from battlebrokers.tables import DELIVERIES, PUBLISHES
from support.runs import run_for_real, write_scenario

pytestmark = [pytest.mark.alone, pytest.mark.broker, pytest.mark.slow]

PER_S = round(0.55 * FINE_UP_TO_PER_S)


def busy(folder: Path, measure_s: float) -> Path:
    """Ten pairs; with its deliveries more than the limit of one process, less than that of two."""
    return write_scenario(
        folder,
        f"""
name: busy
fleets: {{pub: {{devices: 10, topic: "busy/{{index}}", payload: {{random_bytes: 64}}, every: {PER_S // 10}/s}}}}
clients: {{sub: {{count: 10, subscribe: "busy/{{index}}"}}}}
phases: {{measure: {measure_s}s, drain: 30s, quiet: 2s}}
""",
    )


@pytest.mark.parametrize(("processes", "tick_ns"), [(1, TICK_NS), (2, 0)])
def test_a_busy_process_works_in_ticks_and_misses_nothing(tmp_path, require_broker, processes, tick_ns):
    require_broker("mosquitto")
    folder = run_for_real(busy(tmp_path, 0.4), "mosquitto", tmp_path / "runs", processes=processes)
    manifest = folder.read_manifest()
    worker = manifest.workers[0]
    assert (manifest.state, worker.tick_ns) == ("finished", tick_ns)
    assert (worker.counters["tick_sleeps"] > 0) == (tick_ns > 0)
    published = pq.read_table(folder.table(PUBLISHES), columns=["device", "seq", "planned_ns", "sent_ns", "outcome"])
    assert published.num_rows == pytest.approx(0.4 * PER_S, abs=10)
    # What a slow machine did not get out before the load ended is told, not forgotten.
    sent = published["outcome"].to_pylist().count("sent")
    assert sent + published["outcome"].to_pylist().count("unsent") == published.num_rows
    assert sent == worker.counters["sent"] > 0
    # Planned times are the plan's, tick or no tick: each device speaks in even steps.
    mine = published.filter(published["device"].to_numpy() == 0).sort_by("seq")["planned_ns"].to_numpy()
    assert set((mine[1:] - mine[:-1]).tolist()) <= {SECOND_NS * 10 // PER_S, SECOND_NS * 10 // PER_S + 1}
    arrived = pq.read_table(folder.table(DELIVERIES), columns=["device", "seq", "client"])
    assert arrived.num_rows == sent
    assert len(set(zip(arrived["device"].to_pylist(), arrived["seq"].to_pylist(), strict=True))) == arrived.num_rows


def test_a_run_in_ticks_can_be_interrupted(tmp_path, require_broker):
    require_broker("mosquitto")
    loaded = load_scenario(str(busy(tmp_path, 60)), [], 1.0)
    request = RunRequest(loaded=loaded, broker="mosquitto", seed=1, runs=tmp_path / "runs", processes=1)
    seen: list[Glimpse] = []

    def watch(glimpse: Glimpse) -> None:
        seen.append(glimpse)
        if glimpse.phase == "measure" and glimpse.progress.received:
            orchestrator.interrupt()

    orchestrator = Orchestrator(request, watch)
    manifest = asyncio.run(orchestrator.run()).read_manifest()
    assert manifest.state == "interrupted"
    assert manifest.workers[0].counters["tick_sleeps"] > 0
    measured = manifest.phase("measure")
    assert measured is not None
    assert measured.end_ns - measured.start_ns < 30 * SECOND_NS
    assert sum(glimpse.phase == "measure" for glimpse in seen) > 1, "it reported while it worked in ticks"
