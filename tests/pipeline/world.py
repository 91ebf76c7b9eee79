"""Hand-written evidence: a small world in which each story has its own devices, clients and topics.

Starting Spark on a run costs seconds whatever its size, so all stories share one run and are analysed once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from battlebrokers.clock import SECOND_NS
from battlebrokers.tables import ACKS, DELIVERIES, NODES, OPERATIONS, PUBLISHES, RECORDED, RESOURCES, Table
from battlebrokers.tables.manifest import ContenderFacts, Manifest, Phase, ScenarioFacts, State
from battlebrokers.tables.run_folder import RunFolder

START_NS = 1_790_000_000 * SECOND_NS
LOAD_NS = START_NS + SECOND_NS
"""When the load began; times in stories are seconds from here."""
PHASES = [
    Phase("connect", START_NS, LOAD_NS),
    Phase("warm_up", LOAD_NS, LOAD_NS + 2 * SECOND_NS),
    Phase("measure", LOAD_NS + 2 * SECOND_NS, LOAD_NS + 10 * SECOND_NS),
    Phase("drain", LOAD_NS + 10 * SECOND_NS, LOAD_NS + 12 * SECOND_NS),
]


def at(seconds: float) -> int:
    """A moment, in seconds after the start of the load."""
    return LOAD_NS + round(seconds * SECOND_NS)


@dataclass(frozen=True)
class Message:
    device: int
    seq: int
    planned_ns: int
    topic: str
    stamped: bool
    qos: int


@dataclass
class World:
    """Collects rows; numbers devices and clients."""

    rows: dict[Table, list[dict[str, Any]]] = field(default_factory=lambda: {table: [] for table in RECORDED})
    _seqs: dict[int, int] = field(default_factory=dict)
    _clients: int = 0
    _topics: int = 0

    def topic(self, name: str = "t") -> str:
        """A topic no other story uses."""
        self._topics += 1
        return f"story-{self._topics}/{name}"

    def device(self, fleet: str = "sensors") -> int:
        number = len(self._seqs)
        self._seqs[number] = 0
        self._node("device", number, fleet)
        return number

    def client(
        self, *filters: str, qos: int = 1, share: str | None = None, persistent: bool = False, fleet: str = "readers",
        subscribed: float = -0.5,
    ) -> int:  # fmt: skip
        """A client that connects and subscribes before the load, or when told."""
        number = self._clients
        self._clients += 1
        self._node("client", number, fleet)
        self.connect(number, subscribed - 0.2, persistent=persistent)
        for topic_filter in filters:
            self.subscribe(number, topic_filter, subscribed, qos=qos, share=share, persistent=persistent)
        return number

    def _node(self, role: str, number: int, fleet: str) -> None:
        row = {
            "role": role,
            "node": number,
            "name": f"{fleet}-{number}",
            "fleet": fleet,
            "protocol": "mqtt",
            "worker": "w",
        }
        self.rows[NODES].append(row)

    def _operation(self, client: int, kind: str, started: float, **more: Any) -> None:
        row = {
            "worker": "w", "role": "client", "node": client, "kind": kind, "started_ns": at(started),
            "ended_ns": at(started) + 1_000_000, "outcome": "ok", "detail": "", "persistent": False, "attempt": 1,
        }  # fmt: skip
        self.rows[OPERATIONS].append(row | more)

    def connect(self, client: int, when: float, *, persistent: bool = False, session_present: bool = False) -> None:
        self._operation(client, "connect", when, persistent=persistent, session_present=session_present)

    def subscribe(
        self, client: int, topic_filter: str, when: float, *, qos: int = 1, share: str | None = None,
        persistent: bool = False, outcome: str = "ok",
    ) -> None:  # fmt: skip
        """The SUBACK comes at `when`."""
        granted = qos if outcome == "ok" else None
        self._operation(
            client, "subscribe", when - 0.001, ended_ns=at(when), filter=topic_filter, share=share, asked_qos=qos,
            granted_qos=granted, persistent=persistent, outcome=outcome,
        )  # fmt: skip

    def leave(self, client: int, kind: str, when: float, **more: Any) -> None:
        self._operation(client, kind, when, **more)

    def publish(
        self, device: int, topic: str, when: float, *, qos: int = 0, outcome: str | None = None,
        sent: float | None = None, acked: float | None = None, **more: Any,
    ) -> Message:  # fmt: skip
        """Planned at `when`, sent a millisecond later unless told; QoS 1 and 2 are acknowledged unless told."""
        seq = self._seqs[device]
        self._seqs[device] += 1
        sent_ns = at(when + 0.001 if sent is None else sent)
        outcome = outcome or ("acked" if qos else "sent")
        row = {
            "worker": "w", "device": device, "seq": seq, "topic": topic, "qos": qos, "retain": False, "stamped": True,
            "planned_ns": at(when), "sent_ns": sent_ns, "acked_ns": None, "outcome": outcome, "held": "no",
            "retries": 0, "payload_bytes": 100, "structure_bytes": 110, "url_bytes": len(topic), "wire_bytes": 120,
        }  # fmt: skip
        if outcome in {"acked", "refused"}:
            row["acked_ns"] = sent_ns + 2_000_000 if acked is None else at(acked)
        if outcome == "unsent":
            row["sent_ns"] = None
        self.rows[PUBLISHES].append(row | more)
        return Message(device, seq, at(when), topic, bool((row | more)["stamped"]), qos)

    def deliver(self, client: int, message: Message, when: float, **more: Any) -> None:
        row = {
            "worker": "w", "client": client, "device": message.device, "seq": message.seq,
            "planned_ns": message.planned_ns, "received_ns": at(when), "qos": message.qos, "dup": False,
            "retained": False, "payload_bytes": 100, "wire_bytes": 120,
        }  # fmt: skip
        if not message.stamped:
            row |= {"device": -1, "seq": -1, "planned_ns": None, "topic": message.topic, "payload_bytes": 3}
        self.rows[DELIVERIES].append(row | more)

    def ack(self, message: Message, when: float | None, outcome: str = "acked") -> None:
        row = {"worker": "w", "device": message.device, "seq": message.seq, "outcome": outcome}
        self.rows[ACKS].append(row | {"acked_ns": None if when is None else at(when)})

    def sample(self, service: str, role: str, when: float, **more: Any) -> None:
        row = {
            "sampled_ns": at(when), "service": service, "role": role, "cpu_percent": 10.0,
            "busiest_thread_percent": 5.0, "rss_bytes": 1000, "read_bytes": 0, "written_bytes": 0,
            "received_bytes": 0, "sent_bytes": 0, "open_files": 7, "threads": 1, "processes": 1,
        }  # fmt: skip
        self.rows[RESOURCES].append(row | more)

    def write(self, path: Path, state: State = "finished", phases: list[Phase] = PHASES) -> RunFolder:
        """A run folder with everything told so far; tables without rows are left out, as a recorder does."""
        folder = RunFolder(path)
        for table, rows in self.rows.items():
            if rows:
                place = folder.table(table)
                place.mkdir(parents=True)
                for number in range(2):
                    piece = pa.Table.from_pylist(rows[number::2], schema=table.arrow_schema())
                    pq.write_table(piece, place / f"w-{number:05d}.parquet")
        folder.write_manifest(
            Manifest(
                run=path.name, state=state, started_ns=START_NS, seed=1, plan_sha256="", host={}, versions={},
                scenario=ScenarioFacts(name="world", about="", source="", text="", resolved={}),
                contender=ContenderFacts(name="none", version="0", profile="stock", endpoints={}), phases=phases,
            )
        )  # fmt: skip
        return folder


class Result:
    """The tables of an analysed run, as lists of dictionaries."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._read: dict[str, list[dict[str, Any]]] = {}

    def rows(self, table: Table, **equal: Any) -> list[dict[str, Any]]:
        if table.name not in self._read:
            self._read[table.name] = ds.dataset(self.folder.table(table), format="parquet").to_table().to_pylist()
        return [row for row in self._read[table.name] if all(row[name] == value for name, value in equal.items())]


Story = Callable[[World], Generator[None, Result, None]]
STORIES: list[Story] = []


def story(function: Story) -> Story:
    """A story builds its part of the world, yields, and is given the result to judge."""
    STORIES.append(function)
    return function
