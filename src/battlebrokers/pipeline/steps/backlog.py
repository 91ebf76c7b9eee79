"""The backlog: messages the broker held (window, socket or connection) until the load was over, so they never left.

They are owed to nobody in the ledger, for no broker ever had them; for those who waited they are infinitely late.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from battlebrokers.pipeline.attendance import GRACE_NS, OWED
from battlebrokers.pipeline.audience import Facts
from battlebrokers.pipeline.steps.expectations import claim_at, effective_qos, heard_by
from battlebrokers.pipeline.timeframe import Timeframe

HELD_BY_BROKER = ("window", "socket", "offline")
"""Why a message waits that is the broker's doing; `away` is the plan's."""


def in_backlog(time: Timeframe) -> Column:
    """Whether a publish belongs to it; one that was due just before the end had no time to leave."""
    held = F.col("sent_ns").isNull() & F.col("held").isin(*HELD_BY_BROKER)
    return held if time.drain_start_ns is None else held & (F.col("planned_ns") < time.drain_start_ns - GRACE_NS)


def backlog(
    facts: Facts,
    publishes: DataFrame,
    routes: DataFrame,
    spells: DataFrame,
    listeners: DataFrame,
    fleets: DataFrame,
) -> DataFrame:
    """One row per such message and listener that would have been owed it, had it left when planned."""
    time, planned_ns = facts.timeframe, F.col("planned_ns")
    devices = fleets.where(F.col("role") == "device").select(F.col("node").alias("device"), "fleet")
    return (
        heard_by(publishes.where(in_backlog(time)), routes, spells, planned_ns)
        .where(claim_at(planned_ns) == OWED)
        .groupBy("device", "seq", "planned_ns", "listener")
        .agg(F.max(effective_qos()).alias("qos"))
        .join(F.broadcast(devices), "device", "left")
        .join(F.broadcast(listeners.select("listener", "client_fleet")), "listener", "left")
        .select(
            "device",
            "seq",
            "planned_ns",
            "fleet",
            F.coalesce("client_fleet", F.lit("")).alias("client_fleet"),
            "qos",
            time.phase_at(planned_ns).alias("phase"),
            time.second_at(planned_ns).alias("second"),
        )
    )
