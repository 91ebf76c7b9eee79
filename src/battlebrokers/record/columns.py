"""Columns: numpy and Python values to Arrow arrays, from their bytes. Called by the recorder's writer thread.

`pa.array` is not used on purpose: its first call imports pandas, which would stall a run for a second or more.
Words become dictionary arrays, which Parquet stores as plain strings without hashing every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Mask = npt.NDArray[np.bool_]


def numbers(values: npt.NDArray[Any], kind: pa.DataType, missing: Mask | None = None) -> pa.Array:
    """An array of an integer, float or boolean type; null where `missing` says so."""
    plain = kind.to_pandas_dtype()
    content = _bits(values) if plain is np.bool_ else np.ascontiguousarray(values, dtype=plain)
    absent = int(np.count_nonzero(missing)) if missing is not None else 0
    present = pa.py_buffer(_bits(~missing)) if missing is not None and absent else None
    return pa.Array.from_buffers(kind, len(values), [present, pa.py_buffer(content)], null_count=absent)


def known_or_null(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """An array in which negative numbers are null: that is how the logs say "none"."""
    return numbers(values, kind, values < 0)


def words(vocabulary: Sequence[str], codes: npt.NDArray[Any]) -> pa.DictionaryArray:
    """An array of words by their place in a vocabulary; negative places are null."""
    places = np.ascontiguousarray(codes, dtype=np.int32)
    indices = known_or_null(places, pa.int32())
    return pa.DictionaryArray.from_arrays(indices, _strings(vocabulary), safe=False)


def column(values: Any, field: pa.Field) -> pa.Array:
    """An array for a field from Arrow, numpy, or a sequence of Python values with None for null."""
    if isinstance(values, pa.Array):
        return values
    if pa.types.is_string(field.type):
        vocabulary: dict[str, int] = {}
        codes = [-1 if value is None else vocabulary.setdefault(value, len(vocabulary)) for value in values]
        return words(list(vocabulary), np.array(codes, dtype=np.int32))
    if isinstance(values, np.ndarray):
        return numbers(values, field.type)
    missing = np.array([value is None for value in values], dtype=np.bool_)
    filled = [0 if value is None else value for value in values]
    return numbers(np.array(filled, dtype=field.type.to_pandas_dtype()), field.type, missing)


def _bits(flags: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return np.packbits(flags, bitorder="little")


def _strings(texts: Sequence[str]) -> pa.Array:
    encoded = [text.encode("utf-8", "replace") for text in texts]
    offsets = np.zeros(len(encoded) + 1, dtype=np.int32)
    offsets[1:] = np.cumsum(np.array([len(text) for text in encoded], dtype=np.int32))
    return pa.Array.from_buffers(
        pa.string(), len(encoded), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    )
