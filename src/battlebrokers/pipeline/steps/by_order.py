"""Payloads too small for a header: the n-th message sent to a listener on a topic is the n-th it received there.

Taken only when such arrivals exist. What comes in surplus is a further copy of the last message; what comes on a
topic the listener was owed nothing on is a last will, if somebody's is published there, or else unexpected.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from battlebrokers.pipeline import packing
from battlebrokers.pipeline.attendance import OFF
from battlebrokers.pipeline.audience import Facts
from battlebrokers.tables import JOURNEYS


def queue_arrivals(
    deliveries: DataFrame,
    memberships: DataFrame,
    expectations: DataFrame,
    topics: DataFrame,
    kept_arrivals: DataFrame | None = None,
) -> DataFrame:
    """Headerless arrivals with the flow and message they were matched to; both null if there was none."""
    live = deliveries.where(F.col("device") < 0)
    if kept_arrivals is not None:
        live = live.where(~F.col("retained"))
    # Of several groups a client listens for, the first must do: without a header nothing tells them apart.
    listeners = memberships.groupBy("client").agg(F.min("listener").alias("listener"))
    came = (
        live.join(F.broadcast(topics), "topic", "left")
        .join(F.broadcast(listeners), "client", "left")
        .withColumn("listener", F.coalesce("listener", "client"))
    )
    line = Window.partitionBy("listener", "topic_id")
    came = came.withColumn("turn", F.row_number().over(line.orderBy("received_ns", "dup", "payload_bytes", "client")))
    fact = F.col("fact")
    owed = (
        expectations.where(~packing.stamped_in(fact) & (packing.claim_in(fact) != OFF))
        .select(
            packing.listener_of(F.col("flow")).alias("listener"),
            packing.topic_in(fact).alias("topic_id"),
            *("flow", "message", "sent_ns", "planned_ns"),
        )
        .distinct()
        .withColumn("turn", F.row_number().over(line.orderBy("sent_ns", F.desc("message"), "flow")))
    )
    lengths = owed.groupBy("listener", "topic_id").agg(F.max("turn").alias("length"))
    return (
        came.join(lengths, ["listener", "topic_id"], "left")
        .withColumn("turn", F.least("turn", "length"))
        .drop("planned_ns", "device", "seq")
        .join(owed.drop("sent_ns"), ["listener", "topic_id", "turn"], "left")
    )


def ordered_arrivals(facts: Facts, queued: DataFrame) -> DataFrame:
    """Those that found their message, packed like all other arrivals."""
    nothing = F.lit(None).cast("long")
    arrival = packing.arrival_of(
        F.col("received_ns"), facts.timeframe.zero_ns, F.col("dup"), F.col("retained"), F.col("qos")
    )
    return queued.where(F.col("flow").isNotNull()).select(
        "flow",
        "message",
        "planned_ns",
        nothing.alias("sent_ns"),
        nothing.alias("acked_ns"),
        packing.arrived_fact_of(F.col("payload_bytes")).alias("fact"),
        arrival.alias("arrival"),
        F.col("client").alias("member"),
    )


def untraced_journeys(facts: Facts, queued: DataFrame, listeners: DataFrame, wills: DataFrame) -> DataFrame:
    """Those that found none, each for itself: somebody's last will, or unexpected."""
    time = facts.timeframe
    clients = listeners.where(F.col("share").isNull()).select("client", "client_fleet")
    planned = wills.withColumn("will", F.lit("will"))
    rows = (
        queued.where(F.col("flow").isNull())
        .join(F.broadcast(clients), "client", "left")
        .join(F.broadcast(planned), "topic", "left")
    )
    received_ns = F.col("received_ns")
    no, none_long = F.lit(False), F.lit(None).cast("long")
    columns: dict[str, Column] = {
        "device": F.lit(-1),
        "seq": F.lit(-1).cast("long"),
        "topic": F.col("topic"),
        "share": F.lit(None).cast("string"),
        "client": F.col("client"),
        "fleet": F.lit(None).cast("string"),
        "client_fleet": F.coalesce("client_fleet", F.lit("")),
        "qos": F.col("qos").cast("int"),
        "phase": time.phase_at(received_ns),
        "second": time.second_at(received_ns),
        "planned_ns": none_long,
        "sent_ns": none_long,
        "acked_ns": none_long,
        "received_ns": received_ns,
        "outcome": F.coalesce("will", F.lit("unexpected")),
        "doubtful": no,
        "recovered": no,
        "late": time.is_late(received_ns),
        "reordered": no,
        "duplicates": F.lit(0),
        "duplicates_flagged": F.lit(0),
        "retained": F.col("retained"),
        "matched_by": F.lit("order"),
        "payload_bytes": F.col("payload_bytes"),
    }
    return rows.select(*[columns[name].alias(name) for name in JOURNEYS.column_names])
