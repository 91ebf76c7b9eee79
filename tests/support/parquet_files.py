"""The bytes of Parquet files, for runs made up by tests: hundreds of them, most without rows."""

from __future__ import annotations

from functools import cache

import pyarrow as pa
import pyarrow.parquet as pq


def parquet_of(rows: pa.Table) -> bytes:
    """A file with these rows."""
    # Most tables of most runs are empty, and a file without rows takes as long to make as one with some.
    return _encoded(rows) if rows.num_rows else _without_rows(rows.schema)


@cache
def _without_rows(schema: pa.Schema) -> bytes:
    return _encoded(schema.empty_table())


def _encoded(rows: pa.Table) -> bytes:
    file = pa.BufferOutputStream()
    pq.write_table(rows, file)
    return bytes(file.getvalue())
