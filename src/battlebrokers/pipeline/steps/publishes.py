"""Publishes, settled: each message with the acknowledgement or retries that came after its row was written."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812


def settle(recorded_publishes: DataFrame, acks: DataFrame | None = None) -> DataFrame:
    """The recorded publishes with late acknowledgements folded in; same columns."""
    if acks is None:
        return recorded_publishes
    answer = F.col("outcome").isin("acked", "refused", "failed")
    late = acks.groupBy("device", "seq").agg(
        F.min(F.when(answer, F.col("acked_ns"))).alias("late_ns"),
        F.max(F.col("outcome") == "acked").alias("late_acked"),
        F.max(F.col("outcome") == "refused").alias("late_refused"),
        F.max(F.col("outcome") == "failed").alias("late_failed"),
        F.max(F.when(answer, F.col("reason"))).alias("late_reason"),
        F.count(F.when(F.col("outcome") == "resent", 1)).alias("resent"),
    )
    # An answer in the row itself came first and stands. Nobody acknowledges what is just sent, but the network may say
    # that nobody was there.
    open_still = F.col("outcome").isin("unacked", "sent")
    outcome = (
        F.when(open_still & F.col("late_acked"), F.lit("acked"))
        .when(open_still & F.col("late_refused"), F.lit("refused"))
        .when(open_still & F.col("late_failed"), F.lit("failed"))
        .otherwise(F.col("outcome"))
    )
    return recorded_publishes.join(late, ["device", "seq"], "left").select(
        *[
            {
                "acked_ns": F.coalesce("acked_ns", F.when(open_still, F.col("late_ns"))).alias("acked_ns"),
                "outcome": outcome.alias("outcome"),
                "reason": F.coalesce("reason", "late_reason").alias("reason"),
                "retries": (F.col("retries") + F.coalesce("resent", F.lit(0))).cast("smallint").alias("retries"),
            }.get(name, F.col(name))
            for name in recorded_publishes.columns
        ]
    )
