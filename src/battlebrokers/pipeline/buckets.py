"""The latency bucket as a Spark expression: the same formula, the same numbers as `tables.measures.bucket_of`."""

from __future__ import annotations

import math

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from battlebrokers.tables.measures import BUCKET_GAMMA, BUCKET_LOST, BUCKET_TINY


def bucket_at(latency_ns: Column) -> Column:
    """The bucket of a latency; null means never arrived."""
    micros = latency_ns / F.lit(1000.0)
    return (
        F.when(latency_ns.isNull(), F.lit(BUCKET_LOST))
        .when(micros < 1, F.lit(BUCKET_TINY))
        .otherwise(F.ceil(F.log(micros) / F.lit(math.log(BUCKET_GAMMA))).cast("int"))
    )
