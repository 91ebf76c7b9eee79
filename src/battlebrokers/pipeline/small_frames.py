"""Rows the driver worked out, brought into Spark without any Python worker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

_ARROW: dict[str, pa.DataType] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "int": pa.int32(),
    "bigint": pa.int64(),
}


def small_frame(spark: SparkSession, columns: str, rows: Iterable[tuple[Any, ...]]) -> DataFrame:
    """A frame from tuples; `columns` as in `"client int, share string"`."""
    fields = [pa.field(name, _ARROW[kind]) for name, kind in (part.split() for part in columns.split(","))]
    values: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in fields]
    arrays = [pa.array(column, field.type) for column, field in zip(values, fields, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=pa.schema(fields)))
