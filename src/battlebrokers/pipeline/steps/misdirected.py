"""Messages of this run that arrived on another topic than they were published on: they count as delivered to nobody.

Taken only when arrivals with a header were recorded with their topic, which a worker does where it is not the planned
one. What was published decides; messages this run never sent are left to the other steps.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from battlebrokers.pipeline.audience import Facts
from battlebrokers.tables import DELIVERIES, JOURNEYS

_MESSAGE = ("device", "seq", "planned_ns")


def misdirected(deliveries_recorded: DataFrame, publishes: DataFrame) -> DataFrame:
    """The arrivals on a wrong topic, each with what is known of its message."""
    said = publishes.select(*_MESSAGE, F.col("topic").alias("published_on"), "sent_ns", "acked_ns")
    named = deliveries_recorded.where((F.col("device") >= 0) & F.col("topic").isNotNull())
    return named.join(said, list(_MESSAGE)).where(F.col("topic") != F.col("published_on"))


def right_topics(deliveries_recorded: DataFrame, misdirected: DataFrame) -> DataFrame:
    """All other arrivals."""
    place = ["worker", "client", *_MESSAGE, "received_ns"]
    named = (F.col("device") >= 0) & F.col("topic").isNotNull()
    astray = misdirected.select(*place)
    kept = deliveries_recorded.where(named).join(astray, place, "left_anti").select(*DELIVERIES.column_names)
    return deliveries_recorded.where(~named).unionByName(kept)


def misdirected_journeys(facts: Facts, misdirected: DataFrame, listeners: DataFrame, fleets: DataFrame) -> DataFrame:
    """One journey for each of them, on the topic it came on."""
    time = facts.timeframe
    devices = fleets.where(F.col("role") == "device").select(F.col("node").alias("device"), "fleet")
    clients = listeners.where(F.col("share").isNull()).select("client", "client_fleet")
    rows = misdirected.join(F.broadcast(devices), "device", "left").join(F.broadcast(clients), "client", "left")
    received_ns, no = F.col("received_ns"), F.lit(False)
    columns: dict[str, Column] = {
        "share": F.lit(None).cast("string"),
        "client_fleet": F.coalesce("client_fleet", F.lit("")),
        "qos": F.col("qos").cast("int"),
        "phase": time.phase_at(F.col("planned_ns")),
        "second": time.second_at(F.col("planned_ns")),
        "outcome": F.lit("wrong_topic"),
        "doubtful": no,
        "recovered": no,
        "late": time.is_late(received_ns),
        "reordered": no,
        "duplicates": F.lit(0),
        "duplicates_flagged": F.lit(0),
        "matched_by": F.lit("header"),
    }
    return rows.select(*[columns.get(name, F.col(name)).alias(name) for name in JOURNEYS.column_names])
