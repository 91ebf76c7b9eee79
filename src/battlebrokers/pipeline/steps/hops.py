"""Step: messages seen on several wires → `hops`, the legs of one message from service to service."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

_LEAST_FINGERPRINTED_BYTES = 8
"""Shorter payloads say the same too often to be followed."""


def hops(talked: DataFrame) -> DataFrame:
    """`talked` are the messages with `sender_service` and `receiver_service`."""
    by_header = F.col("device").isNotNull()
    known = by_header | F.col("fingerprint").isNotNull() & (F.col("payload_bytes") >= _LEAST_FINGERPRINTED_BYTES)
    seen = talked.where(known).select(
        F.when(by_header, F.xxhash64("device", "seq")).otherwise(F.col("fingerprint")).alias("trace"),
        "device", "seq", F.col("sender_service").alias("sender"), F.col("receiver_service").alias("receiver"),
        "protocol", "kind", "name", "stream", "epoch", "number",
        F.col("first_ns").alias("sent_ns"), F.col("last_ns").alias("received_ns"),
        F.when(by_header, "header").otherwise("fingerprint").alias("matched_by"),
    )  # fmt: skip
    in_order = Window.partitionBy("trace").orderBy("sent_ns", "stream", "number")
    legs = _unambiguous(seen).withColumn("leg", F.row_number().over(in_order).cast("int"))
    return _with_parents(legs).withColumn("confidence", F.when(F.col("matched_by") == "header", 1.0).otherwise(0.95))


def _unambiguous(seen: DataFrame) -> DataFrame:
    """A payload that was said twice on one wire names no message; our header does, even when it is repeated."""
    times = F.count("*").over(Window.partitionBy("trace", "stream", "epoch", "sender"))
    most = F.max("times").over(Window.partitionBy("trace"))
    wires = F.count("*").over(Window.partitionBy("trace"))
    counted = seen.withColumn("times", times).withColumn("most", most).withColumn("wires", wires)
    return counted.where("matched_by = 'header' OR most = 1 AND wires > 1").drop("times", "most", "wires")


def _with_parents(legs: DataFrame) -> DataFrame:
    """The leg that brought a message to its sender is the last one that ended there before."""
    parents = legs.select(
        "trace", F.col("leg").alias("parent"), F.col("receiver").alias("sender"), F.col("received_ns").alias("came_ns")
    )
    pairs = legs.select("trace", "leg", "sender", "sent_ns").join(parents, ["trace", "sender"])
    latest = (
        pairs.where("came_ns <= sent_ns AND parent != leg AND sender != 'outside'")
        .groupBy("trace", "leg")
        .agg(F.max_by("parent", "came_ns").alias("parent"), F.max("came_ns").alias("came_ns"))
    )
    joined = legs.join(latest, ["trace", "leg"], "left")
    return joined.withColumn("inside_ns", F.col("sent_ns") - F.col("came_ns"))
