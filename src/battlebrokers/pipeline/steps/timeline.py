"""The timeline: each second of the load, per publishing and per listening fleet, without gaps."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from battlebrokers.pipeline.audience import Facts
from battlebrokers.pipeline.steps.ledger import owed

_COUNTS = ("messages", "payload_bytes", "wire_bytes", "planned", "unsent", "held", "expected", "arrived", "coming")
_LONGEST_S = 100_000
"""A silence longer than this has a broken clock in it: it is then left as it is, for each second would be a row."""


def timeline(
    facts: Facts, publishes: DataFrame, deliveries_recorded: DataFrame, journeys: DataFrame, fleets: DataFrame
) -> DataFrame:
    """The rows of the table `timeline`."""
    seconds = _sending(facts, publishes, fleets)
    for more in (_receiving(facts, deliveries_recorded, fleets), _owed(facts, journeys)):
        seconds = seconds.unionByName(more)
    key = ("side", "fleet", "second")
    added = facts.gather(seconds).groupBy(*key).agg(*[F.sum(name).alias(name) for name in _COUNTS])
    whole = _without_gaps(added)
    so_far = (
        Window.partitionBy("side", "fleet").orderBy("second").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    return whole.withColumns(
        {
            "in_flight": F.sum(F.col("expected") - F.col("arrived")).over(so_far),
            "queued": F.sum(F.col("coming") - F.col("arrived")).over(so_far),
            "phase": facts.timeframe.phase_at(facts.timeframe.begin_of_second(F.col("second"))),
        }
    )


def _sending(facts: Facts, publishes: DataFrame, fleets: DataFrame) -> DataFrame:
    """The publish side, each message at its planned and at its sent second."""
    devices = fleets.where(F.col("role") == "device").select(F.col("node").alias("device"), "fleet")
    sent = F.col("sent_ns").isNotNull()
    one = F.lit(1)
    second_at = facts.timeframe.second_at
    # Grouped by both seconds first: they are few, and the messages are read once.
    pairs = (
        publishes.join(F.broadcast(devices), "device", "left")
        .groupBy(
            F.coalesce("fleet", F.lit("")).alias("fleet"),
            second_at(F.col("planned_ns")).alias("planned_at"),
            second_at(F.col("sent_ns")).alias("sent_at"),
        )
        .agg(
            F.count("*").alias("planned"),
            F.count(F.when(~sent, one)).alias("unsent"),
            F.count(F.when(F.col("held") != "no", one)).alias("held"),
            F.sum("payload_bytes").alias("payload_bytes"),
            F.sum("wire_bytes").alias("wire_bytes"),
        )
    )
    return _spread(
        pairs,
        "publish",
        planned_at={"planned": "planned", "unsent": "unsent", "held": "held"},
        sent_at={"messages": "planned", "payload_bytes": "payload_bytes", "wire_bytes": "wire_bytes"},
    )


def _receiving(facts: Facts, deliveries: DataFrame, fleets: DataFrame) -> DataFrame:
    """The deliver side: every arrival, copies included."""
    clients = fleets.where(F.col("role") == "client").select(F.col("node").alias("client"), "fleet")
    arrived = (
        deliveries.join(F.broadcast(clients), "client", "left")
        .groupBy(
            F.coalesce("fleet", F.lit("")).alias("fleet"),
            facts.timeframe.second_at(F.col("received_ns")).alias("second"),
        )
        .agg(
            F.count("*").alias("messages"),
            F.sum("payload_bytes").alias("payload_bytes"),
            F.sum("wire_bytes").alias("wire_bytes"),
        )
    )
    return _spread(arrived, "deliver", second={name: name for name in ("messages", "payload_bytes", "wire_bytes")})


def _owed(facts: Facts, journeys: DataFrame) -> DataFrame:
    """What was sent and what had arrived, second by second: their difference is in flight."""
    second_at = facts.timeframe.second_at
    pairs = (
        journeys.where(owed() & ~F.col("retained"))
        .groupBy(
            F.col("client_fleet").alias("fleet"),
            second_at(F.col("sent_ns")).alias("sent_at"),
            second_at(F.col("received_ns")).alias("arrived_at"),
        )
        .agg(
            F.count("*").alias("n"),
            F.count(F.when(F.col("outcome").isin("delivered", "overdue"), F.lit(1))).alias("coming"),
        )
    )
    return _spread(pairs, "deliver", sent_at={"expected": "n", "coming": "coming"}, arrived_at={"arrived": "n"})


def _spread(counted: DataFrame, side: str, **moments: dict[str, str]) -> DataFrame:
    """One row per moment: its second, and which counts belong there under which name; the others are zero."""
    kinds = [
        F.struct(
            F.col(moment).alias("second"),
            *[(F.col(counts[name]) if name in counts else F.lit(0)).cast("long").alias(name) for name in _COUNTS],
        )
        for moment, counts in moments.items()
    ]
    rows = counted.select("fleet", F.inline(F.array(*kinds))).where(F.col("second").isNotNull())
    return rows.select(F.lit(side).alias("side"), "fleet", "second", *_COUNTS)


def _without_gaps(added: DataFrame) -> DataFrame:
    """The same with a row of zeros for every silent second between the first and the last."""
    # Each row fills the silence behind it: no second pass over the events, no join.
    follower = F.lead("second").over(Window.partitionBy("side", "fleet").orderBy("second"))
    gap = F.coalesce("follower", F.col("second") + 1) - F.col("second")
    last = F.when(gap.between(1, _LONGEST_S), F.col("second") + gap - 1).otherwise(F.col("second"))
    filled = added.withColumn("follower", follower).withColumn("at", F.explode(F.sequence(F.col("second"), last)))
    loud = F.col("at") == F.col("second")
    return filled.select(
        "side",
        "fleet",
        F.col("at").alias("second"),
        *[F.when(loud, F.col(name)).otherwise(F.lit(0)).alias(name) for name in _COUNTS],
    )
