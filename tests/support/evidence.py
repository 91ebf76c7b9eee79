"""Hand-written evidence: a run folder with exactly the events a test wants, for known answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from battlebrokers.clock import SECOND_NS
from battlebrokers.record.segments import write_rows
from battlebrokers.tables import ACKS, DELIVERIES, NODES, OPERATIONS, PUBLISHES, RESOURCES
from battlebrokers.tables.manifest import ContenderFacts, Manifest, Phase, ScenarioFacts, State
from battlebrokers.tables.run_folder import RunFolder

START_NS = 1_790_000_000 * SECOND_NS
MS = 1_000_000


class Evidence:
    """Collects events; times are milliseconds since the start of the load (measure 0..10 s, drain after)."""

    def __init__(self, folder: Path, state: State = "finished", measure_ms: int = 10_000) -> None:
        self.folder = RunFolder(folder)
        self._state: State = state
        self._measure_ms = measure_ms
        self._rows: dict[Any, list[tuple[Any, ...]]] = {}
        self._nodes: set[tuple[str, int]] = set()
        self._wills: dict[tuple[str, int], str] = {}

    def connect(
        self, client: int, at_ms: float = -900, *, persistent: bool = False, present: bool = False,
        expiry_s: int | None = None,
    ) -> None:  # fmt: skip
        row = (
            "connect", at(at_ms), at(at_ms) + 1000, "ok", None, "", None, None, None, None, present, persistent,
            expiry_s, 1,
        )  # fmt: skip
        self._operation("client", client, row)

    def subscribe(
        self, client: int, topic_filter: str, at_ms: float = -800, *, qos: int = 1, share: str | None = None,
        persistent: bool = False, expiry_s: int | None = None,
    ) -> None:  # fmt: skip
        row = (
            "subscribe", at(at_ms), at(at_ms) + 1000, "ok", None, "", topic_filter, share, qos, qos, None, persistent,
            expiry_s, 1,
        )  # fmt: skip
        self._operation("client", client, row)

    def leave(self, client: int, at_ms: float, kind: str = "lost", *, persistent: bool = False) -> None:
        row = (kind, at(at_ms), at(at_ms), "ok", None, "", None, None, None, None, None, persistent, None, 1)
        self._operation("client", client, row)

    def publish(
        self, device: int, seq: int, at_ms: float, topic: str = "t", *, qos: int = 1, acked: bool = True,
        retain: bool = False, stamped: bool = True, outcome: str | None = None, held: str = "no", lag_ms: float = 0.1,
    ) -> None:  # fmt: skip
        self._node("device", device)
        planned, sent = at(at_ms), at(at_ms + lag_ms)
        told = outcome or ("sent" if not qos else "acked" if acked else "unacked")
        acked_ns = sent + MS if told == "acked" else None
        self._add(
            PUBLISHES,
            ("w", device, seq, topic, qos, retain, stamped, planned, None if told == "unsent" else sent, acked_ns, told,
             None, held, 0, 64, 64, len(topic), 80),
        )  # fmt: skip

    def will(self, device: int, topic: str) -> None:
        """To be told before anything else of that device."""
        self._wills["device", device] = topic

    def ack(self, device: int, seq: int, at_ms: float, outcome: str = "acked") -> None:
        self._add(ACKS, ("w", device, seq, at(at_ms) if outcome == "acked" else None, outcome, None))

    def deliver(
        self, client: int, device: int, seq: int, planned_ms: float | None, at_ms: float, *, topic: str | None = None,
        qos: int = 1, dup: bool = False, retained: bool = False,
    ) -> None:  # fmt: skip
        planned = at(planned_ms) if planned_ms is not None else None
        self._add(DELIVERIES, ("w", client, device, seq, planned, at(at_ms), topic, qos, dup, retained, 64, 80))

    def sample(self, at_ms: float, service: str = "b", cpu_percent: float = 5.0, moved_bytes: int = 0) -> None:
        row = (at(at_ms), service, "contender", cpu_percent, cpu_percent - 1, 1 << 20, 0, 0, moved_bytes, moved_bytes)
        self._add(RESOURCES, (*row, 3, 1, 1, None, None))

    def write(self, segments: int = 1) -> Path:
        """Write it all, each table in so many segments; returns the run folder."""
        end = at(self._measure_ms)
        self.folder.write_manifest(
            Manifest(
                run="known", state=self._state, started_ns=START_NS - 2 * SECOND_NS,
                scenario=ScenarioFacts(name="known", about="", source="", text="", resolved={}), seed=1, plan_sha256="",
                contender=ContenderFacts(name="none", version="1", profile="external", endpoints={}),
                host={}, versions={},
                finished_ns=end + 5 * SECOND_NS,
                phases=[
                    Phase("connect", START_NS - SECOND_NS, START_NS),
                    Phase("measure", START_NS, end),
                    Phase("drain", end, end + 5 * SECOND_NS),
                ],
            )
        )  # fmt: skip
        self.sample(500)
        for table, rows in self._rows.items():
            for number in range(segments):
                write_rows(self.folder.path, table, "w" if segments == 1 else f"w{number}", rows[number::segments])
        return self.folder.path

    def _operation(self, role: str, node: int, row: tuple[Any, ...]) -> None:
        self._node(role, node)
        self._add(OPERATIONS, ("w", role, node, *row))

    def _node(self, role: str, node: int) -> None:
        if (role, node) not in self._nodes:
            self._nodes.add((role, node))
            fleet = "sensors" if role == "device" else "readers"
            self._add(NODES, (role, node, f"{role}-{node}", fleet, "mqtt", self._wills.get((role, node)), "w"))

    def _add(self, table: Any, row: tuple[Any, ...]) -> None:
        self._rows.setdefault(table, []).append(row)


def at(ms: float) -> int:
    """Run time of a millisecond of the load."""
    return START_NS + round(ms * MS)
