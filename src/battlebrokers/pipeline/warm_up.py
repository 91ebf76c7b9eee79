"""A made-up run of a few messages, for the session to practise on. Written by the analyst, thrown away after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from battlebrokers.clock import SECOND_NS
from battlebrokers.tables import DELIVERIES, NODES, OPERATIONS, PUBLISHES, RESOURCES, Table
from battlebrokers.tables.manifest import ContenderFacts, Manifest, Phase, ScenarioFacts
from battlebrokers.tables.run_folder import RunFolder

_START_NS = 1_000 * SECOND_NS
_MESSAGES = 20


def write_tiny_run(folder: Path) -> None:
    """One device, one client, twenty messages of QoS 1, all delivered."""
    RunFolder(folder).write_manifest(
        Manifest(
            run="warm",
            state="finished",
            started_ns=_START_NS - SECOND_NS,
            scenario=ScenarioFacts(name="warm-up", about="", source="", text="", resolved={}),
            seed=0,
            plan_sha256="",
            contender=ContenderFacts(name="none", version="", profile="external", endpoints={}),
            host={},
            versions={},
            phases=[
                Phase("connect", _START_NS - SECOND_NS, _START_NS),
                Phase("warm_up", _START_NS, _START_NS + SECOND_NS),
                Phase("measure", _START_NS + SECOND_NS, _START_NS + 2 * SECOND_NS),
                Phase("drain", _START_NS + 2 * SECOND_NS, _START_NS + 3 * SECOND_NS),
            ],
        )
    )
    planned = [_START_NS + number * 2 * SECOND_NS // _MESSAGES for number in range(_MESSAGES)]
    _write(
        folder, PUBLISHES,
        [
            ("w", 0, seq, "t", 1, False, True, at, at + 1, at + 9, "acked", None, "no", 0, 64, 64, 1, 80)
            for seq, at in enumerate(planned)
        ],
    )  # fmt: skip
    _write(
        folder, DELIVERIES,
        [("w", 0, 0, seq, at, at + 1000, None, 1, False, False, 64, 80) for seq, at in enumerate(planned)],
    )  # fmt: skip
    before = _START_NS - SECOND_NS
    connect = ("connect", before, before + 5, "ok", None, "", None, None, None, None, False, False, 1)
    subscribe = ("subscribe", before + 6, before + 9, "ok", None, "", "t", None, 1, 1, None, False, 1)
    _write(folder, OPERATIONS, [("w", "client", 0, *connect), ("w", "client", 0, *subscribe)])
    _write(folder, NODES, [("device", 0, "d", "f", "mqtt", "w"), ("client", 0, "c", "g", "mqtt", "w")])
    _write(
        folder, RESOURCES,
        [
            (_START_NS + second * SECOND_NS, "b", "contender", 1.0, 1.0, 1, 0, 0, 0, 0, 1, 1, 1, None, None)
            for second in range(3)
        ],
    )  # fmt: skip


def _write(folder: Path, table: Table, rows: list[tuple[Any, ...]]) -> None:
    schema = table.arrow_schema()
    place = folder / table.folder
    place.mkdir(parents=True, exist_ok=True)
    columns = [pa.array(values, type=field.type) for values, field in zip(zip(*rows, strict=True), schema, strict=True)]
    pq.write_table(pa.table(columns, schema=schema), place / "tiny.parquet", store_schema=False)
