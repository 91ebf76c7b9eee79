"""The table reference as a page: every table, its columns, types and sentences, as Markdown.

Called by `scripts/generate-reference`. Says nothing that the tables do not say themselves.
"""

from __future__ import annotations

from itertools import groupby

from battlebrokers.tables import ALL_TABLES
from battlebrokers.tables.base import Column, Table

_LAYERS = {
    "recorded": "Evidence, written while the run is going and never changed afterwards.",
    "decoded": "What captures say, computed from them.",
    "journeys": "Each message followed from plan to arrival, computed from the evidence.",
    "measures": "What the report is made of, added up from evidence and journeys.",
}


def tables_reference() -> str:
    """The whole page, in the order data flows."""
    about = (
        "Every table of a run folder, as Parquet files in `RUN/<layer>/<table>/`; any reader of Parquet opens them. "
        "Columns ending in `_ns` are run time in nanoseconds since the epoch (see the [glossary](../glossary.md)). "
        "Everything outside `recorded/` can be deleted and rebuilt with `bb analyze RUN`.\n"
    )
    parts = ["# Tables\n", about]
    for layer, tables in groupby(ALL_TABLES, key=lambda table: table.layer):
        parts.append(f"## {layer}\n\n{_LAYERS[layer]}\n")
        parts.extend(_section(table) for table in tables)
    return "\n".join(parts)


def _section(table: Table) -> str:
    rows = "\n".join(_row(column) for column in table.columns)
    return f"### {table.name}\n\n{table.about}\n\n| column | type | meaning |\n|---|---|---|\n{rows}\n"


def _row(column: Column) -> str:
    kind = f"{column.kind}, may be null" if column.nullable else column.kind
    return f"| `{column.name}` | {kind} | {column.about.replace('|', chr(92) + '|')} |"
