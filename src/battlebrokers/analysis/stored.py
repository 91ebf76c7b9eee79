"""Tables as they lie on disk, read in pieces: so much of a large table as an answer needs, never all of it at once.

Called by what looks into captures. Reads Parquet with pyarrow; computes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from battlebrokers.errors import RunFolderError
from battlebrokers.tables import ALONE, JOURNEYS, STREAMS
from battlebrokers.tables.base import Table
from battlebrokers.tables.run_folder import RunFolder


def is_stored(folder: RunFolder, table: Table) -> bool:
    """Whether the table is there, empty or not."""
    return folder.table(table).is_dir()


def is_decoded(folder: RunFolder) -> bool:
    """Whether captures were decoded, and to the end."""
    return is_stored(folder, STREAMS) and folder.decoded_summary_path.exists()


def has_columns(folder: RunFolder, table: Table, columns: Sequence[str]) -> bool:
    """Whether the table is there with these columns; one that cannot be read has any, and its reader will complain."""
    for path in sorted(folder.table(table).glob("*.parquet"))[:1]:
        try:
            return set(columns) <= set(pq.read_schema(path).names)
        except (pa.ArrowException, OSError):
            return True
    return is_stored(folder, table)


def is_run(folder: RunFolder) -> bool:
    """Whether it says what became of every message that was published; captures alone do not."""
    return has_columns(folder, JOURNEYS, ["outcome"])


def stored_as(folder: RunFolder, table: Table) -> Table | None:
    """The table under the name it has there: captures alone have some under other ones. None if it is not there."""
    known = (table, ALONE.get(table.name, table))
    return next((one for one in known if has_columns(folder, one, table.column_names)), None)


def rows_with(folder: RunFolder, table: Table, column: str, values: pa.Array) -> Iterator[pa.Table]:
    """The rows with one of these values; of row groups without any only that column is read."""
    parts = zip(pieces(folder, table, [column]), _numbered(folder, table), strict=True)
    for piece, (path, number) in parts:
        wanted = pc.is_in(piece[column], values)
        if pc.any(wanted).as_py():
            yield _group(pq.ParquetFile(path), number, table, table.column_names).filter(wanted)


def pieces(folder: RunFolder, table: Table, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The table's row groups one after the other, with these columns only."""
    names = list(columns) if columns is not None else table.column_names
    opened: tuple[Path, Any] | None = None
    for path, number in _numbered(folder, table):
        with _complaining(path):
            if opened is None or opened[0] != path:
                opened = path, pq.ParquetFile(path)
            piece = _group(opened[1], number, table, names)
        yield piece


def _numbered(folder: RunFolder, table: Table) -> Iterator[tuple[Path, int]]:
    for path in sorted(folder.table(table).glob("*.parquet")):
        with _complaining(path):
            count = pq.ParquetFile(path).num_row_groups
        yield from ((path, number) for number in range(count))


def _group(file: Any, number: int, table: Table, names: Sequence[str]) -> pa.Table:
    schema = pa.schema([table.arrow_schema().field(name).with_nullable(True) for name in names])
    return file.read_row_group(number, columns=list(names)).select(list(names)).cast(schema)


@contextmanager
def _complaining(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, KeyError, OSError) as error:
        raise RunFolderError(
            f"{path} cannot be read: {error}", hint="Everything but what was recorded can be computed again."
        ) from error


def whole(folder: RunFolder, table: Table, columns: Sequence[str] | None = None) -> pa.Table:
    """The same as one table, for small ones."""
    names = list(columns) if columns is not None else table.column_names
    schema = pa.schema([table.arrow_schema().field(name).with_nullable(True) for name in names])
    return pa.concat_tables([pa.Table.from_batches([], schema=schema), *pieces(folder, table, columns)])
