"""Arrow columns into numpy and back, and rows grouped by their values; used by everything that reads tables.

Arrow's own `array`, `scalar`, `to_numpy`, `group_by` and `sort_by` load all of pandas: a second for every `bb` command.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_DENSE, _SPARSE = 65_536, 4
"""Up to so many codes, and so many a row, are counted in a table; beyond that they are sorted."""
Column: TypeAlias = pa.Array | pa.ChunkedArray


def int64_array(values: Iterable[int]) -> pa.Array:
    """An Arrow array of whole numbers."""
    numbers = np.fromiter(values, dtype=np.int64)
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def text_scalar(text: str) -> pa.Scalar:
    """A text to compare a column with."""
    letters = text.encode()
    ends = np.array([0, len(letters)], dtype=np.int32)
    return pa.StringArray.from_buffers(1, pa.py_buffer(ends), pa.py_buffer(letters))[0]


def scalar_of(value: str | int | bool, kind: pa.DataType) -> pa.Scalar:
    """A value to compare a column of that type with."""
    return text_scalar(value) if isinstance(value, str) else int64_array([int(value)]).cast(kind)[0]


def numbers_of(column: Column) -> npt.NDArray[Any]:
    """A column of numbers without nulls."""
    if not len(column):
        return np.empty(0, dtype=np.int64)
    return np.from_dlpack(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)


def floats_of(column: Column) -> npt.NDArray[np.float64]:
    """A column of numbers; not-a-number where it is null."""
    nothing = pa.Array.from_buffers(pa.float64(), 1, [None, pa.py_buffer(np.array([np.nan]))])[0]
    return numbers_of(pc.coalesce(column.cast(pa.float64()), nothing)).astype(np.float64)


def distinct(codes: npt.NDArray[np.int64], size: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The different codes in ascending order, and for each code its place among them; all are below `size`."""
    if size > _SPARSE * len(codes) + _DENSE:
        found, places = np.unique(codes, return_inverse=True)
        return found, places
    found = np.flatnonzero(np.bincount(codes, minlength=size))
    place_of = np.empty(size, dtype=np.int64)
    place_of[found] = np.arange(len(found))
    return found, place_of[codes]


def group_codes(rows: pa.Table, columns: Sequence[str]) -> tuple[npt.NDArray[np.int64], list[tuple[Any, ...]]]:
    """For each row the number of its group, and the groups' values of these columns; null is a value too."""
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    values: list[list[Any]] = []
    if not rows.num_rows:
        return codes, []
    for name in columns:
        encoded = rows[name].combine_chunks().dictionary_encode(null_encoding="encode")
        values.append(encoded.dictionary.to_pylist())
        codes = codes * len(values[-1]) + numbers_of(encoded.indices).astype(np.int64)
    kept, groups = distinct(codes, math.prod(len(known) for known in values))
    keys = []
    for code in kept.tolist():
        key = []
        for known in reversed(values):
            code, place = divmod(code, len(known))
            key.append(known[place])
        keys.append(tuple(reversed(key)))
    return groups, keys


def ordered_groups(rows: pa.Table, columns: Sequence[str]) -> tuple[npt.NDArray[np.int64], list[tuple[Any, ...]]]:
    """The same with the groups in the order of their values, nulls last."""
    groups, keys = group_codes(rows, columns)
    # An empty text stays one: beside others a number in its place could not be sorted.
    sortable = [[(value is None, 0 if value is None else value) for value in key] for key in keys]
    order = sorted(range(len(keys)), key=sortable.__getitem__)
    places = np.empty(len(keys), dtype=np.int64)
    places[order] = np.arange(len(keys))
    return places[groups] if len(keys) else groups, [keys[number] for number in order]


def sums_by(rows: pa.Table, keys: Sequence[str], columns: Sequence[str]) -> list[dict[str, Any]]:
    """Whole-number columns added up per group, as rows in the order of the keys' values."""
    groups, found = ordered_groups(rows, keys)
    sums = {name: np.zeros(len(found), dtype=np.int64) for name in columns}
    for name, added in sums.items():
        np.add.at(added, groups, numbers_of(rows[name].cast(pa.int64())))
    return [
        dict(zip(keys, key, strict=True)) | {name: int(added[place]) for name, added in sums.items()}
        for place, key in enumerate(found)
    ]
