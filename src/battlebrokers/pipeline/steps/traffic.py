"""Step: messages between named services → `traffic`, bytes and messages per second, peers and protocol."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from battlebrokers.clock import SECOND_NS


def traffic(talked: DataFrame, exchanges: DataFrame) -> DataFrame:
    """`talked` are the messages with the services that sent and received them."""
    parts = exchanges.select("stream", "epoch", F.col("request").alias("number"), F.lit("request").alias("part"))
    answers = exchanges.where("response IS NOT NULL").select(
        "stream", "epoch", F.col("response").alias("number"), F.lit("response").alias("part")
    )
    # A message may answer one thing and ask another (PUBREC, PUBREL): it counts once, as an answer.
    roles = parts.union(answers).groupBy("stream", "epoch", "number").agg(F.max("part").alias("part"))
    told = talked.join(roles, ["stream", "epoch", "number"], "left")
    return told.groupBy(
        F.floor(F.col("first_ns") / SECOND_NS).alias("second"),
        F.col("sender_service").alias("sender"),
        F.col("receiver_service").alias("receiver"),
        "protocol",
        F.coalesce("part", F.lit("other")).alias("part"),
    ).agg(F.count("*").alias("messages"), F.sum("bytes").alias("bytes"))
