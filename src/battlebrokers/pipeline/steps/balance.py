"""Balance: how the messages of a shared group were spread over its members, idle ones included."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from battlebrokers.pipeline.audience import Facts


def balance(facts: Facts, journeys: DataFrame, memberships: DataFrame, fleets: DataFrame) -> DataFrame:
    """The rows of the table `balance`."""
    clients = fleets.where(F.col("role") == "client").select(
        F.col("node").alias("client"), F.col("fleet").alias("client_fleet")
    )
    members = memberships.where(F.col("share").isNotNull()).select("share", "client")
    if facts.has_shares:
        in_measure = (F.col("outcome") == "delivered") & (F.col("phase") == "measure") & F.col("share").isNotNull()
        took = journeys.where(in_measure).groupBy("share", "client").agg(F.count("*").alias("delivered"))
    else:
        took = members.withColumn("delivered", F.lit(0))
    return (
        members.join(F.broadcast(took), ["share", "client"], "left")
        .join(F.broadcast(clients), "client", "left")
        .withColumn("delivered", F.coalesce("delivered", F.lit(0)))
        .withColumn("client_fleet", F.coalesce("client_fleet", F.lit("")))
    )
