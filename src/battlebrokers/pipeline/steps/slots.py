"""The slots: what was due and what arrived in each tenth of a second, per listening fleet."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from battlebrokers.pipeline.audience import Facts
from battlebrokers.pipeline.steps.ledger import owed
from battlebrokers.tables.slots import SLOT_NS

_COUNTS = ("planned", "sent", "arrived")


def slots(facts: Facts, journeys: DataFrame) -> DataFrame:
    """The rows of the table `slots`."""

    def slot_at(moment_ns: str) -> Column:
        since_ns = F.col(moment_ns) - F.lit(facts.timeframe.load_start_ns)
        return F.floor(since_ns / F.lit(float(SLOT_NS))).cast("long")

    # Grouped by all three slots first: they are few, and the journeys are read once.
    together = (
        journeys.where(owed() & ~F.col("retained"))
        .groupBy(
            "client_fleet",
            slot_at("planned_ns").alias("planned_at"),
            slot_at("sent_ns").alias("sent_at"),
            slot_at("received_ns").alias("arrived_at"),
        )
        .agg(F.count("*").alias("n"), F.min("received_ns").alias("first_ns"), F.max("received_ns").alias("last_ns"))
    )
    kinds = [
        F.struct(
            F.col(f"{name}_at").alias("slot"),
            *[(F.col("n") if other == name else F.lit(0)).cast("long").alias(other) for other in _COUNTS],
            *[
                (F.col(end) if name == "arrived" else F.lit(None)).cast("long").alias(end)
                for end in ("first_ns", "last_ns")
            ],
        )
        for name in _COUNTS
    ]
    rows = together.select("client_fleet", F.inline(F.array(*kinds))).where(F.col("slot").isNotNull())
    return rows.groupBy("slot", "client_fleet").agg(
        *[F.sum(name).alias(name) for name in _COUNTS],
        F.min("first_ns").alias("first_ns"),
        F.max("last_ns").alias("last_ns"),
    )
