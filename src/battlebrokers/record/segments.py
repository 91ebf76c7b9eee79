"""Parquet segments: a table on disk is a folder of small complete files, so a killed run stays readable.

Called by the recorder's writer thread and by the orchestrator. Each file appears whole, by rename, or not at all.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from battlebrokers.record.columns import column
from battlebrokers.tables import Table


class SegmentWriter:
    """Writes numbered segments of one table: `<name>-00001.parquet`, `<name>-00002.parquet`, …."""

    def __init__(self, folder: Path, table: Table, name: str) -> None:
        self._folder = folder / table.folder
        self._schema = table.arrow_schema()
        self._words = [field.name for field in self._schema if pa.types.is_string(field.type)]
        self._name = name
        self._number = 0
        self._folder.mkdir(parents=True, exist_ok=True)

    def write(self, columns: dict[str, Any]) -> int:
        """Write one segment from columns in table order; returns its rows."""
        arrays = [column(columns[field.name], field) for field in self._schema]
        fields = [field.with_type(array.type) for field, array in zip(self._schema, arrays, strict=True)]
        batch = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
        self._number += 1
        final = self._folder / f"{self._name}-{self._number:05d}.parquet"
        beside = final.with_name(f".{final.name}.tmp")
        # Dictionaries pay for words only; numbers compress well with lz4 at a cost the generator does not feel.
        try:
            pq.write_table(
                batch, beside, compression="lz4", use_dictionary=self._words, store_schema=False,
                write_statistics=False,
            )  # fmt: skip
            beside.replace(final)
        except OSError:
            # Half a file takes room that others need: the manifest above all.
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
            raise
        return int(batch.num_rows)


def write_rows(folder: Path, table: Table, name: str, rows: list[tuple[Any, ...]]) -> int:
    """Write a few rows (tuples in column order) as one segment; no rows, no file."""
    if not rows:
        return 0
    columns = dict(zip(table.column_names, zip(*rows, strict=True), strict=True))
    return SegmentWriter(folder, table, name).write(columns)
