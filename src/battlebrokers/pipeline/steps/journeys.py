"""Journeys: expectations and arrivals brought together, one row per message and listener with what became of it.

One shuffle by flow, one sort, one pass: everything of a publisher and a listener meets in one place, latest message
first. No join on events, no hash table of all messages: memory does not grow with the run.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from battlebrokers.pipeline import packing
from battlebrokers.pipeline.attendance import OFF, OWED
from battlebrokers.pipeline.audience import Facts
from battlebrokers.tables import JOURNEYS


def journey(
    facts: Facts,
    expectations: DataFrame,
    arrivals: DataFrame,
    listeners: DataFrame,
    fleets: DataFrame,
    topics: DataFrame,
    last_published: DataFrame | None = None,
    kept_journeys: DataFrame | None = None,
    untraced_journeys: DataFrame | None = None,
    receiving: DataFrame | None = None,
    misdirected_journeys: DataFrame | None = None,
) -> DataFrame:
    """All journeys of the run."""
    met = _meet(facts, expectations.unionByName(arrivals))
    if receiving is not None and facts.has_receiving:
        listeners = listeners.join(F.broadcast(receiving), "listener", "left")
        met = _mark_gaps(met)
    told = _tell(facts, met, listeners, fleets, topics)
    if last_published is not None:
        told = _only_recorded(told, last_published)
    told = told.select(*JOURNEYS.column_names)
    for more in (kept_journeys, untraced_journeys, misdirected_journeys):
        told = told if more is None else told.unionByName(more)
    return facts.gather(told)


def _meet(facts: Facts, packed: DataFrame) -> DataFrame:
    """One row per flow and message: the strongest fact, the first arrival, how many there were."""
    spread = facts.gather(packed) if facts.is_small else packed.repartition(facts.partitions, "flow")
    together = spread.sortWithinPartitions("flow", "message")
    arrived_again = F.when(packing.dup_in(F.col("arrival")), F.lit(1))
    who = F.when(F.col("arrival").isNotNull(), F.struct("arrival", "member"))
    first_member = [F.min(who).alias("first")] if facts.has_shares else []
    met = together.groupBy("flow", "message").agg(
        F.max("planned_ns").alias("planned_ns"),
        F.max("sent_ns").alias("sent_ns"),
        F.max("acked_ns").alias("acked_ns"),
        F.max("fact").alias("fact"),
        F.min("arrival").alias("arrival"),
        F.count("arrival").alias("arrivals"),
        F.count(arrived_again).alias("flagged"),
        *first_member,
    )
    # Later messages come first, so "preceding" are those sent after this one.
    sent_later = Window.partitionBy("flow", "topic_id").orderBy("message").rowsBetween(Window.unboundedPreceding, -1)
    met = met.withColumn("topic_id", packing.topic_in(F.col("fact")))
    return met.withColumn("overtaken_by", F.min("arrival").over(sent_later))


def _mark_gaps(met: DataFrame) -> DataFrame:
    """Whether a message of the same flow and topic is missing although a later one arrived."""
    missing = F.col("arrival").isNull() & (packing.claim_in(F.col("fact")) == OWED)
    gap = packing.is_traced(F.col("fact")) & missing & F.col("overtaken_by").isNotNull()
    return met.withColumn("has_gap", F.max(gap).over(Window.partitionBy("flow", "topic_id")))


def _tell(facts: Facts, met: DataFrame, listeners: DataFrame, fleets: DataFrame, topics: DataFrame) -> DataFrame:
    """The packed rows in the words of the table."""
    time = facts.timeframe
    fact, arrival = F.col("fact"), F.col("arrival")
    seen, traced = arrival.isNotNull(), packing.is_traced(fact)
    claim = packing.claim_in(fact)
    settled = packing.settled_in(fact)
    stamped = packing.stamped_in(fact)
    shared = F.col("share").isNotNull()
    received_ns = packing.received_in(arrival, time.zero_ns)
    counted_ns = F.when(traced, F.col("planned_ns")).otherwise(received_ns)
    kept = seen & traced & (claim == OFF) & packing.retained_in(arrival)
    overtaken = packing.received_in(F.col("overtaken_by"), time.zero_ns) < received_ns
    devices = fleets.where(F.col("role") == "device").select(F.col("node").alias("device"), "fleet")
    named = (
        # Nothing was owed and nothing came: no journey.
        met.where(seen | (traced & (claim != OFF)))
        .withColumn("device", packing.device_of(F.col("flow")))
        .withColumn("listener", packing.listener_of(F.col("flow")))
        .join(F.broadcast(devices), "device", "left")
        .join(F.broadcast(listeners), "listener", "left")
        .join(F.broadcast(topics), "topic_id", "left")
    )
    nobody = F.col("fleet").isNull() & ~traced
    columns: dict[str, Column] = {
        "device": F.when(nobody, F.lit(-1)).otherwise(F.col("device")),
        "seq": F.when(nobody, F.lit(-1)).otherwise(packing.seq_of(F.col("message"))),
        "topic": F.col("topic"),
        "share": F.col("share"),
        "client": F.coalesce(F.col("first.member"), F.col("client"), F.col("listener"))
        if facts.has_shares
        else F.coalesce("client", "listener"),
        "fleet": F.col("fleet"),
        "client_fleet": F.coalesce("client_fleet", F.lit("")),
        "qos": F.when(traced, packing.qos_in(fact)).otherwise(packing.arrived_qos_in(arrival)),
        "phase": time.phase_at(counted_ns),
        "second": time.second_at(counted_ns),
        "planned_ns": F.col("planned_ns"),
        "sent_ns": F.col("sent_ns"),
        "acked_ns": F.col("acked_ns"),
        "received_ns": received_ns,
        "outcome": _outcome(facts, seen, traced, claim, settled),
        "doubtful": F.coalesce(traced & ~seen & ((claim != OWED) | _on_its_way(facts)), F.lit(False)),
        "recovered": seen & traced & (settled >= packing.UNACKED),
        "late": time.is_late(received_ns),
        "reordered": F.coalesce(traced & stamped & ~shared & ~kept & overtaken, F.lit(False)),
        "duplicates": F.greatest(F.col("arrivals") - 1, F.lit(0)),
        "duplicates_flagged": F.col("flagged") - F.when(packing.dup_in(arrival), F.lit(1)).otherwise(F.lit(0)),
        "retained": F.coalesce(kept, F.lit(False)),
        "matched_by": F.when(traced & ~stamped, F.lit("order")).otherwise(F.lit("header")),
        "payload_bytes": packing.payload_in(fact),
    }
    return named.select(
        *[
            F.coalesce(column, F.lit(False)).alias(name) if name == "recovered" else column.alias(name)
            for name, column in columns.items()
        ]
    )


def _outcome(facts: Facts, seen: Column, traced: Column, claim: Column, settled: Column) -> Column:
    """What became of it. In a run that ended early, a message nothing later overtook was still on its way.

    Where messages were arriving until the drain ended, what is missing behind a gapless sequence is overdue. Behind a
    gap nobody can say, nor in a shared group, whose members do not keep pace with each other.
    """
    accepted = (settled == packing.ACKED) | (settled == packing.SENT)
    missed = (claim == OWED) & accepted
    overtaken = F.col("overtaken_by").isNotNull()
    overdue, lost = F.lit(False), missed
    if facts.was_cut_short:
        lost = missed & overtaken
    elif facts.has_receiving:
        receiving = F.coalesce(F.col("receiving"), F.lit(False))
        overdue = missed & receiving & ~overtaken & ~F.col("has_gap")
        lost = missed & (~receiving | (overtaken & F.col("share").isNull()))
    return (
        F.when(~traced, F.lit("unexpected"))
        .when(seen, F.lit("delivered"))
        .when(overdue, F.lit("overdue"))
        .when(lost, F.lit("lost"))
        .otherwise(F.lit("indeterminate"))
    )


def _on_its_way(facts: Facts) -> Column:
    """Whether a message may have been under way when the run was broken off, by us and not by the broker."""
    return F.col("overtaken_by").isNull() if facts.was_broken_off else F.lit(False)


def _only_recorded(told: DataFrame, last_published: DataFrame) -> DataFrame:
    """Without the arrivals whose publish was not yet written when the run was cut short: unknown is not unexpected."""
    cut_off = (F.col("outcome") == "unexpected") & (F.col("device") >= 0)
    beyond = F.col("last_seq").isNull() | (F.col("seq") > F.col("last_seq"))
    return told.join(F.broadcast(last_published), "device", "left").where(~(cut_off & beyond))


def last_published(publishes: DataFrame) -> DataFrame:
    """The last message of each device that made it into the evidence."""
    return publishes.groupBy("device").agg(F.max("seq").alias("last_seq"))
