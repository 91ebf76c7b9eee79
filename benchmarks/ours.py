"""Our side of every comparison: a real orchestrated run against a broker by URL, read back from its evidence.

Called by the groups. It uses what any user's run uses (scenario, orchestrator, worker, recorder); nothing is
short-circuited.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from battlebrokers.clock import SECOND_NS
from battlebrokers.run.glimpse import Glimpse
from battlebrokers.run.orchestrator import Orchestrator, RunRequest
from battlebrokers.scenario.reader import read_scenario
from battlebrokers.tables import DELIVERIES, OPERATIONS, RESOURCES, Table
from battlebrokers.tables.manifest import Manifest, Phase
from battlebrokers.tables.run_folder import RunFolder
from benchmarks.bench import Bench
from benchmarks.rates import Sample, rate_between

PAYLOAD_BYTES = 64

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Load:
    """A plain load: publisher n and subscriber n share topic `bench/n`."""

    publishers: int = 10
    subscribers: int = 10
    per_s: float = 300_000.0
    """Messages a second over all publishers; far more than a broker takes means: as fast as it goes."""
    qos: int = 0
    warm_up_s: float = 2.0
    measure_s: float = 6.0
    keep_alive_s: int = 60
    connect_per_s: int = 0
    keep_events: bool = True

    def scenario(self) -> str:
        """The scenario file that says so."""
        connection = f"qos: {self.qos}, keep_alive: {self.keep_alive_s}s"
        lines = ["name: bench", "fleets:"]
        if self.publishers:
            every = f"{self.per_s / self.publishers:.9g}/s"
            payload = f"payload: {{random_bytes: {PAYLOAD_BYTES}}}"
            publisher = f'devices: {self.publishers}, topic: "bench/{{index}}", every: {every}'
            lines.append(f"  publishers: {{{publisher}, {payload}, {connection}}}")
        else:
            lines[-1] = "fleets: {}"
        if self.subscribers:
            subscribe = 'subscribe: "bench/{index}", ' if self.publishers else ""
            lines.append(f"clients: {{subscribers: {{count: {self.subscribers}, {subscribe}{connection}}}}}")
        connect = f"connect: {self.connect_per_s}/s, " if self.connect_per_s else ""
        phases = f"{connect}warm_up: {self.warm_up_s}s, measure: {self.measure_s}s, drain: 3s, quiet: 500ms"
        return "\n".join([*lines, f"phases: {{{phases}}}", ""])


def plain_load(bench: Bench) -> Load:
    """Ten pairs, QoS 0, as fast as the broker goes."""
    return Load(warm_up_s=1.0, measure_s=2.5) if bench.quick else Load()


@dataclass(frozen=True)
class Evidence:
    """What one run of ours left behind; read while its folder still exists."""

    folder: RunFolder
    manifest: Manifest
    glimpses: list[tuple[str, Sample]]
    """(phase, (second, messages received)) as the watching user saw them."""

    @property
    def window(self) -> Phase:
        """The measure phase."""
        phase = self.manifest.phase("measure")
        if phase is None or self.manifest.state != "finished":
            raise RuntimeError(f"a run of ours ended as {self.manifest.state}: {self.manifest.state_detail}")
        return phase

    def table(self, table: Table, *columns: str) -> pa.Table:
        """Some columns of a recorded table."""
        return pq.read_table(self.folder.table(table), columns=list(columns))

    @cached_property
    def received_ns(self) -> npt.NDArray[np.int64]:
        """When each message arrived."""
        moments: npt.NDArray[np.int64] = self.table(DELIVERIES, "received_ns")["received_ns"].to_numpy()
        return moments

    @property
    def delivered_per_s(self) -> float:
        """Deliveries a second in the measure phase."""
        return self._delivered(self.window.start_ns, self.window.end_ns) / self._seconds

    @property
    def watched_per_s(self) -> float:
        """The same from the live counters: for runs that keep no events."""
        inside = [sample for phase, sample in self.glimpses if phase == "measure"]
        return rate_between(inside, inside[0][0], inside[-1][0]) if inside else 0.0

    @property
    def lost(self) -> int:
        """Messages that left us and did not come back; under overload a broker drops or is still busy."""
        counters = self.manifest.workers[0].counters
        return counters["sent"] - counters["received"]

    @property
    def cpu_us(self) -> float:
        """CPU time of all our threads for one delivered message, from the samples inside the measure phase."""
        moments, percent, _ = self._generator()
        busy_ns = float(np.sum(np.diff(moments) * percent[1:] / 100))
        return busy_ns / 1000 / max(1, self._delivered(int(moments[0]), int(moments[-1])))

    def cpu_us_at(self, per_s: float) -> float:
        """The same for a load that was carried whole at a known rate; needs no recorded events."""
        counters = self.manifest.workers[0].counters
        if counters["received"] < 0.99 * counters["sent"]:
            raise RuntimeError(f"the broker carried {counters['received']:,} of {counters['sent']:,} messages")
        moments, percent, _ = self._generator()
        span_ns = np.diff(moments)
        return float(np.sum(span_ns * percent[1:] / 100) / 1000 / (np.sum(span_ns) / SECOND_NS * per_s))

    @property
    def rss_bytes(self) -> int:
        """The largest resident memory of our process in the measure phase."""
        return int(self._generator()[2].max())

    @property
    def operations(self) -> dict[tuple[str, str], int]:
        """How many operations of each kind came to which outcome."""
        counted = self.table(OPERATIONS, "kind", "outcome").group_by(["kind", "outcome"]).aggregate([([], "count_all")])
        return {(row["kind"], row["outcome"]): row["count_all"] for row in counted.to_pylist()}

    def planned_and_response_ns(self) -> npt.NDArray[np.int64]:
        """Of every message that arrived: when it was planned to leave, and how long after that it came."""
        told = self.table(DELIVERIES, "planned_ns", "received_ns")
        planned_ns = told["planned_ns"].to_numpy()
        return np.stack([planned_ns, told["received_ns"].to_numpy() - planned_ns], axis=1)

    @property
    def _seconds(self) -> float:
        return (self.window.end_ns - self.window.start_ns) / SECOND_NS

    def _delivered(self, start_ns: int, end_ns: int) -> int:
        return int(np.count_nonzero((self.received_ns >= start_ns) & (self.received_ns < end_ns)))

    def _generator(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        told = self.table(RESOURCES, "sampled_ns", "role", "cpu_percent", "rss_bytes")
        told = told.filter(pc.equal(told["role"], "generator")).sort_by("sampled_ns")
        moments = told["sampled_ns"].to_numpy()
        inside = (moments >= self.window.start_ns) & (moments <= self.window.end_ns)
        return moments[inside], told["cpu_percent"].to_numpy()[inside], told["rss_bytes"].to_numpy()[inside]


class Target(Protocol):
    """Whom to run against."""

    url: str

    def settle(self) -> None:
        """Wait until it is at rest."""


def run_ours(load: Load, target: Target, place: Path, read: Callable[[Evidence], T]) -> T:
    """Run a load in one process of ours and return what `read` makes of the evidence, which is then removed."""
    target.settle()
    loaded = read_scenario(load.scenario(), "bench")
    glimpses: list[tuple[str, Sample]] = []

    def watch(glimpse: Glimpse) -> None:
        count = float(glimpse.progress.received)
        # Between two reports of the worker the user sees the same count again: no news, no sample.
        if not glimpses or glimpses[-1][1][1] != count:
            glimpses.append((glimpse.phase, (time.monotonic(), count)))

    request = RunRequest(loaded, target.url, seed=1, runs=place, processes=1, keep_events=load.keep_events)
    folder = asyncio.run(Orchestrator(request, watch).run())
    try:
        return read(Evidence(folder, folder.read_manifest(), glimpses))
    finally:
        shutil.rmtree(folder.path, ignore_errors=True)
