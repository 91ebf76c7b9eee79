"""Clients that listen both for themselves and for a group, or for several groups: which of them did an arrival serve?

Taken only when there are such clients. The topic decides; where several were owed it, the first arrival serves the
client itself, the next ones its groups.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from battlebrokers.pipeline import packing
from battlebrokers.pipeline.audience import Facts
from battlebrokers.pipeline.steps.arrivals import pack_arrivals, with_header


def mixed_arrivals(facts: Facts, deliveries: DataFrame, memberships: DataFrame, expectations: DataFrame) -> DataFrame:
    """The arrivals at such clients, each for the listener it served."""
    mixed = memberships.where(F.col("mixed")).select("client", "listener")
    clients = F.broadcast(mixed.select("client").distinct())
    came = with_header(deliveries).join(clients, "client", "left_semi")
    if facts.has_retained:
        came = came.where(~F.col("retained"))
    flow = F.col("flow")
    owed = (
        expectations.join(F.broadcast(mixed), packing.listener_of(flow) == F.col("listener"))
        .select("client", "listener", packing.device_of(flow).alias("device"), "message")
        .groupBy("client", "device", "message")
        # A client's own number is smaller than any group's: it comes first.
        .agg(F.sort_array(F.collect_set("listener")).alias("served"))
    )
    message = packing.message_of(F.col("seq"), F.coalesce("planned_ns", F.lit(0)))
    turn = F.row_number().over(
        Window.partitionBy("client", "device", "message").orderBy("received_ns", "dup", "payload_bytes")
    )
    told = (
        came.withColumn("message", message)
        .withColumn("turn", turn)
        .join(owed, ["client", "device", "message"], "left")
        .withColumn("listener", F.element_at("served", F.least(F.col("turn"), F.size("served")).cast("int")))
    )
    return pack_arrivals(facts, told, F.coalesce("listener", "client"))
