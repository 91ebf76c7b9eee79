"""Tables as they lie on disk, read in pieces: so much of a large table as an answer needs, never all of it at once.

Called by what looks into captures. Reads Parquet with pyarrow; computes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from battlebrokers.errors import RunFolderError
from battlebrokers.tables import STREAMS
from battlebrokers.tables.base import Table
from battlebrokers.tables.run_folder import RunFolder


def is_stored(folder: RunFolder, table: Table) -> bool:
    """Whether the table is there, empty or not."""
    return folder.table(table).is_dir()


def is_decoded(folder: RunFolder) -> bool:
    """Whether captures were decoded, and to the end."""
    return is_stored(folder, STREAMS) and folder.decoded_summary_path.exists()


def pieces(folder: RunFolder, table: Table, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The table's row groups one after the other, with these columns only."""
    names = list(columns) if columns is not None else table.column_names
    schema = pa.schema([table.arrow_schema().field(name).with_nullable(True) for name in names])
    for path in sorted(folder.table(table).glob("*.parquet")):
        try:
            file = pq.ParquetFile(path)
            for number in range(file.num_row_groups):
                yield file.read_row_group(number, columns=names).select(names).cast(schema)
        except (pa.ArrowException, KeyError, OSError) as error:
            raise RunFolderError(
                f"{path} cannot be read: {error}", hint="Everything but what was recorded can be computed again."
            ) from error


def whole(folder: RunFolder, table: Table, columns: Sequence[str] | None = None) -> pa.Table:
    """The same as one table, for small ones."""
    names = list(columns) if columns is not None else table.column_names
    schema = pa.schema([table.arrow_schema().field(name).with_nullable(True) for name in names])
    return pa.concat_tables([pa.Table.from_batches([], schema=schema), *pieces(folder, table, columns)])
