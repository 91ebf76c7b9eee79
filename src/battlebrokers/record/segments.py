"""Parquet segments: a table on disk is a folder of small complete files, so a killed run stays readable.

Called by the recorder's writer thread and by the orchestrator. Each file appears whole, by rename, or not at all.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from battlebrokers.tables import Table


class SegmentWriter:
    """Writes numbered segments of one table: `<name>-00001.parquet`, `<name>-00002.parquet`, …."""

    def __init__(self, folder: Path, table: Table, name: str) -> None:
        self._folder = folder / table.folder
        self._schema = table.arrow_schema()
        self._name = name
        self._number = 0
        self._folder.mkdir(parents=True, exist_ok=True)

    def write(self, columns: dict[str, Any]) -> int:
        """Write one segment from columns in table order; returns its rows."""
        arrays = [_as_array(columns[field.name], field) for field in self._schema]
        batch = pa.table(arrays, schema=self._schema)
        self._number += 1
        final = self._folder / f"{self._name}-{self._number:05d}.parquet"
        beside = final.with_name(f".{final.name}.tmp")
        # Timestamps and counters compress well with lz4 at a cost the generator does not feel.
        pq.write_table(batch, beside, compression="lz4", store_schema=False, write_statistics=False)
        os.replace(beside, final)
        return int(batch.num_rows)


def _as_array(values: Any, field: pa.Field) -> pa.Array:
    if isinstance(values, pa.DictionaryArray):
        return values.dictionary.take(values.indices)
    if isinstance(values, pa.Array):
        return values
    return pa.array(values, type=field.type)


def write_rows(folder: Path, table: Table, name: str, rows: list[tuple[Any, ...]]) -> int:
    """Write a few rows (tuples in column order) as one segment; no rows, no file."""
    if not rows:
        return 0
    columns = dict(zip(table.column_names, zip(*rows, strict=True), strict=True))
    return SegmentWriter(folder, table, name).write(columns)
