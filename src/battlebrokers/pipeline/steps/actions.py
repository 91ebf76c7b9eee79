"""Actions: connects, subscribes and other operations of each fleet, with exact percentiles of how long they took."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812


def actions(operations: DataFrame, fleets: DataFrame) -> DataFrame:
    """The rows of the table `actions`."""
    took_ns = F.col("ended_ns") - F.col("started_ns")
    return (
        operations.join(F.broadcast(fleets), ["role", "node"], "left")
        .withColumn("fleet", F.coalesce("fleet", F.lit("")))
        .withColumn("took_ns", took_ns)
        .groupBy("role", "fleet", "kind", "outcome")
        .agg(
            F.count("*").alias("n"),
            F.min("started_ns").alias("first_ns"),
            F.max(F.coalesce("ended_ns", "started_ns")).alias("last_ns"),
            # Whole numbers first: the same mean in whatever order rows come.
            (F.sum("took_ns") / F.count("took_ns")).alias("mean_ns"),
            F.percentile("took_ns", F.lit(0.5)).alias("p50_ns"),
            F.percentile("took_ns", F.lit(0.99)).alias("p99_ns"),
            F.max("took_ns").alias("max_ns"),
        )
    )
