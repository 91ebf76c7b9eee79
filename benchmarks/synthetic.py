"""Made-up evidence of any size: a run folder as a recorder would leave it, with known losses and duplicates.

Used by the benchmarks and by tests that need volume. Vectorised; 10 million deliveries take seconds. Starts no broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from battlebrokers.clock import MILLISECOND_NS, SECOND_NS
from battlebrokers.tables import DELIVERIES, NODES, OPERATIONS, PUBLISHES, RESOURCES, Table
from battlebrokers.tables.manifest import ContenderFacts, Manifest, Phase, ScenarioFacts, State, WorkerFacts
from battlebrokers.tables.run_folder import RunFolder

START_NS = 1_790_000_000 * SECOND_NS
"""When every synthetic run began."""
SEGMENT_ROWS = 262_144

Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Truth:
    """What an analysis of the run must find, over all phases."""

    published: int
    expected: int
    delivered: int
    lost: int
    duplicates: int


@dataclass(frozen=True, slots=True)
class Shape:
    """How the made-up load looks: each message goes to `fan_out` of the clients; shares are of all deliveries."""

    deliveries: int
    devices: int = 1000
    clients: int = 10
    fan_out: int = 1
    qos: int = 1
    seconds: int = 60
    lost_share: float = 0.001
    duplicate_share: float = 0.001
    seed: int = 1

    @property
    def shards(self) -> int:
        """Into how many disjoint audiences the clients fall."""
        return max(1, self.clients // self.fan_out)

    @property
    def messages(self) -> int:
        """How many messages are published."""
        return max(1, self.deliveries // self.fan_out)


def write_run(folder: Path, shape: Shape) -> Truth:
    """Write a whole run folder and say what is true about it."""
    random = np.random.default_rng(shape.seed)
    phases = _phases(shape.seconds)
    load_start_ns, load_end_ns = phases[1].start_ns, phases[3].end_ns
    number = np.arange(shape.messages, dtype=np.int64)
    device, seq = number % shape.devices, number // shape.devices
    planned_ns = load_start_ns + number * ((load_end_ns - load_start_ns) // shape.messages)
    sent_ns = planned_ns + random.integers(1_000, 300_000, shape.messages)
    acked_ns = sent_ns + random.lognormal(13.0, 0.6, shape.messages).astype(np.int64)

    root = RunFolder(folder)
    _write_publishes(root, shape, device, seq, planned_ns, sent_ns, acked_ns)
    truth = _write_deliveries(root, shape, random, device, seq, planned_ns, sent_ns)
    _write_people(root, shape, phases[0].start_ns)
    _write_resources(root, phases)
    told = manifest(folder.name, phases)
    counters = {"sent": truth.published, "received": truth.delivered + truth.duplicates}
    told.workers = [WorkerFacts("worker-1", "nowhere", "", 1, 1, counters)]
    root.write_manifest(told)
    return truth


def manifest(run: str, phases: list[Phase], state: State = "finished") -> Manifest:
    """A manifest with the given phases and nothing remarkable in it."""
    return Manifest(
        run=run,
        state=state,
        started_ns=phases[0].start_ns if phases else START_NS,
        finished_ns=phases[-1].end_ns if phases else None,
        scenario=ScenarioFacts(name="synthetic", about="Made-up evidence.", source="synthetic", text="", resolved={}),
        seed=1,
        plan_sha256="",
        contender=ContenderFacts(name="nobody", version="0", profile="stock", endpoints={}),
        host={},
        versions={},
        phases=phases,
    )


def _phases(seconds: int) -> list[Phase]:
    lengths = {"connect": 1, "warm_up": max(1, seconds // 6), "measure": seconds, "cool_down": 1, "drain": 2}
    phases, at_ns = [], START_NS
    for name, length_s in lengths.items():
        phases.append(Phase(name, at_ns, at_ns + length_s * SECOND_NS))
        at_ns += length_s * SECOND_NS
    return phases


def _write_publishes(
    root: RunFolder, shape: Shape, device: Longs, seq: Longs, planned_ns: Longs, sent_ns: Longs, acked_ns: Longs
) -> None:
    topics = pa.array([f"bench/{n % shape.shards}/{n}" for n in range(shape.devices)])
    rows = shape.messages
    columns = {
        "worker": _constant("worker-1", rows),
        "device": device,
        "seq": seq,
        "topic": pa.DictionaryArray.from_arrays(pa.array(device, pa.int32()), topics),
        "qos": np.full(rows, shape.qos),
        "retain": np.zeros(rows, bool),
        "stamped": np.ones(rows, bool),
        "planned_ns": planned_ns,
        "sent_ns": sent_ns,
        "acked_ns": acked_ns if shape.qos else pa.nulls(rows, pa.int64()),
        "outcome": _constant("acked" if shape.qos else "sent", rows),
        "reason": pa.nulls(rows, pa.int16()),
        "held": _constant("no", rows),
        "retries": np.zeros(rows, np.int64),
        "payload_bytes": np.full(rows, 64),
        "structure_bytes": np.full(rows, 64),
        "url_bytes": np.full(rows, 14),
        "wire_bytes": np.full(rows, 84),
    }
    _write(root, PUBLISHES, columns)


def _write_deliveries(
    root: RunFolder,
    shape: Shape,
    random: np.random.Generator,
    device: Longs,
    seq: Longs,
    planned_ns: Longs,
    sent_ns: Longs,
) -> Truth:
    message = np.repeat(np.arange(shape.messages, dtype=np.int64), shape.fan_out)
    listener = np.tile(np.arange(shape.fan_out, dtype=np.int64), shape.messages)
    client = device[message] % shape.shards + listener * shape.shards
    expected = len(message)
    arrives: Bools = random.random(expected) >= shape.lost_share
    message, client = message[arrives], client[arrives]
    delivered = len(message)
    # In order per flow: the delay wanders slowly, it does not jump.
    delay_ns = (2 + np.sin(message / 50_000.0)) * MILLISECOND_NS
    received_ns = sent_ns[message] + delay_ns.astype(np.int64)
    again: Bools = random.random(delivered) < shape.duplicate_share
    second_ns = received_ns[again] + 5 * MILLISECOND_NS
    message, client = np.concatenate([message, message[again]]), np.concatenate([client, client[again]])
    dup = np.concatenate([np.zeros(delivered, bool), np.ones(len(second_ns), bool)])
    received_ns = np.concatenate([received_ns, second_ns])
    order = np.argsort(received_ns, kind="stable")
    message, client, dup, received_ns = message[order], client[order], dup[order], received_ns[order]
    rows = len(message)
    columns = {
        "worker": _constant("worker-1", rows),
        "client": client,
        "device": device[message],
        "seq": seq[message],
        "planned_ns": planned_ns[message],
        "received_ns": received_ns,
        "topic": pa.nulls(rows, pa.string()),
        "qos": np.full(rows, shape.qos),
        "dup": dup,
        "retained": np.zeros(rows, bool),
        "payload_bytes": np.full(rows, 64),
        "wire_bytes": np.full(rows, 84),
    }
    _write(root, DELIVERIES, columns)
    return Truth(
        published=shape.messages,
        expected=expected,
        delivered=delivered,
        lost=expected - delivered,
        duplicates=rows - delivered,
    )


def _write_people(root: RunFolder, shape: Shape, start_ns: int) -> None:
    roles = [("device", n) for n in range(shape.devices)] + [("client", n) for n in range(shape.clients)]
    rows = len(roles)
    _write(
        root,
        NODES,
        {
            "role": [role for role, _ in roles],
            "node": [n for _, n in roles],
            "name": [f"{'sensors' if role == 'device' else 'readers'}-{n}" for role, n in roles],
            "fleet": ["sensors" if role == "device" else "readers" for role, _ in roles],
            "protocol": _constant("mqtt 3.1.1 tcp", rows),
            "will_topic": pa.nulls(rows, pa.string()),
            "worker": _constant("worker-1", rows),
        },
    )
    actions: list[tuple[str, int, str, str | None]] = [(role, n, "connect", None) for role, n in roles]
    actions += [("client", n, "subscribe", f"bench/{n % shape.shards}/#") for n in range(shape.clients)]
    count = len(actions)
    began = np.array(
        [start_ns + n * 10_000 + (20_000 if kind == "subscribe" else 0) for n, (_, _, kind, _) in enumerate(actions)]
    )
    is_subscribe = [kind == "subscribe" for _, _, kind, _ in actions]
    _write(
        root,
        OPERATIONS,
        {
            "worker": _constant("worker-1", count),
            "role": [role for role, *_ in actions],
            "node": [n for _, n, *_ in actions],
            "kind": [kind for *_, kind, _ in actions],
            "started_ns": began,
            "ended_ns": began + 5_000,
            "outcome": _constant("ok", count),
            "reason": pa.nulls(count, pa.int16()),
            "detail": _constant("", count),
            "filter": [topic_filter for *_, topic_filter in actions],
            "share": pa.nulls(count, pa.string()),
            "asked_qos": [shape.qos if it else None for it in is_subscribe],
            "granted_qos": [shape.qos if it else None for it in is_subscribe],
            "session_present": [None if it else False for it in is_subscribe],
            "persistent": np.zeros(count, bool),
            "session_expiry_s": pa.nulls(count, pa.int64()),
            "attempt": np.ones(count, np.int64),
        },
    )


def _write_resources(root: RunFolder, phases: list[Phase]) -> None:
    sampled = np.arange(phases[0].start_ns, phases[-1].end_ns, SECOND_NS)
    rows = len(sampled)
    counter = np.arange(rows) * 1_000_000
    _write(
        root,
        RESOURCES,
        {
            "sampled_ns": sampled,
            "service": _constant("broker", rows),
            "role": _constant("contender", rows),
            "cpu_percent": np.full(rows, 42.0),
            "busiest_thread_percent": np.full(rows, 40.0),
            "rss_bytes": np.full(rows, 50_000_000),
            "read_bytes": np.zeros(rows),
            "written_bytes": np.zeros(rows),
            "received_bytes": counter,
            "sent_bytes": counter * 2,
            "open_files": np.full(rows, 1000),
            "threads": np.ones(rows),
            "processes": np.ones(rows),
            "steal_percent": pa.nulls(rows, pa.float64()),
            "load_1min": pa.nulls(rows, pa.float64()),
        },
    )


def _constant(value: str, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([value]))


def _write(root: RunFolder, table: Table, columns: dict[str, object]) -> None:
    """Write a table in segments of the size a recorder would choose."""
    schema = table.arrow_schema()
    arrays = []
    for field in schema:
        values = columns[field.name]
        array = values if isinstance(values, pa.Array) else pa.array(values)
        arrays.append(pc.cast(array, field.type))
    whole = pa.Table.from_arrays(arrays, schema=schema)
    folder = root.table(table)
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(0, max(1, whole.num_rows), SEGMENT_ROWS):
        piece = whole.slice(index, SEGMENT_ROWS)
        pq.write_table(piece, folder / f"worker-1-{index // SEGMENT_ROWS:06d}.parquet", compression="zstd")
