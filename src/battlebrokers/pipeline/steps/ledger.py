"""The ledger: what became of the messages between a device and a listener on a topic, and was the promise kept?"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from battlebrokers.pipeline.audience import Facts


def ledger(facts: Facts, journeys: DataFrame, publishes: DataFrame) -> DataFrame:
    """The rows of the table `ledger`."""
    journeys = _mark_foreign(journeys, publishes)
    outcome = F.col("outcome")
    expected, delivered, unexpected = owed(), outcome == "delivered", outcome == "unexpected"
    headed = F.col("matched_by") == "header"
    in_measure = delivered & (facts.timeframe.phase_at(F.col("received_ns")) == "measure")
    rows = journeys.groupBy(
        "phase",
        F.coalesce("fleet", F.lit("")).alias("fleet"),
        "device",
        "client_fleet",
        "share",
        F.when(F.col("share").isNotNull(), F.lit(-1)).otherwise(F.col("client")).alias("client"),
        "topic",
        "qos",
    ).agg(
        _how_many(expected).alias("expected"),
        _how_many(delivered).alias("delivered"),
        _how_many(outcome == "lost").alias("lost"),
        _how_many(outcome == "overdue").alias("overdue"),
        _how_many(outcome == "indeterminate").alias("indeterminate"),
        _how_many(F.col("recovered")).alias("recovered"),
        F.sum(F.when(expected, F.col("duplicates")).otherwise(F.lit(0))).alias("duplicates"),
        F.sum(F.when(expected, F.col("duplicates_flagged")).otherwise(F.lit(0))).alias("duplicates_flagged"),
        # Every arrival nobody asked for counts, copies too.
        F.sum(F.when(unexpected, 1 + F.col("duplicates")).otherwise(F.lit(0))).alias("unexpected"),
        F.sum(F.when(F.col("foreign"), 1 + F.col("duplicates")).otherwise(F.lit(0))).alias("foreign"),
        F.sum(F.when(F.col("foreign") & headed, 1 + F.col("duplicates")).otherwise(F.lit(0))).alias("foreign_runs"),
        _how_many(outcome == "wrong_topic").alias("wrong_topic"),
        _how_many(outcome == "will").alias("wills"),
        _how_many(delivered & F.col("late")).alias("late"),
        _how_many(F.col("reordered")).alias("reordered"),
        _how_many(delivered & F.col("retained")).alias("retained"),
        _how_many(delivered & (F.col("matched_by") == "order")).alias("by_order"),
        F.sum(F.when(delivered, F.col("payload_bytes")).otherwise(F.lit(0))).alias("payload_bytes"),
        _how_many(in_measure).alias("in_measure"),
        F.sum(F.when(in_measure, F.col("payload_bytes")).otherwise(F.lit(0))).alias("in_measure_bytes"),
    )
    no_loss, no_copies = F.col("lost") == 0, F.col("duplicates") == 0
    kept = F.when(F.col("qos") == 0, F.lit(True)).when(F.col("qos") == 1, no_loss).otherwise(no_loss & no_copies)
    return rows.withColumn("promise_kept", kept)


def _mark_foreign(journeys: DataFrame, publishes: DataFrame) -> DataFrame:
    """Whether an unexpected arrival is one this run never sent; its header, if it has one, is another run's."""
    unexpected = F.col("outcome") == "unexpected"
    strays = journeys.where(unexpected)
    if strays.isEmpty():  # nearly always: then the messages are not compared
        return journeys.withColumn("foreign", F.lit(False))
    message = ["device", "seq", "planned_ns"]
    own = strays.select(*message).distinct().join(publishes, message, "left_semi").withColumn("own", F.lit(True))
    return journeys.join(own, message, "left").withColumn("foreign", unexpected & F.col("own").isNull())


def owed() -> Column:
    """Whether a journey is one of a message somebody was owed."""
    return ~F.col("outcome").isin("unexpected", "wrong_topic", "will")


def _how_many(condition: Column) -> Column:
    return F.count(F.when(condition, F.lit(1)))
