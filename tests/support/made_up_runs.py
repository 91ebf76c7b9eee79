"""Runs made up for tests: measures with known answers, written as the pipeline would write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from battlebrokers import tables
from battlebrokers.clock import SECOND_NS
from battlebrokers.processes import ProcessIdentity
from battlebrokers.tables.base import Table
from battlebrokers.tables.manifest import (
    BattleFacts,
    CaptureFacts,
    ContenderFacts,
    Manifest,
    Phase,
    ScenarioFacts,
    ServiceFacts,
    WorkerFacts,
)
from battlebrokers.tables.run_folder import RunFolder
from support.latency_rows import SUMS, summed
from support.parquet_files import parquet_of

START_NS = 1_790_000_000 * SECOND_NS
LEDGER_ZERO = {c.name: 0 for c in tables.LEDGER.columns if c.kind == "int64"}
PUBLISHING_ZERO = {c.name: 0 for c in tables.PUBLISHING.columns if c.kind == "int64" and not c.nullable}


@cache
def _nothing(table: Table) -> pa.Table:
    return table.arrow_schema().empty_table()


@dataclass
class MadeUpRun:
    """A run folder in the making: add rows, then `write()`."""

    path: Path
    run: str = "abcde"
    contender: str = "mosquitto"
    version: str = "2.1.2"
    scenario: str = "smart-city"
    title: str = ""
    expect: list[str] = field(default_factory=list)
    state: str = "finished"
    state_detail: str = ""
    seed: int = 7
    plan_sha256: str = "p" * 64
    connect_s: int = 1
    warm_up_s: int = 5
    measure_s: int = 30
    cool_down_s: int = 2
    drain_s: int = 3
    counters: dict[str, int] = field(default_factory=dict)
    tick_ns: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    process: ProcessIdentity | None = None
    battle: BattleFacts | None = None
    resolved: dict[str, Any] = field(default_factory=dict)
    host: dict[str, Any] = field(
        default_factory=lambda: {"hostname": "lab-1", "cpu_cores": 4, "cpu_model": "Example CPU"}
    )
    workers: int = 1
    started_ns: int = START_NS
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    arrow: dict[str, list[pa.Table]] = field(default_factory=dict)
    defects: list[dict[str, str]] = field(default_factory=list)
    captures: list[CaptureFacts] = field(default_factory=list)

    def phases(self) -> list[Phase]:
        at, found = self.started_ns, []
        for name, seconds in (
            ("connect", self.connect_s),
            ("warm_up", self.warm_up_s),
            ("measure", self.measure_s),
            ("cool_down", self.cool_down_s),
            ("drain", self.drain_s),
        ):
            if seconds:
                found.append(Phase(name, at, at + seconds * SECOND_NS))
                at += seconds * SECOND_NS
        return found

    def add(self, table: Table, **row: Any) -> None:
        self.rows.setdefault(table.name, []).append(row)

    def latency(
        self,
        kind: str,
        values_ms: Any,
        *,
        second: int | Any = 5,
        phase: str = "measure",
        fleet: str = "air",
        client_fleet: str = "app",
        qos: int = 1,
    ) -> None:
        """Latencies in ms (infinite = never arrived); `second` is one number or one per value."""
        values_ns = np.atleast_1d(np.asarray(values_ms, dtype=float)) * 1e6
        seconds = np.broadcast_to(np.asarray(second, dtype=np.int64), values_ns.shape)
        if not len(values_ns):
            return
        shared = {
            "kind": kind, "phase": phase, "fleet": fleet, "qos": qos,
            "client_fleet": client_fleet if kind in ("response", "service") else "",
        }  # fmt: skip
        made = (dict(zip(SUMS, sums, strict=True)) for sums in summed(seconds, values_ns))
        self.rows.setdefault(tables.LATENCIES.name, []).extend(shared | one for one in made)

    def ledger(self, **values: Any) -> None:
        base = {
            "phase": "measure", "fleet": "air", "device": 0, "client_fleet": "app", "share": None, "client": 0,
            "topic": "t", "qos": 1, **LEDGER_ZERO, "promise_kept": True,
        }  # fmt: skip
        row = base | values
        if row["phase"] == "measure":
            row = {"in_measure": row["delivered"], "in_measure_bytes": row["payload_bytes"]} | values
            row = base | row
        self.add(tables.LEDGER, **row)

    def publishing(self, **values: Any) -> None:
        base = {
            "phase": "measure", "fleet": "air", "qos": 1, **PUBLISHING_ZERO,
            "first_sent_ns": None, "last_sent_ns": None, "last_received_ns": None,
        }  # fmt: skip
        self.add(tables.PUBLISHING, **(base | values))

    def service(self, service: str, role: str, thread: float, *, phase: str = "measure", **values: Any) -> None:
        base = {
            "service": service, "role": role, "phase": phase, "samples": self.measure_s,
            "cpu_mean_percent": thread, "cpu_max_percent": thread,
            "busiest_thread_mean_percent": thread, "busiest_thread_max_percent": thread, "rss_max_bytes": 50 << 20,
            "read_bytes": 0, "written_bytes": 0, "received_bytes": 0, "sent_bytes": 0, "open_files_max": 10,
            "steal_max_percent": 0.0 if role == "host" else None,
        }  # fmt: skip
        self.add(tables.SERVICES, **(base | values))

    def action(
        self, kind: str, *, role: str = "device", fleet: str = "air", outcome: str = "ok", n: int = 10, ms: float = 2.0
    ) -> None:
        self.add(
            tables.ACTIONS,
            role=role, fleet=fleet, kind=kind, outcome=outcome, n=n,
            first_ns=self.started_ns, last_ns=self.started_ns + SECOND_NS,
            mean_ns=ms * 1e6, p50_ns=ms * 1e6, p99_ns=2 * ms * 1e6, max_ns=int(3 * ms * 1e6),
        )  # fmt: skip

    def moment(
        self, second: int, phase: str, side: str, fleet: str, messages: int, bytes_each: tuple[int, int], planned: int,
        in_flight: int,
    ) -> None:  # fmt: skip
        """One second of one fleet; a message has so many bytes of payload and on the wire."""
        payload, wire = bytes_each
        self.add(
            tables.TIMELINE,
            second=second, phase=phase, side=side, fleet=fleet, messages=messages, payload_bytes=payload * messages,
            wire_bytes=wire * messages, planned=planned, in_flight=in_flight, queued=in_flight, unsent=0, held=0,
        )  # fmt: skip

    def nodes(self, role: str, fleet: str, count: int, *, worker: str) -> None:
        for node in range(count):
            name = f"{role}-{node}"
            self.add(
                tables.NODES, role=role, node=node, name=name, fleet=fleet, protocol="mqtt 3.1.1 tcp", worker=worker
            )

    def healthy(self, n: int = 3000, ms: float = 2.0) -> MadeUpRun:
        """Everything a trustworthy run has: n messages of `ms` spread over the measure phase, nothing lost."""
        seconds = self.warm_up_s + np.arange(n) % max(1, self.measure_s)
        jitter = 1 + 0.1 * np.sin(np.arange(n))
        for kind, values in (("response", ms * jitter), ("service", 0.95 * ms * jitter), ("lag", np.full(n, 0.05))):
            self.latency(kind, values, second=seconds)
        self.latency("publish", 0.5 * ms * jitter, second=seconds)
        self.latency("last", 1.1 * ms * jitter, second=seconds)
        self.ledger(expected=n, delivered=n, payload_bytes=100 * n)
        start = self.started_ns + (1 + self.warm_up_s) * SECOND_NS
        self.publishing(
            planned=n, sent=n, acked=n,
            payload_bytes=100 * n, structure_bytes=100 * n, url_bytes=20 * n, wire_bytes=130 * n,
            first_sent_ns=start, last_sent_ns=start + self.measure_s * SECOND_NS,
            last_received_ns=start + self.measure_s * SECOND_NS + 10**7,
        )  # fmt: skip
        per_second = n // max(1, self.measure_s)
        for second in range(self.warm_up_s, self.warm_up_s + self.measure_s):
            for side, fleet, planned, in_flight in (("publish", "air", per_second, 0), ("deliver", "app", 0, 2)):
                self.moment(second, "measure", side, fleet, per_second, (100, 130), planned, in_flight)
        self.service("broker", "contender", 40.0)
        self.service("worker-1", "generator", 30.0)
        self.service("host", "host", 50.0)
        self.action("connect")
        self.action("subscribe", role="client", fleet="app", n=2, ms=1.0)
        self.nodes("device", "air", 10, worker="w1")
        self.nodes("client", "app", 2, worker="w1")
        return self

    def lifelike(
        self,
        *,
        rate: int = 200,
        base_ms: float = 0.8,
        spread: float = 0.35,
        dice_seed: int = 1,
        stall: tuple[float, float] | None = None,
        lost_share: float = 0.0,
        cpu: float = 35.0,
        rss_mib: float = 40.0,
        qos: int = 1,
    ) -> MadeUpRun:
        """A run as it looks in life: noise, a tail, two listening fleets, resources; perhaps a stall and losses."""
        dice = np.random.default_rng(dice_seed)
        load_s = self.warm_up_s + self.measure_s + self.cool_down_s
        planned_s = np.sort(dice.uniform(0, load_s, rate * load_s))
        phases = np.select(
            [planned_s < self.warm_up_s, planned_s < self.warm_up_s + self.measure_s],
            ["warm_up", "measure"],
            "cool_down",
        )
        arrivals: dict[str, np.ndarray[Any, Any]] = {}
        for fleet, factor in (("dashboard", 1.0), ("archive", 1.6)):
            service = (
                base_ms * factor * dice.lognormal(0, spread, len(planned_s))
                + base_ms * dice.pareto(2.2, len(planned_s)) * 0.2
            )
            service *= 1 + 2 * np.exp(-planned_s / 2)
            if stall:
                end = stall[0] + stall[1]
                waiting = (planned_s > stall[0]) & (planned_s < end)
                service = np.where(waiting, service + (end - planned_s) * 1000, service)
            service = np.where(dice.random(len(planned_s)) < lost_share, np.inf, service)
            lag = dice.exponential(0.06, len(planned_s))
            arrivals[fleet] = planned_s + (service + lag) / 1000
            for phase in ("warm_up", "measure", "cool_down"):
                mine = phases == phase
                at = planned_s[mine].astype(int)
                common = {"second": at, "phase": phase, "fleet": "air", "qos": qos}
                self.latency("response", (service + lag)[mine], client_fleet=fleet, **common)
                self.latency("service", service[mine], client_fleet=fleet, **common)
                if fleet == "dashboard":
                    self.latency("lag", lag[mine], **common)
                    self.latency("publish", np.minimum(0.6 * service[mine], 5000), **common)
                lost = int(np.isinf(service[mine]).sum())
                kept = not (qos and lost)
                n = int(mine.sum())
                self.ledger(
                    phase=phase,
                    client_fleet=fleet,
                    expected=n,
                    delivered=n - lost,
                    lost=lost,
                    payload_bytes=200 * (n - lost),
                    qos=qos,
                    promise_kept=kept,
                )
        for phase in ("warm_up", "measure", "cool_down"):
            n = int((phases == phase).sum())
            self.publishing(
                phase=phase, planned=n, sent=n, acked=n if qos else 0, qos=qos,
                payload_bytes=200 * n, structure_bytes=200 * n, url_bytes=18 * n, wire_bytes=224 * n,
                first_sent_ns=self.started_ns, last_sent_ns=self.started_ns + load_s * SECOND_NS,
                last_received_ns=self.started_ns + (load_s + 1) * SECOND_NS,
            )  # fmt: skip
        for second in range(load_s + self.drain_s):
            phase = (
                "warm_up"
                if second < self.warm_up_s
                else "measure"
                if second < self.warm_up_s + self.measure_s
                else "cool_down"
                if second < load_s
                else "drain"
            )
            due = int(((planned_s >= second) & (planned_s < second + 1)).sum())
            self.moment(second, phase, "publish", "air", due, (200, 224), due, 0)
            for fleet, times in arrivals.items():
                came = int(((times >= second) & (times < second + 1)).sum())
                owed = int(((planned_s < second + 1) & ~(times < second + 1)).sum())
                self.moment(second, phase, "deliver", fleet, came, (200, 224), 0, owed)
        self._use("broker", "contender", cpu, rss_mib, dice, stall)
        self._use("worker-1", "generator", 30.0, 90.0, dice, None)
        self._use("host", "host", cpu + 45.0, 900.0, dice, None)
        self.action("connect", ms=1.4)
        self.action("subscribe", role="client", fleet="dashboard", n=4, ms=0.9)
        self.nodes("device", "air", 40, worker="w0")
        self.nodes("client", "dashboard", 4, worker="w0")
        return self

    def _use(
        self, service: str, role: str, cpu: float, rss_mib: float, dice: Any, stall: tuple[float, float] | None
    ) -> None:
        phases = self.phases()
        load_start = next(phase.start_ns for phase in phases if phase.name in ("warm_up", "measure"))
        for second in range(-self.connect_s, (phases[-1].end_ns - load_start) // SECOND_NS):
            idle = second < 0 or (stall and stall[0] <= second < stall[0] + stall[1])
            used = 1.0 if idle else cpu * dice.uniform(0.9, 1.1)
            self.add(
                tables.RESOURCES,
                sampled_ns=load_start + second * SECOND_NS + SECOND_NS // 2, service=service, role=role,
                cpu_percent=used, busiest_thread_percent=used * 0.85,
                rss_bytes=int((rss_mib + second * 0.1) * (1 << 20)), read_bytes=0, written_bytes=second * 1000,
                received_bytes=second * 100_000, sent_bytes=second * 200_000, open_files=60, threads=3, processes=1,
                steal_percent=0.1 if role == "host" else None, load_1min=0.8 if role == "host" else None,
            )  # fmt: skip
        for phase in phases:
            self.service(
                service,
                role,
                cpu * 0.85,
                phase=phase.name,
                cpu_mean_percent=cpu,
                cpu_max_percent=cpu * 1.1,
                rss_max_bytes=int(rss_mib * (1 << 20)),
            )

    def manifest(self) -> Manifest:
        return Manifest(
            run=self.run,
            state=self.state,  # type: ignore[arg-type]
            state_detail=self.state_detail,
            started_ns=self.started_ns,
            finished_ns=self.phases()[-1].end_ns if self.phases() else None,
            scenario=ScenarioFacts(
                name=self.scenario,
                about="Made up.",
                source="made-up.yaml",
                text=f"name: {self.scenario}\n",
                resolved=self.resolved,
                expect=self.expect,
                title=self.title,
            ),
            seed=self.seed,
            plan_sha256=self.plan_sha256,
            contender=ContenderFacts(
                name=self.contender,
                version=self.version,
                profile="stock",
                endpoints={"tcp": "mqtt://127.0.0.1:1883"},
                config_sha256="c" * 64,
                config_text="listener 1883\n",
                services=[ServiceFacts("broker", [1])],
            ),
            host=self.host,
            versions={"battlebrokers": "0.1.0", "python": "3.11"},
            phases=self.phases(),
            workers=[
                WorkerFacts(f"w{i}", "lab", "boot", 1, 1, self.counters if i == 0 else {}, self.tick_ns)
                for i in range(self.workers)
            ],
            battle=self.battle,
            captures=self.captures,
            settings=dict(self.settings),
            process=self.process,
        )

    def write(self) -> RunFolder:
        self.path.mkdir(parents=True, exist_ok=True)
        folder = RunFolder(self.path)
        folder.write_manifest(self.manifest())
        for table in tables.ALL_TABLES:
            pieces = self.arrow.get(table.name, [])
            if table.name in self.rows:
                pieces = [*pieces, pa.Table.from_pylist(self.rows[table.name], schema=_nothing(table).schema)]
            if pieces or table.layer == "measures":
                target = folder.table(table)
                target.mkdir(parents=True, exist_ok=True)
                whole = pa.concat_tables([_nothing(table), *pieces])
                (target / "part-00000.parquet").write_bytes(parquet_of(whole))
        if self.defects:
            (self.path / "measures" / "defects.json").write_text(json.dumps(self.defects))
        return folder


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., MadeUpRun]:
    """A function that begins a made-up run in its own folder; keyword arguments as in MadeUpRun."""
    runs = tmp_path / "runs"

    def make(**values: Any) -> MadeUpRun:
        run = values.setdefault("run", f"run{len(list(runs.glob('*'))) if runs.exists() else 0}a")
        return MadeUpRun(path=runs / f"20261115T120000-made-up-{run}", **values)

    return make
