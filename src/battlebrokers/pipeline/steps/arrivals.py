"""Arrivals: what reached each listener, one packed row per delivery that carries our header or was matched by order."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from battlebrokers.pipeline.audience import Facts
from battlebrokers.pipeline.packing import DEVICES, arrival_of, arrived_fact_of, flow_of, message_of

LIVE_COLUMNS = ("client", "device", "seq", "planned_ns", "received_ns", "qos", "dup", "retained", "payload_bytes")
"""What a delivery must tell to be matched by its header."""


def arrive(
    facts: Facts,
    deliveries: DataFrame,
    memberships: DataFrame,
    mixed_arrivals: DataFrame | None = None,
    kept_arrivals: DataFrame | None = None,
    ordered_arrivals: DataFrame | None = None,
) -> DataFrame:
    """All arrivals that can be laid beside an expectation, packed alike."""
    known = with_header(deliveries)
    if mixed_arrivals is not None:
        mixed = memberships.where(F.col("mixed")).select("client").distinct()
        known = known.join(F.broadcast(mixed), "client", "left_anti")
    if kept_arrivals is not None:
        # A kept message nobody was known to wait for is looked at like any other arrival.
        unclaimed = kept_arrivals.where(~F.col("claimed") & (F.col("device") >= 0)).select(*LIVE_COLUMNS)
        known = known.where(~F.col("retained")).unionByName(unclaimed)
    listener: Column = F.col("client")
    if facts.has_shares:
        plain = memberships.where(~F.col("mixed")).select("client", "listener")
        known = known.join(F.broadcast(plain), "client", "left")
        listener = F.coalesce("listener", "client")
    packed = pack_arrivals(facts, known, listener)
    for more in (mixed_arrivals, ordered_arrivals):
        packed = packed if more is None else packed.unionByName(more)
    return packed


def with_header(deliveries: DataFrame) -> DataFrame:
    """The deliveries whose header names a device a message can have."""
    return deliveries.select(*LIVE_COLUMNS).where((F.col("device") >= 0) & (F.col("device") < DEVICES))


def pack_arrivals(facts: Facts, known: DataFrame, listener: Column) -> DataFrame:
    """Deliveries in the packed form of expectations."""
    zero_ns = facts.timeframe.zero_ns
    nothing = F.lit(None).cast("long")
    planned_ns = F.coalesce("planned_ns", F.lit(0))
    return known.select(
        flow_of(listener, F.col("device")).alias("flow"),
        message_of(F.col("seq"), planned_ns).alias("message"),
        "planned_ns",
        nothing.alias("sent_ns"),
        nothing.alias("acked_ns"),
        arrived_fact_of(F.col("payload_bytes")).alias("fact"),
        arrival_of(F.col("received_ns"), zero_ns, F.col("dup"), F.col("retained"), F.col("qos")).alias("arrival"),
        F.col("client").alias("member"),
    )
