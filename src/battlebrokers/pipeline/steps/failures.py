"""Failures: messages that were refused or got no proper answer, by fleet and reason."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from battlebrokers.pipeline.audience import Facts


def failures(facts: Facts, publishes: DataFrame, fleets: DataFrame) -> DataFrame:
    """The rows of the table `failures`."""
    devices = fleets.where(F.col("role") == "device").select(F.col("node").alias("device"), "fleet")
    # Most runs have none: then nothing is read.
    wrong = publishes.where(F.col("outcome").isin("refused", "failed")) if facts.has_failures else publishes.limit(0)
    return (
        wrong.join(F.broadcast(devices), "device", "left")
        .groupBy(
            facts.timeframe.phase_at(F.col("planned_ns")).alias("phase"),
            F.coalesce("fleet", F.lit("")).alias("fleet"),
            "outcome",
            "reason",
        )
        .agg(F.count("*").alias("n"))
    )
