"""Latencies: how many messages fell into which bucket, for every kind of delay.

What was owed and never arrived, and what the broker never let leave (the backlog), is infinitely late.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from battlebrokers.pipeline.audience import Facts
from battlebrokers.pipeline.buckets import bucket_at
from battlebrokers.pipeline.steps.ledger import owed

_GROUP = ("phase", "second", "fleet", "client_fleet", "qos")


def latencies(
    facts: Facts, publishes: DataFrame, journeys: DataFrame, fleets: DataFrame, backlog: DataFrame | None = None
) -> DataFrame:
    """The rows of the table `latencies`."""
    delays = _receiving(facts, journeys).union(_sending(facts, publishes, fleets))
    if backlog is not None:
        delays = delays.union(_never(facts, backlog))
    bucketed = facts.gather(delays).withColumn("bucket", bucket_at(F.col("ns")))
    rows = bucketed.groupBy("kind", *_GROUP, "bucket").agg(
        F.count("*").alias("n"),
        # Added up as whole numbers: exact, and the same in whatever order they come.
        F.coalesce(F.sum("ns"), F.lit(0)).alias("sum_ns"),
        F.min("ns").alias("min_ns"),
        F.max("ns").alias("max_ns"),
    )
    return rows if facts.fan_out > 1 else _with_last(rows)


def _with_last(rows: DataFrame) -> DataFrame:
    """The kind `last` where every message has one listener: the last of all is that one, whatever its fleet."""
    kinds = F.when(F.col("kind") == "response", F.array(F.lit("response"), F.lit("last"))).otherwise(F.array("kind"))
    told = rows.withColumn("kind", F.explode(kinds))
    whose = F.when(F.col("kind") == "last", F.lit("")).otherwise(F.col("client_fleet"))
    return (
        told.withColumn("client_fleet", whose)
        .groupBy("kind", *_GROUP, "bucket")
        .agg(
            F.sum("n").alias("n"),
            F.sum("sum_ns").alias("sum_ns"),
            F.min("min_ns").alias("min_ns"),
            F.max("max_ns").alias("max_ns"),
        )
    )


def _receiving(facts: Facts, journeys: DataFrame) -> DataFrame:
    """The delays of messages to their listeners; no delay means never arrived."""
    planned_ns, sent_ns, received_ns = F.col("planned_ns"), F.col("sent_ns"), F.col("received_ns")
    live = journeys.where(owed() & ~F.col("retained") & ~F.col("doubtful"))
    kinds = _kinds(live, response=received_ns - planned_ns, service=received_ns - sent_ns)
    if facts.fan_out <= 1:
        return kinds
    last = _last_of_all(live).withColumn("client_fleet", F.lit(""))
    return kinds.union(_kinds(last, last=received_ns - planned_ns))


def _never(facts: Facts, backlog: DataFrame) -> DataFrame:
    """The messages of the backlog: no delay, for they never arrive."""
    never = F.lit(None).cast("long")
    response = _kinds(backlog, response=never)
    if facts.fan_out <= 1:
        return response
    message = backlog.groupBy("device", "seq", "planned_ns", "phase", "second", "fleet").agg(F.max("qos").alias("qos"))
    return response.union(_kinds(message.withColumn("client_fleet", F.lit("")), last=never))


def _sending(facts: Facts, publishes: DataFrame, fleets: DataFrame) -> DataFrame:
    """The delays of the sending side; a kind that does not apply to a message has no row."""
    devices = fleets.where(F.col("role") == "device").select(F.col("node").alias("device"), "fleet")
    planned_ns, sent_ns = F.col("planned_ns"), F.col("sent_ns")
    sent = (
        publishes.where(sent_ns.isNotNull())
        .join(F.broadcast(devices), "device", "left")
        .withColumns(
            {
                "phase": facts.timeframe.phase_at(planned_ns),
                "second": facts.timeframe.second_at(planned_ns),
                "client_fleet": F.lit(""),
            }
        )
    )
    waited, left_ns = F.col("held") != "no", sent_ns - planned_ns
    answered = F.when(F.col("outcome") != "failed", F.col("acked_ns") - sent_ns)
    return _kinds(sent, lag=F.when(~waited, left_ns), held=F.when(waited, left_ns), publish=answered).where(
        F.col("ns").isNotNull()
    )


def _kinds(rows: DataFrame, **delays_ns: Column) -> DataFrame:
    """One row per message and kind; the events are still read only once."""
    named = rows.select(
        "phase",
        "second",
        F.coalesce("fleet", F.lit("")).alias("fleet"),
        "client_fleet",
        F.col("qos").cast("tinyint").alias("qos"),
        *[delay_ns.alias(kind) for kind, delay_ns in delays_ns.items()],
    )
    return named.unpivot(list(_GROUP), list(delays_ns), "kind", "ns")


def _last_of_all(live: DataFrame) -> DataFrame:
    """One row per message: when the last of its listeners had it; never, if one of them did not get it."""
    lost = F.max(F.when(F.col("received_ns").isNull(), F.lit(1)).otherwise(F.lit(0))) == 1
    return live.groupBy("device", "seq", "planned_ns", "phase", "second", "fleet").agg(
        F.when(lost, F.lit(None)).otherwise(F.max("received_ns")).alias("received_ns"), F.max("qos").alias("qos")
    )
