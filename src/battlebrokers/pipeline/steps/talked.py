"""Step: messages and exchanges with the names of those who spoke, from the streams they belong to."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

OUTSIDE = "outside"
"""Whoever is not a service: devices, clients, users."""


def peers(streams: DataFrame) -> DataFrame:
    """Both ends of every conversation by name; a server nobody named is known by its address."""
    return streams.select(
        "stream",
        "epoch",
        F.coalesce("client_service", F.lit(OUTSIDE)).alias("client_name"),
        F.coalesce("server_service", F.concat_ws(":", "server", "server_port")).alias("server_name"),
    )


def talked(messages: DataFrame, streams: DataFrame) -> DataFrame:
    """Messages with `sender_service` and `receiver_service`."""
    by_client = F.col("sender") == "client"
    return messages.join(F.broadcast(peers(streams)), ["stream", "epoch"]).withColumns(
        {
            "sender_service": F.when(by_client, F.col("client_name")).otherwise(F.col("server_name")),
            "receiver_service": F.when(by_client, F.col("server_name")).otherwise(F.col("client_name")),
        }
    )


def asked(exchanges: DataFrame, streams: DataFrame) -> DataFrame:
    """Exchanges with `asking` and `answering` services."""
    by_client = F.col("asker") == "client"
    return exchanges.join(F.broadcast(peers(streams)), ["stream", "epoch"]).withColumns(
        {
            "asking": F.when(by_client, F.col("client_name")).otherwise(F.col("server_name")),
            "answering": F.when(by_client, F.col("server_name")).otherwise(F.col("client_name")),
        }
    )
