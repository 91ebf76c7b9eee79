"""A run of a handful of messages, analysed before the first real one: classes get loaded, plans rehearsed.

Called by the analyst while a measurement may still be going on. The run lies in a temporary folder and is forgotten.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from battlebrokers.clock import MILLISECOND_NS, SECOND_NS
from battlebrokers.pipeline.graph import analyze
from battlebrokers.tables import DELIVERIES, NODES, OPERATIONS, PUBLISHES, RESOURCES, Table
from battlebrokers.tables.manifest import ContenderFacts, Manifest, Phase, ScenarioFacts
from battlebrokers.tables.run_folder import RunFolder

_START_NS = 1_700_000_000 * SECOND_NS
_MESSAGES = 20


def rehearse(spark: SparkSession) -> None:
    """Analyse the tiny run once."""
    # Where Spark's own temporary files are: those are removed also after this process was killed.
    place = spark.conf.get("spark.local.dir", None)
    with tempfile.TemporaryDirectory(prefix="bb-rehearsal-", dir=place) as folder:
        _write_run(RunFolder(Path(folder)))
        analyze(spark, folder)


def _write_run(folder: RunFolder) -> None:
    load_ns = _START_NS + SECOND_NS
    planned_ns = [load_ns + number * 100 * MILLISECOND_NS for number in range(_MESSAGES)]
    node = {"role": "client", "node": 0, "worker": "w"}
    operation = {**node, "outcome": "ok", "detail": "", "persistent": False, "attempt": 1}
    message = {"worker": "w", "device": 0, "qos": 1, "payload_bytes": 30, "wire_bytes": 40}
    rows: dict[Table, list[dict[str, Any]]] = {
        NODES: [
            {**node, "name": "a-0", "fleet": "a", "protocol": ""},
            {**node, "role": "device", "name": "b-0", "fleet": "b", "protocol": ""},
        ],
        OPERATIONS: [
            {**operation, "kind": "connect", "started_ns": _START_NS, "ended_ns": _START_NS + 1},
            {
                **operation, "kind": "subscribe", "started_ns": _START_NS + 2, "ended_ns": _START_NS + 3,
                "filter": "a/#", "asked_qos": 1, "granted_qos": 1,
            },
        ],
        PUBLISHES: [
            {
                **message, "seq": seq, "topic": "a/b", "retain": False, "stamped": True, "planned_ns": at_ns,
                "sent_ns": at_ns + 1000, "acked_ns": at_ns + 2000, "outcome": "acked", "held": "no", "retries": 0,
                "structure_bytes": 30, "url_bytes": 3,
            }
            for seq, at_ns in enumerate(planned_ns)
        ],
        DELIVERIES: [
            {
                **message, "client": 0, "seq": seq, "planned_ns": at_ns, "received_ns": at_ns + MILLISECOND_NS,
                "dup": False, "retained": False,
            }
            for seq, at_ns in enumerate(planned_ns[1:], start=1)
        ],
        RESOURCES: [
            {
                "sampled_ns": load_ns, "service": "x", "role": "contender", "cpu_percent": 1.0,
                "busiest_thread_percent": 1.0, "rss_bytes": 1, "read_bytes": 1, "written_bytes": 1,
                "received_bytes": 1, "sent_bytes": 1, "open_files": 1, "threads": 1, "processes": 1,
            }
        ],
    }  # fmt: skip
    for table, records in rows.items():
        place = folder.table(table)
        place.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(records, schema=table.arrow_schema()), place / "rehearsal.parquet")
    phases = [Phase("connect", _START_NS, load_ns), Phase("measure", load_ns, load_ns + 2 * SECOND_NS)]
    phases.append(Phase("drain", phases[-1].end_ns, phases[-1].end_ns + SECOND_NS))
    folder.write_manifest(
        Manifest(
            run="rehearsal", state="finished", started_ns=_START_NS, seed=0, plan_sha256="", host={}, versions={},
            scenario=ScenarioFacts(name="", about="", source="", text="", resolved={}),
            contender=ContenderFacts(name="", version="", profile="", endpoints={}), phases=phases,
        )
    )  # fmt: skip
