"""What a table is: named columns, each with a type and one sentence.

Recorders, the pipeline, readers and the reference docs all take their schema from here. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import pyarrow as pa

Layer = Literal["recorded", "decoded", "journeys", "measures"]
LAYERS: tuple[Layer, ...] = get_args(Layer)
Kind = Literal["string", "bool", "int8", "int16", "int32", "int64", "float64"]

_SPARK_TYPE: dict[Kind, str] = {
    "string": "STRING",
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float64": "DOUBLE",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `about` is the sentence users read, units are in the name."""

    name: str
    kind: Kind
    about: str
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the run folder; a row is what `about` says."""

    name: str
    layer: Layer
    about: str
    columns: tuple[Column, ...]

    @property
    def folder(self) -> str:
        """Where it lies, relative to the run folder."""
        return f"{self.layer}/{self.name}"

    def arrow_schema(self) -> pa.Schema:
        """The schema recorders write and readers expect."""
        return pa.schema([pa.field(c.name, pa.type_for_alias(c.kind), nullable=c.nullable) for c in self.columns])

    def spark_ddl(self) -> str:
        """The same schema as Spark's DDL string."""
        return ", ".join(f"`{c.name}` {_SPARK_TYPE[c.kind]}" for c in self.columns)

    @property
    def column_names(self) -> list[str]:
        """The names, in order."""
        return [c.name for c in self.columns]
