"""Expectations: what each listener was owed, one packed row per message and matching subscription.

The fan-out happens here, by two broadcast look-ups: topic → filters, filter → those who listened by it.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from battlebrokers.pipeline.attendance import OFF
from battlebrokers.pipeline.packing import ACKED, REFUSED, SENT, UNACKED, fact_of, flow_of, message_of


def settled() -> Column:
    """A publish's outcome as a small number."""
    outcome = F.col("outcome")
    return (
        F.when(outcome == "acked", F.lit(ACKED))
        .when(outcome == "refused", F.lit(REFUSED))
        .when(outcome == "sent", F.lit(SENT))
        .otherwise(F.lit(UNACKED))
    )


def expect(publishes: DataFrame, routes: DataFrame, spells: DataFrame) -> DataFrame:
    """One row per sent message, listener and subscription, whether or not anything was owed at that moment.

    Rows without a claim are kept: an arrival proves that the broker saw the subscription earlier or later than we did.
    """
    sent_ns = F.col("sent_ns")
    sent = publishes.where(sent_ns.isNotNull())
    claim = F.when(F.col("outcome") == "refused", F.lit(OFF)).otherwise(claim_at(sent_ns))
    qos, topic_id, size = effective_qos(), F.col("topic_id"), F.col("payload_bytes")
    return heard_by(sent, routes, spells, sent_ns).select(
        flow_of(F.col("listener"), F.col("device")).alias("flow"),
        message_of(F.col("seq"), F.col("planned_ns")).alias("message"),
        "planned_ns",
        "sent_ns",
        "acked_ns",
        fact_of(claim, qos, settled(), F.col("stamped"), topic_id, size).alias("fact"),
        F.lit(None).cast("long").alias("arrival"),
        F.lit(None).cast("int").alias("member"),
    )


def heard_by(publishes: DataFrame, routes: DataFrame, spells: DataFrame, moment_ns: Column) -> DataFrame:
    """Each message once for every spell of a listener that its moment falls into."""
    in_time = (moment_ns >= F.col("since_ns")) & (moment_ns < F.col("until_ns"))
    return publishes.join(F.broadcast(routes), "topic").join(F.broadcast(spells), "filter_id").where(in_time)


def effective_qos() -> Column:
    """The lower of published and granted."""
    return F.least("qos", "granted_qos")


def claim_at(moment_ns: Column) -> Column:
    """What a spell's listener is owed of a message that leaves at that moment."""
    qos = effective_qos()
    steady = F.when(qos == 0, F.col("steady_0")).otherwise(F.col("steady_1"))
    shaky = F.when(qos == 0, F.col("shaky_0")).otherwise(F.col("shaky_1"))
    return (
        F.when((moment_ns <= F.col("start_ns")) | (moment_ns >= F.col("end_ns")), F.lit(OFF))
        .when(moment_ns < F.col("shaky_ns"), steady)
        .otherwise(shaky)
    )
