"""Latencies: how many messages fell into which bucket, for every kind of delay; lost ones are infinitely late."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from battlebrokers.pipeline.audience import Facts
from battlebrokers.pipeline.buckets import bucket_at

_GROUP = ("kind", "phase", "second", "fleet", "client_fleet", "qos")


def latencies(facts: Facts, publishes: DataFrame, journeys: DataFrame, fleets: DataFrame) -> DataFrame:
    """The rows of the table `latencies`."""
    # One row holds all its kinds, so that the events are read once and grouped once.
    delays = _delays(facts, _publishing(facts, publishes, fleets), journeys)
    bucketed = delays.withColumn("bucket", bucket_at(F.col("ns")))
    return bucketed.groupBy(*_GROUP, "bucket").agg(
        F.count("*").alias("n"),
        # Added up as whole numbers: exact, and the same in whatever order they come.
        F.coalesce(F.sum("ns"), F.lit(0)).cast("double").alias("sum_ns"),
        F.min("ns").alias("min_ns"),
        F.max("ns").alias("max_ns"),
    )


def _delays(facts: Facts, publishing: DataFrame, journeys: DataFrame) -> DataFrame:
    planned_ns, sent_ns = F.col("planned_ns"), F.col("sent_ns")
    received_ns, acked_ns = F.col("received_ns"), F.col("acked_ns")
    nobody = F.lit("")
    live = journeys.where(F.col("outcome").isin("delivered", "lost") & ~F.col("retained"))
    # Where every message has one listener, the last of all listeners is that one.
    last = live if facts.fan_out <= 1 else _last_of_all(live)
    sent = publishing.where(sent_ns.isNotNull())
    return reduce(
        DataFrame.union,
        [
            _kind(live, "response", F.col("client_fleet"), received_ns - planned_ns),
            _kind(live, "service", F.col("client_fleet"), received_ns - sent_ns),
            _kind(last, "last", nobody, received_ns - planned_ns),
            _kind(
                sent, F.when(F.col("held") == "no", F.lit("lag")).otherwise(F.lit("held")), nobody, sent_ns - planned_ns
            ),
            _kind(sent.where(acked_ns.isNotNull()), "publish", nobody, acked_ns - sent_ns),
        ],
    )


def _kind(rows: DataFrame, kind: str | Column, client_fleet: Column, delay_ns: Column) -> DataFrame:
    name = F.lit(kind) if isinstance(kind, str) else kind
    return rows.select(
        name.alias("kind"),
        "phase",
        "second",
        F.coalesce("fleet", F.lit("")).alias("fleet"),
        client_fleet.alias("client_fleet"),
        F.col("qos").cast("tinyint").alias("qos"),
        delay_ns.alias("ns"),
    )


def _last_of_all(live: DataFrame) -> DataFrame:
    """One row per message: when the last of its listeners had it; never, if one of them did not get it."""
    lost = F.max(F.when(F.col("received_ns").isNull(), F.lit(1)).otherwise(F.lit(0))) == 1
    return live.groupBy("device", "seq", "planned_ns", "phase", "second", "fleet").agg(
        F.when(lost, F.lit(None)).otherwise(F.max("received_ns")).alias("received_ns"), F.max("qos").alias("qos")
    )


def _publishing(facts: Facts, publishes: DataFrame, fleets: DataFrame) -> DataFrame:
    devices = fleets.where(F.col("role") == "device").select(F.col("node").alias("device"), "fleet")
    planned_ns = F.col("planned_ns")
    return (
        publishes.select("device", "qos", "planned_ns", "sent_ns", "acked_ns", "held")
        .join(F.broadcast(devices), "device", "left")
        .withColumn("phase", facts.timeframe.phase_at(planned_ns))
        .withColumn("second", facts.timeframe.second_at(planned_ns))
    )
