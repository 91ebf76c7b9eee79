"""Tables as they lie on disk, read in pieces: so much of a large table as an answer needs, never all of it at once.

Called by what looks into captures. Reads Parquet with pyarrow; computes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from battlebrokers.errors import RunFolderError
from battlebrokers.tables.base import Table
from battlebrokers.tables.run_folder import RunFolder


def is_stored(folder: RunFolder, table: Table) -> bool:
    """Whether the table is there, empty or not."""
    return folder.table(table).is_dir()


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


# Arrow's own `array`, `scalar`, `to_numpy`, `group_by` and `sort_by` load all of pandas: a second for nothing.
# Hence these.


def int64_array(values: Iterable[int]) -> pa.Array:
    """An Arrow array of whole numbers."""
    numbers = np.fromiter(values, dtype=np.int64)
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def numbers_of(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """A column of numbers without nulls."""
    if not len(column):
        return np.empty(0, dtype=np.int64)
    return np.from_dlpack(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)


def group_codes(rows: pa.Table, columns: Sequence[str]) -> tuple[npt.NDArray[np.int64], list[tuple[Any, ...]]]:
    """For each row the number of its group, and the groups' values of these columns (which must not be null)."""
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    values: list[list[Any]] = []
    if not rows.num_rows:
        return codes, []
    for name in columns:
        encoded = rows[name].combine_chunks().dictionary_encode()
        values.append(encoded.dictionary.to_pylist())
        codes = codes * len(values[-1]) + numbers_of(encoded.indices).astype(np.int64)
    kept, groups = np.unique(codes, return_inverse=True)
    keys = []
    for code in kept.tolist():
        key = []
        for known in reversed(values):
            code, place = divmod(code, len(known))
            key.append(known[place])
        keys.append(tuple(reversed(key)))
    return groups, keys


def text_scalar(text: str) -> pa.Scalar:
    """A text to compare a column with."""
    letters = text.encode()
    ends = np.array([0, len(letters)], dtype=np.int32)
    return pa.StringArray.from_buffers(1, pa.py_buffer(ends), pa.py_buffer(letters))[0]
