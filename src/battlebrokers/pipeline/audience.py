"""Who should hear what: topics, filters, subscriptions and fleets, worked out once per run on the driver.

Called by the graph before the first step. Asks Spark for the distinct topics, does the rest in plain Python,
and hands small frames back; no step after it touches a topic filter again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from battlebrokers.clock import SECOND_NS
from battlebrokers.errors import PipelineError
from battlebrokers.pipeline.attendance import ENDLESS_NS, Attendance, Operation, Spell, attendance, group_spells
from battlebrokers.pipeline.evidence import Evidence
from battlebrokers.pipeline.packing import MAX_TOPICS
from battlebrokers.pipeline.session import is_small
from battlebrokers.pipeline.small_frames import small_frame
from battlebrokers.pipeline.timeframe import Timeframe
from battlebrokers.pipeline.topic_match import match_topics
from battlebrokers.tables import ACKS, DELIVERIES, NODES, OPERATIONS, PUBLISHES

_ROWS_PER_PARTITION = 1_500_000
_QUIET_S = 2.0
"""What `quiet` is where the manifest does not tell: the scenario's default."""
_OPERATION_COLUMNS = (
    "node", "kind", "started_ns", "ended_ns", "outcome", "filter", "share", "granted_qos", "session_present",
    "persistent", "session_expiry_s",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Facts:
    """What the steps must know before they build their plan."""

    timeframe: Timeframe
    was_cut_short: bool
    """The run did not come to its planned end."""
    was_broken_off: bool
    """It did not, and the broker is not why."""
    is_small: bool
    """Few enough events to do without compiled code and without spreading them out."""
    partitions: int
    """Into how many parts the messages are split when they are brought together."""
    has_headerless: bool
    """Some arrivals carry no header: match them by order."""
    has_named: bool
    """Some arrivals that carry a header were recorded with their topic: it may be a wrong one."""
    has_retained: bool
    """Some messages were published to be kept."""
    has_failures: bool
    """Some messages may have been refused or have failed."""
    has_backlog: bool
    """Some messages never left because the broker held them."""
    has_shares: bool
    has_receiving: bool
    """Some listeners were still receiving when the drain ended: what they lack is not known to be lost."""
    has_mixed: bool
    """Some clients listen both for themselves and for a group, or for several groups."""
    fan_out: int
    """The most listeners any topic has."""

    def gather(self, frame: DataFrame) -> DataFrame:
        """The whole of a small run in one partition, so that nothing is shuffled after it; a large one as it is."""
        return frame.coalesce(1) if self.is_small else frame


@dataclass(frozen=True, slots=True)
class _Topics:
    names: list[str]
    has_headerless: bool
    has_named: bool
    has_retained: bool
    has_failures: bool
    has_backlog: bool
    receiving: frozenset[int]
    """Clients to which something came in the last moments of the drain."""


def audience(spark: SparkSession, evidence: Evidence) -> tuple[Facts, dict[str, DataFrame]]:
    """The facts of a run, and the small frames its steps join with."""
    topics = _topics(evidence)
    present = attendance(_operations(evidence))
    groups = sorted({spell.share for spell in present.spells if spell.share is not None})
    fleets = _fleets(evidence)
    first_group = 1 + max(
        [client for role, client in fleets if role == "client"] + [s.client for s in present.spells] + [-1]
    )
    listener_of_group = {share: first_group + place for place, share in enumerate(groups)}
    memberships = _memberships(present, listener_of_group)
    spells = [spell for spell in present.spells if spell.share is None] + group_spells(present.spells)
    filters = sorted({spell.filter for spell in spells} | {one.filter for one in present.subscriptions})
    number_of = {topic_filter: number for number, topic_filter in enumerate(filters)}
    routes = match_topics(topics.names, filters)
    receiving = topics.receiving | _slow_readers(evidence, fleets)
    mixed = {client for client, listeners in memberships.items() if len(listeners) > 1}

    def listener(spell: Spell) -> int:
        return spell.client if spell.share is None else listener_of_group[spell.share]

    # Where little is lost there are about as many expectations as arrivals.
    rows = evidence.rows(PUBLISHES) + 2 * evidence.rows(DELIVERIES)
    facts = Facts(
        timeframe=evidence.timeframe,
        was_cut_short=not evidence.finished,
        was_broken_off=evidence.manifest.state not in ("finished", "broker-failed"),
        is_small=is_small(evidence.rows(PUBLISHES) + evidence.rows(DELIVERIES)),
        partitions=max(1, min(4000, rows // _ROWS_PER_PARTITION)),
        has_headerless=topics.has_headerless,
        has_named=topics.has_named,
        has_retained=topics.has_retained,
        has_failures=topics.has_failures or bool(evidence.rows(ACKS)),
        has_backlog=topics.has_backlog,
        has_shares=bool(groups),
        has_receiving=bool(receiving),
        has_mixed=bool(mixed),
        fan_out=_fan_out(routes, [(number_of[spell.filter], listener(spell)) for spell in spells]),
    )
    frames = {
        "topics": small_frame(spark, "topic_id int, topic string", enumerate(topics.names)),
        "routes": small_frame(
            spark, "topic string, topic_id int, filter_id int", ((topics.names[t], t, f) for t, f in routes)
        ),
        "spells": small_frame(
            spark,
            "filter_id int, listener int, granted_qos tinyint, since_ns bigint, until_ns bigint, start_ns bigint, "
            "shaky_ns bigint, end_ns bigint, steady_0 tinyint, steady_1 tinyint, shaky_0 tinyint, shaky_1 tinyint",
            (
                (
                    number_of[s.filter], listener(s), s.granted_qos, s.since_ns, s.until_ns, s.start_ns,
                    s.shaky_ns, s.end_ns, *s.steady, *s.shaky,
                )
                for s in spells
            ),
        ),
        "listeners": small_frame(
            spark, "listener int, share string, client int, client_fleet string",
            _listeners(fleets, memberships, listener_of_group),
        ),
        "memberships": small_frame(
            spark, "client int, listener int, share string, mixed boolean",
            (
                (client, one, share, client in mixed)
                for client, listeners in sorted(memberships.items())
                for one, share in sorted(listeners.items())
            ),
        ),
        "receiving": small_frame(
            spark, "listener int, receiving boolean",
            ((listener, True) for listener in _listeners_of(receiving, memberships)),
        ),
        "fleets": small_frame(
            spark, "role string, node int, fleet string", ((*node, fleet) for node, fleet in fleets.items())
        ),
        "wills": small_frame(spark, "topic string", ((topic,) for topic in _will_topics(evidence))),
        "subscriptions": small_frame(
            spark,
            "client int, filter_id int, granted_qos tinyint, started_ns bigint, ended_ns bigint, connection int",
            (
                (one.client, number_of[one.filter], one.granted_qos, one.started_ns, one.ended_ns, one.connection)
                for one in present.subscriptions
                if one.share is None
            ),
        ),
        "connections": small_frame(
            spark, "client int, connection int, from_ns bigint, to_ns bigint",
            ((one.client, one.connection, one.from_ns, one.to_ns) for one in present.connections),
        ),
    }  # fmt: skip
    return facts, frames


def _topics(evidence: Evidence) -> _Topics:
    """The distinct topics published to, and whether any message needs a special way, all in one pass."""
    published = evidence.frame(PUBLISHES).select(
        "topic",
        F.lit(False).alias("headerless"),
        F.lit(False).alias("named"),
        F.col("retain").alias("kept"),
        F.col("outcome").isin("refused", "failed").alias("wrong"),
        ((F.col("outcome") == "unsent") & (F.col("held") != "no")).alias("stuck"),
        F.lit(None).cast("int").alias("receiving"),
    )
    at_the_end = F.col("received_ns") >= F.lit(_last_moments_ns(evidence))
    arrived = evidence.frame(DELIVERIES).select(
        F.lit(None).cast("string").alias("topic"),
        (F.col("device") < 0).alias("headerless"),
        ((F.col("device") >= 0) & F.col("topic").isNotNull()).alias("named"),
        F.lit(False).alias("kept"),
        F.lit(False).alias("wrong"),
        F.lit(False).alias("stuck"),
        F.when(at_the_end, F.col("client")).alias("receiving"),
    )
    flags = [F.max(name) for name in ("headerless", "named", "kept", "wrong", "stuck")]
    found = published.union(arrived).groupBy("topic", "receiving").agg(*flags).collect()
    names = sorted(row[0] for row in found if row[0] is not None)
    receiving = frozenset(row[1] for row in found if row[1] is not None)
    if len(names) > MAX_TOPICS:
        raise PipelineError(f"the run used {len(names)} topics, more than the {MAX_TOPICS} we can tell apart")
    headerless, named, kept, wrong, stuck = (any(row[place] for row in found) for place in (2, 3, 4, 5, 6))
    return _Topics(names, headerless, named, kept, wrong, stuck, receiving)


def _last_moments_ns(evidence: Evidence) -> int:
    """From when on an arrival shows that the drain ended while messages were arriving: its last `quiet`."""
    drain = evidence.manifest.phase("drain")
    if drain is None or not drain.end_ns or not evidence.finished:
        return ENDLESS_NS
    quiet_s = evidence.manifest.settings.get("quiet_s", _QUIET_S)
    return drain.end_ns - round(float(quiet_s) * SECOND_NS)


def _slow_readers(evidence: Evidence, fleets: dict[tuple[str, int], str]) -> frozenset[int]:
    """Clients that read slowly on purpose: what they lack may wait where they did not read it."""
    groups = evidence.manifest.scenario.resolved.get("clients")
    if not isinstance(groups, dict) or not evidence.finished:
        return frozenset()
    slow = {name for name, group in groups.items() if isinstance(group, dict) and group.get("reads")}
    return frozenset(node for (role, node), fleet in fleets.items() if role == "client" and fleet in slow)


def _operations(evidence: Evidence) -> Iterable[Operation]:
    rows = evidence.arrow(OPERATIONS, ("role", *_OPERATION_COLUMNS)).to_pylist()
    return (Operation(*(row[name] for name in _OPERATION_COLUMNS)) for row in rows if row["role"] == "client")


def _fleets(evidence: Evidence) -> dict[tuple[str, int], str]:
    nodes = evidence.arrow(NODES, ("role", "node", "fleet")).to_pylist()
    return {(row["role"], row["node"]): row["fleet"] for row in nodes}


def _will_topics(evidence: Evidence) -> list[str]:
    topics = evidence.arrow(NODES, ("will_topic",))["will_topic"].to_pylist()
    return sorted({topic for topic in topics if topic is not None})


def _memberships(present: Attendance, listener_of_group: dict[str, int]) -> dict[int, dict[int, str | None]]:
    """Client → the listeners it hears for (itself, its groups); only clients that are in some group."""
    hears: dict[int, dict[int, str | None]] = {}
    for spell in present.spells:
        own = spell.share is None
        number = spell.client if spell.share is None else listener_of_group[spell.share]
        hears.setdefault(spell.client, {})[number] = None if own else spell.share
    return {client: listeners for client, listeners in hears.items() if any(listeners.values())}


def _listeners_of(clients: Iterable[int], memberships: dict[int, dict[int, str | None]]) -> list[int]:
    """Whom these clients hear for: themselves, or the groups they are in."""
    return sorted({listener for client in clients for listener in memberships.get(client, (client,))})


def _listeners(
    fleets: dict[tuple[str, int], str], memberships: dict[int, dict[int, str | None]], listener_of_group: dict[str, int]
) -> list[tuple[int, str | None, int, str]]:
    rows: list[tuple[int, str | None, int, str]] = [
        (client, None, client, fleet) for (role, client), fleet in fleets.items() if role == "client"
    ]
    for share, number in listener_of_group.items():
        members = [client for client, listeners in memberships.items() if number in listeners]
        names = sorted({fleets.get(("client", member), "") for member in members})
        rows.append((number, share, -1, "+".join(names)))
    return rows


def _fan_out(routes: list[tuple[int, int]], ears: list[tuple[int, int]]) -> int:
    """The most listeners any topic has, filters that overlap counted twice."""
    behind: dict[int, set[int]] = {}
    for number, listener in ears:
        behind.setdefault(number, set()).add(listener)
    hears: dict[int, int] = {}
    for topic, number in routes:
        hears[topic] = hears.get(topic, 0) + len(behind.get(number, ()))
    return max(hears.values(), default=0)
