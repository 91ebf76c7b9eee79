"""Kept messages: what a broker owes a client that subscribes later, and the retained arrivals that pay it.

Three steps, taken only when a device published with `retain`: who is owed which message, which arrival belongs to
which subscription, and the journeys of both. None of these journeys enters the response latency.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from battlebrokers.pipeline.attendance import GRACE_NS
from battlebrokers.pipeline.audience import Facts
from battlebrokers.tables import JOURNEYS

_MESSAGE = (
    "device", "seq", "planned_ns", "sent_ns", "acked_ns", "outcome", "qos", "stamped", "payload_bytes", "settled_ns",
)  # fmt: skip


def owe_kept(publishes: DataFrame, routes: DataFrame, subscriptions: DataFrame) -> DataFrame:
    """Per client, connection and topic: the last message kept there when it subscribed.

    `certain` is false if a newer one was on its way just then: then any of the two may come.
    """
    by_topic = routes.select("topic", "topic_id").distinct()
    kept = (
        publishes.where(F.col("retain") & F.col("sent_ns").isNotNull() & (F.col("outcome") != "refused"))
        .join(F.broadcast(by_topic), "topic")
        .withColumn("settled_ns", F.when(F.col("qos") == 0, F.col("sent_ns") + GRACE_NS).otherwise(F.col("acked_ns")))
    )
    asked = (
        subscriptions.join(routes.select("topic_id", "filter_id"), "filter_id")
        .groupBy("client", "connection", "topic_id")
        .agg(
            F.min("started_ns").alias("started_ns"),
            F.max("ended_ns").alias("ended_ns"),
            F.max("granted_qos").alias("granted_qos"),
        )
    )
    question = F.struct("client", "connection", "started_ns", "granted_qos")
    message = F.struct(*_MESSAGE)
    events = kept.select(
        "topic_id", F.col("sent_ns").alias("at_ns"), message.alias("message"), F.lit(None).alias("question")
    ).union(
        asked.select(
            "topic_id", F.col("ended_ns").alias("at_ns"), F.lit(None).alias("message"), question.alias("question")
        )
    )
    order = Window.partitionBy("topic_id").orderBy("at_ns", F.col("question").isNotNull())
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        events.withColumn("message", F.last("message", ignorenulls=True).over(so_far))
        .where(F.col("question").isNotNull() & F.col("message").isNotNull())
        .select("topic_id", "question.*", "message.*")
        # An empty payload wipes what was kept.
        .where(F.col("payload_bytes") > 0)
        .withColumn("certain", F.coalesce(F.col("settled_ns") < F.col("started_ns"), F.lit(False)))
        .withColumn("qos", F.least("qos", "granted_qos"))
        .drop("settled_ns", "started_ns", "granted_qos")
    )


def claim_kept(deliveries: DataFrame, connections: DataFrame, owed_kept: DataFrame, topics: DataFrame) -> DataFrame:
    """The retained arrivals, each with the connection it came over and whether a kept message was owed there."""
    spans = F.broadcast(connections.withColumnRenamed("client", "connected"))
    during = (
        (F.col("client") == F.col("connected"))
        & (F.col("received_ns") >= F.col("from_ns"))
        & (F.col("received_ns") < F.col("to_ns"))
    )
    came = (
        deliveries.where("retained")
        .join(F.broadcast(topics), "topic", "left")
        .join(spans, during, "left")
        .withColumn("connection", F.coalesce("connection", F.lit(0)))
        .drop("worker", "topic", "connected", "from_ns", "to_ns")
    )
    owed = owed_kept.withColumn("claimed", F.lit(True))
    stamped = came.where(F.col("device") >= 0).drop("topic_id")
    named = stamped.join(
        owed.select("client", "connection", "device", "seq", "planned_ns", "topic_id", "claimed"),
        ["client", "connection", "device", "seq", "planned_ns"],
        "left",
    )
    # Without a header the topic says which message it is: there is one kept message a topic.
    nameless = (
        came.where(F.col("device") < 0)
        .drop("device", "seq", "planned_ns")
        .join(
            owed.where(~F.col("stamped")).select(
                "client", "connection", "topic_id", "device", "seq", "planned_ns", "claimed"
            ),
            ["client", "connection", "topic_id"],
            "left",
        )
        .withColumn("device", F.coalesce("device", F.lit(-1)))
    )
    return named.unionByName(nameless).withColumn("claimed", F.coalesce("claimed", F.lit(False)))


def kept_journeys(
    facts: Facts,
    owed_kept: DataFrame,
    kept_arrivals: DataFrame,
    listeners: DataFrame,
    fleets: DataFrame,
    topics: DataFrame,
) -> DataFrame:
    """The journeys of kept messages to the clients that subscribed after them."""
    time = facts.timeframe
    place = ["client", "connection", "topic_id"]
    flagged = F.when(F.col("dup"), F.lit(1)).otherwise(F.lit(0))
    paid = (
        kept_arrivals.where("claimed")
        .groupBy(*place)
        .agg(
            F.min(F.struct("received_ns", flagged.alias("dup"))).alias("first"),
            F.count("*").alias("arrivals"),
            F.sum(flagged).alias("flagged"),
        )
    )
    devices = fleets.where(F.col("role") == "device").select(F.col("node").alias("device"), "fleet")
    seen = F.col("first").isNotNull()
    received_ns = F.col("first.received_ns")
    rows = (
        owed_kept.join(paid, place, "left")
        .where(seen | F.col("certain"))
        .join(F.broadcast(topics), "topic_id", "left")
        .join(F.broadcast(devices), "device", "left")
        .join(F.broadcast(listeners.select("client", "client_fleet")), "client", "left")
    )
    unseen = F.lit("indeterminate") if facts.was_cut_short else F.lit("lost")
    return rows.select(
        "device",
        "seq",
        "topic",
        F.lit(None).cast("string").alias("share"),
        "client",
        "fleet",
        F.coalesce("client_fleet", F.lit("")).alias("client_fleet"),
        F.col("qos").cast("int").alias("qos"),
        time.phase_at(F.col("planned_ns")).alias("phase"),
        time.second_at(F.col("planned_ns")).alias("second"),
        "planned_ns",
        "sent_ns",
        "acked_ns",
        received_ns.alias("received_ns"),
        F.when(seen, F.lit("delivered")).otherwise(unseen).alias("outcome"),
        F.lit(False).alias("doubtful"),
        (seen & (F.col("outcome") == "unacked")).alias("recovered"),
        time.is_late(received_ns).alias("late"),
        F.lit(False).alias("reordered"),
        F.coalesce(F.col("arrivals") - 1, F.lit(0)).alias("duplicates"),
        F.coalesce(F.col("flagged") - F.col("first.dup"), F.lit(0)).alias("duplicates_flagged"),
        F.lit(True).alias("retained"),
        F.when(F.col("stamped"), F.lit("header")).otherwise(F.lit("order")).alias("matched_by"),
        "payload_bytes",
    ).select(*JOURNEYS.column_names)
