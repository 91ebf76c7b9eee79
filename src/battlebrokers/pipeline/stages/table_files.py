"""The files of a table as the tasks of a stage write them: one Parquet file per task, by Arrow, where Spark reads it.

Rows made in Python would cost Spark more to take over than they cost to make. A file appears when it is whole, under a
name that depends on its task's number only: a task that runs twice leaves one file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from battlebrokers.pipeline.sources.files import local_path, remote, remote_key
from battlebrokers.tables.base import Table

_ROWS_PER_GROUP = 1 << 17
_ROWS_READ = 1 << 16
_REPEATING = {"string", "bool", "int8", "int16", "int32", "float64"}
"""Kinds of columns whose values come again; the others are numbers that grow, but for these:"""
_HASHES = {"fingerprint", "identity"}
_REPEATING_HASHES = {"stream"}


class TableFile:
    """One task's file of a table; without rows only the first task writes one. A context: what fails leaves nothing."""

    def __init__(self, folder: str, table: Table, task: int) -> None:
        self._table = table
        self._schema = table.arrow_schema()
        self._address = f"{folder.rstrip('/')}/part-{task:05}.parquet"
        self._batches: list[pa.RecordBatch] = []
        self._waiting = 0
        self._writer: Any = None
        self._whole = self._unfinished = Path()
        self._always = task == 0
        """Or a table without rows would not be there at all."""

    def write(self, rows: pa.RecordBatch) -> None:
        """More rows, with the table's own schema."""
        if not rows.num_rows:
            return
        self._batches.append(rows)
        self._waiting += rows.num_rows
        if self._waiting >= _ROWS_PER_GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._writer is None:
            self._writer = self._open()
        self._writer.write_table(pa.Table.from_batches(self._batches, self._schema), _ROWS_PER_GROUP)
        self._batches, self._waiting = [], 0

    def _open(self) -> Any:
        path = local_path(self._address)
        place: Any
        if path is not None:
            self._whole = Path(path)
            self._whole.parent.mkdir(parents=True, exist_ok=True)
            self._unfinished = self._whole.with_name(f".{self._whole.name}.{uuid4().hex}")
            place = str(self._unfinished)
        else:
            # Object stores show a file when it is closed; elsewhere a task that dies leaves one that is written again.
            place = remote(self._address).open_output_stream(remote_key(self._address))
        repeating = [
            column.name
            for column in self._table.columns
            if column.kind in _REPEATING or column.name in _REPEATING_HASHES
        ]
        growing = {column.name for column in self._table.columns} - {*repeating, *_HASHES}
        # Written as differences they are small before anything is packed, which a quick packer then does as well.
        return pq.ParquetWriter(
            place, self._schema, compression="snappy", use_dictionary=repeating,
            column_encoding=dict.fromkeys(growing, "DELTA_BINARY_PACKED"),
        )  # fmt: skip

    def __enter__(self) -> TableFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and (self._waiting or (self._always and self._writer is None)):
                self._flush()
            if self._writer is not None:
                self._writer.close()
                if error is None and self._unfinished.name:
                    self._unfinished.replace(self._whole)
        finally:
            if self._unfinished.name:
                self._unfinished.unlink(missing_ok=True)


def read_file(folder: str, task: int, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows one task wrote, a bounded number at a time; none if it had none."""
    address = f"{folder.rstrip('/')}/part-{task:05}.parquet"
    path = local_path(address)
    try:
        place: Any = path if path is not None else remote(address).open_input_file(remote_key(address))
        file = pq.ParquetFile(place)
    except FileNotFoundError:
        return
    with file:
        yield from file.iter_batches(_ROWS_READ, columns=columns)
