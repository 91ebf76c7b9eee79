"""The gate every table passes before it is written: right columns, right order, right types, or a loud failure."""

from __future__ import annotations

from pyspark.sql import DataFrame

from battlebrokers.errors import PipelineError
from battlebrokers.tables import Table


def conform(frame: DataFrame, table: Table) -> DataFrame:
    """The frame with exactly the table's columns; extra ones fall away, a missing one is our bug."""
    missing = [name for name in table.column_names if name not in frame.columns]
    if missing:
        raise PipelineError(f"the step for `{table.name}` lacks {', '.join(missing)}")
    kinds = dict(part.strip().rsplit(" ", 1) for part in table.spark_ddl().split(","))
    return frame.selectExpr(*[f"CAST(`{name}` AS {kinds[f'`{name}`']}) AS `{name}`" for name in table.column_names])
