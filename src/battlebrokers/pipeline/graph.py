"""The analysis as data: which step reads what and makes which table, and the few lines that walk it.

Called by the analyst for every run. Deletes and rebuilds everything after `recorded/`; never touches the evidence.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from battlebrokers.errors import BattleError, EnvironmentNotReady, PipelineError
from battlebrokers.pipeline.audience import Facts, audience
from battlebrokers.pipeline.conform import conform
from battlebrokers.pipeline.evidence import Defect, Evidence
from battlebrokers.pipeline.jvm import java_is_gone
from battlebrokers.pipeline.session import tune
from battlebrokers.pipeline.steps.actions import actions
from battlebrokers.pipeline.steps.arrivals import arrive
from battlebrokers.pipeline.steps.backlog import backlog
from battlebrokers.pipeline.steps.balance import balance
from battlebrokers.pipeline.steps.by_order import ordered_arrivals, queue_arrivals, untraced_journeys
from battlebrokers.pipeline.steps.expectations import expect
from battlebrokers.pipeline.steps.failures import failures
from battlebrokers.pipeline.steps.journeys import journey, last_published
from battlebrokers.pipeline.steps.kept import claim_kept, kept_journeys, owe_kept
from battlebrokers.pipeline.steps.latencies import latencies
from battlebrokers.pipeline.steps.ledger import ledger
from battlebrokers.pipeline.steps.misdirected import misdirected, misdirected_journeys, right_topics
from battlebrokers.pipeline.steps.mixed import mixed_arrivals
from battlebrokers.pipeline.steps.publishes import settle
from battlebrokers.pipeline.steps.publishing import publishing
from battlebrokers.pipeline.steps.services import services
from battlebrokers.pipeline.steps.slots import slots
from battlebrokers.pipeline.steps.timeline import timeline
from battlebrokers.pipeline.store import Store, open_store
from battlebrokers.tables import (
    ACKS,
    ACTIONS,
    BALANCE,
    DELIVERIES,
    DERIVED,
    FAILURES,
    JOURNEYS,
    LATENCIES,
    LEDGER,
    OPERATIONS,
    PUBLISHES,
    PUBLISHING,
    RESOURCES,
    SERVICES,
    SLOTS,
    SOCKETS,
    TIMELINE,
    Table,
)

T = TypeVar("T")
Progress = Callable[[str, int, int], None]
"""Told the step's name, how many are done, and how many there are."""

_MANY_ACKS = 500_000
_SIDE_BY_SIDE = 3
"""How many small tables are computed at the same time: a session waits more than it works on them."""


_RETAINED = attrgetter("has_retained")
_HEADERLESS = attrgetter("has_headerless")
_NAMED = attrgetter("has_named")
_MIXED = attrgetter("has_mixed")
_BACKLOG = attrgetter("has_backlog")
_CUT_SHORT = attrgetter("was_cut_short")
"""When a step is needed."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step: frames (and the run's facts) in, one frame out; `may_read` are those not every run has."""

    name: str
    function: Callable[..., DataFrame]
    reads: tuple[str, ...]
    may_read: tuple[str, ...] = ()
    makes: Table | None = None
    """The table it is written to; none for a frame that only later steps need."""
    needed: Callable[[Facts], bool] = lambda _facts: True


STEPS = (
    Step("publishes", settle, ("recorded_publishes",), ("acks",)),
    Step("expectations", expect, ("publishes", "routes", "spells")),
    # Messages the broker did not take.
    Step("backlog", backlog, ("facts", "publishes", "routes", "spells", "listeners", "fleets"), needed=_BACKLOG),
    # Messages that came on another topic than theirs are taken out before arrivals are laid beside expectations.
    Step("misdirected", misdirected, ("deliveries_recorded", "publishes"), needed=_NAMED),
    Step("deliveries", right_topics, ("deliveries_recorded", "misdirected"), needed=_NAMED),
    Step(
        "misdirected_journeys",
        misdirected_journeys,
        ("facts", "misdirected", "listeners", "fleets"),
        needed=_NAMED,
    ),
    # Messages the broker kept for those who come later.
    Step("owed_kept", owe_kept, ("publishes", "routes", "subscriptions"), needed=_RETAINED),
    Step("kept_arrivals", claim_kept, ("deliveries", "connections", "owed_kept", "topics"), needed=_RETAINED),
    Step(
        "kept_journeys",
        kept_journeys,
        ("facts", "owed_kept", "kept_arrivals", "listeners", "fleets", "topics"),
        needed=_RETAINED,
    ),
    # Messages too small for a header.
    Step(
        "queued",
        queue_arrivals,
        ("deliveries", "memberships", "expectations", "topics"),
        ("kept_arrivals",),
        needed=_HEADERLESS,
    ),
    Step("ordered_arrivals", ordered_arrivals, ("facts", "queued"), needed=_HEADERLESS),
    Step("untraced_journeys", untraced_journeys, ("facts", "queued", "listeners", "wills"), needed=_HEADERLESS),
    # Clients that listen for themselves and for a group.
    Step("mixed_arrivals", mixed_arrivals, ("facts", "deliveries", "memberships", "expectations"), needed=_MIXED),
    Step(
        "arrivals",
        arrive,
        ("facts", "deliveries", "memberships"),
        ("mixed_arrivals", "kept_arrivals", "ordered_arrivals"),
    ),
    Step("last_published", last_published, ("publishes",), needed=_CUT_SHORT),
    Step(
        "journeys",
        journey,
        ("facts", "expectations", "arrivals", "listeners", "fleets", "topics"),
        ("last_published", "kept_journeys", "untraced_journeys", "receiving", "misdirected_journeys"),
        makes=JOURNEYS,
    ),
    Step("timeline", timeline, ("facts", "publishes", "deliveries_recorded", "journeys", "fleets"), makes=TIMELINE),
    Step("slots", slots, ("facts", "journeys"), makes=SLOTS),
    Step("latencies", latencies, ("facts", "publishes", "journeys", "fleets"), ("backlog",), makes=LATENCIES),
    Step("publishing", publishing, ("facts", "publishes", "journeys", "fleets"), makes=PUBLISHING),
    Step("failures", failures, ("facts", "publishes", "fleets"), makes=FAILURES),
    Step("ledger", ledger, ("facts", "journeys", "publishes"), makes=LEDGER),
    Step("actions", actions, ("operations", "fleets"), makes=ACTIONS),
    Step("services", services, ("facts", "resources"), makes=SERVICES),
    Step("balance", balance, ("facts", "journeys", "memberships", "fleets"), makes=BALANCE),
)


@dataclass(slots=True)
class Outcome:
    """What an analysis did."""

    seconds: float
    steps: dict[str, float] = field(default_factory=dict)
    """Seconds per step that wrote a table (or looked at the evidence)."""
    defects: list[Defect] = field(default_factory=list)


def analyze(spark: SparkSession, run: str, out: str | None = None, on_progress: Progress = lambda *_: None) -> Outcome:
    """Compute every table of a run from its evidence; `out` is where to write if not into the run itself."""
    began = time.monotonic()
    source = open_store(run, spark)
    target = source if out is None else open_store(out, spark)
    evidence = Evidence(source, spark)
    tune(spark, evidence.rows(PUBLISHES) + evidence.rows(DELIVERIES))
    walk = _Walk(spark, evidence, target, on_progress)
    try:
        walk.all()
    except (PySparkException, Py4JError) as error:
        # A segment may be broken behind a sound footer: find it, leave it out, and try once more.
        if java_is_gone(error) or not evidence.inspect_deeply():
            raise _told(error) from error
        walk = _Walk(spark, evidence, target, on_progress)
        walk.all()
    if evidence.manifest.captures:
        walk.seconds["captures"] = _decode(spark, evidence, target, on_progress)
    target.write("measures/defects.json", msgspec.json.encode(evidence.defects))
    return Outcome(time.monotonic() - began, walk.seconds, evidence.defects)


def _decode(spark: SparkSession, evidence: Evidence, target: Store, on_progress: Progress) -> float:
    """The tables of what was captured; captures that cannot be read are defects, the rest of the run stands."""
    from battlebrokers.pipeline.captures import captures_of, decode  # only captured runs pay for it

    began = time.monotonic()
    sockets = evidence.arrow(SOCKETS, SOCKETS.column_names)
    resources = evidence.arrow(RESOURCES, ["service", "cpu_percent", "rss_bytes"])
    captures = captures_of(evidence.manifest, evidence.store, sockets, resources)
    if captures is not None and not captures.files:
        # What was decoded before stays: it is all that is left of them.
        evidence.defects += [Defect("recorded/captures", f"{one['file']}: {one['reason']}") for one in captures.unread]
    elif captures is not None:
        try:
            decode(spark, captures, target, on_progress)
        except (BattleError, PySparkException, Py4JError) as error:
            evidence.defects.append(Defect("recorded/captures", _in_short(error)))
    return time.monotonic() - began


_RAISED = re.compile(r"^(?!java\.|org\.|py4j\.)((?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b.*)$", re.MULTILINE)
_CAUSE = re.compile(r"^(?:Caused by|): (?:[\w.$]+(?:Error|Exception): )?(.+)$", re.MULTILINE)
_DISK_FULL = "No space left on device"


class _Walk:
    """One pass through the graph."""

    def __init__(self, spark: SparkSession, evidence: Evidence, target: Store, on_progress: Progress) -> None:
        self.seconds: dict[str, float] = {}
        self._spark = spark
        self._evidence = evidence
        self._target = target
        self._tell = on_progress
        self._done = 0
        self._frames: dict[str, DataFrame] = {}

    def all(self) -> None:
        for layer in dict.fromkeys(table.layer for table in DERIVED):
            self._target.delete(layer)
        facts = self._timed("evidence", self._look)
        needed = [step for step in STEPS if step.needed(facts)]
        first = [step for step in needed if step.makes is None or step.makes is JOURNEYS]
        try:
            for step in first:
                self._take(step, facts)
            # The rest only reads what is written by now.
            with ThreadPoolExecutor(max_workers=_SIDE_BY_SIDE) as crew:
                list(crew.map(lambda step: self._take(step, facts), [step for step in needed if step not in first]))
        finally:
            self._frames["publishes"].unpersist() if "publishes" in self._frames else None

    def _look(self) -> Facts:
        facts, small = audience(self._spark, self._evidence)
        deliveries = facts.gather(self._evidence.frame(DELIVERIES))
        self._frames = {
            **small,
            "recorded_publishes": facts.gather(self._evidence.frame(PUBLISHES)),
            "deliveries": deliveries,
            "deliveries_recorded": deliveries,
            "operations": facts.gather(self._evidence.frame(OPERATIONS)),
            "resources": facts.gather(self._evidence.frame(RESOURCES)),
        }
        if self._evidence.rows(ACKS):
            self._frames["acks"] = facts.gather(self._evidence.frame(ACKS))
        return facts

    def _take(self, step: Step, facts: Facts) -> None:
        inputs: dict[str, Any] = {**self._frames, "facts": facts}
        optional = [name for name in step.may_read if name in inputs]
        frame = step.function(**{name: inputs[name] for name in (*step.reads, *optional)})
        if step.makes is None:
            if step.name == "publishes" and self._evidence.rows(ACKS) > _MANY_ACKS:
                frame = frame.persist()
            self._frames[step.name] = frame
            return
        table = step.makes
        self._timed(table.name, lambda: self._write(frame, table))
        place = self._target.locate(table.folder)
        self._frames[step.name] = facts.gather(self._spark.read.schema(table.spark_ddl()).parquet(place))

    def _write(self, frame: DataFrame, table: Table) -> None:
        writer = conform(frame, table).write.mode("overwrite").option("compression", "zstd")
        writer = writer.option("parquet.compression.codec.zstd.level", "1")
        # A dictionary of numbers that hardly repeat is built only to be thrown away.
        for name in ("seq", "planned_ns", "sent_ns", "acked_ns", "received_ns"):
            writer = writer.option(f"parquet.enable.dictionary#{name}", "false")
        writer.parquet(self._target.locate(table.folder))

    def _timed(self, name: str, work: Callable[[], T]) -> T:
        began = time.monotonic()
        result = work()
        self.seconds[name] = time.monotonic() - began
        self._done += 1
        self._tell(name, self._done, len(DERIVED) + 1)
        return result


def _told(error: Exception) -> BattleError:
    """What the user hears of Spark's exception."""
    if gone := java_is_gone(error):
        return gone
    if _DISK_FULL in str(error):
        return EnvironmentNotReady(
            "the disk is full: not all tables could be written",
            hint="What was recorded is untouched: free some space, then `bb analyze` the run.",
        )
    return PipelineError(f"the analysis failed: {_in_short(error)}")


def _in_short(error: Exception) -> str:
    text = str(error).strip()
    # A worker's exception begins with the fact that there is one; what it was is the last line of its traceback.
    raised = _RAISED.findall(text.partition("Traceback")[2])
    if raised:
        return str(raised[-1])[:500]
    # The JVM's begins with the call that failed; what went wrong is the last of its causes.
    if causes := _CAUSE.findall(text):
        return str(causes[-1])[:500]
    return text.splitlines()[0][:500] if text else type(error).__name__
