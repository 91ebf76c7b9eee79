"""Publishing: what each fleet published in each phase, added up, and when the last of it had arrived."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from battlebrokers.pipeline.audience import Facts
from battlebrokers.pipeline.steps.backlog import in_backlog

_SIZES = ("payload_bytes", "structure_bytes", "url_bytes", "wire_bytes")


def publishing(facts: Facts, publishes: DataFrame, journeys: DataFrame, fleets: DataFrame) -> DataFrame:
    """The rows of the table `publishing`."""
    devices = fleets.where(F.col("role") == "device").select(F.col("node").alias("device"), "fleet")
    outcome, held = F.col("outcome"), F.col("held")
    sent = F.col("sent_ns").isNotNull()
    added = (
        publishes.join(F.broadcast(devices), "device", "left")
        .groupBy(
            facts.timeframe.phase_at(F.col("planned_ns")).alias("phase"),
            F.coalesce("fleet", F.lit("")).alias("fleet"),
            "qos",
        )
        .agg(
            F.count("*").alias("planned"),
            _how_many(sent).alias("sent"),
            _how_many(outcome == "acked").alias("acked"),
            _how_many(outcome == "refused").alias("refused"),
            _how_many(outcome == "failed").alias("failed"),
            _how_many(sent & (outcome == "unacked")).alias("unacked"),
            _how_many(~sent).alias("unsent"),
            _how_many(in_backlog(facts.timeframe)).alias("backlog"),
            _how_many(~sent & (held == "no")).alias("shortfall"),
            *[_how_many(held == why).alias(f"held_{why}") for why in ("window", "socket")],
            _how_many(held.isin("offline", "away")).alias("held_offline"),
            F.sum("retries").alias("retries"),
            _how_many(~F.col("stamped")).alias("unstamped"),
            *[F.sum(F.when(sent, F.col(size)).otherwise(F.lit(0))).alias(size) for size in _SIZES],
            F.min("sent_ns").alias("first_sent_ns"),
            F.max("sent_ns").alias("last_sent_ns"),
            F.max("acked_ns").alias("last_acked_ns"),
        )
    )
    arrived = (
        journeys.where((F.col("outcome") == "delivered") & F.col("fleet").isNotNull())
        .groupBy("phase", "fleet")
        .agg(F.max("received_ns").alias("last_received_ns"))
    )
    return added.join(F.broadcast(arrived), ["phase", "fleet"], "left")


def _how_many(condition: Column) -> Column:
    return F.count(F.when(condition, F.lit(1)))
