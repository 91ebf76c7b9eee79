"""Whether the broker kept up with what it was offered: a queue that grows to the end of the load, and what was left.

Called by the finders and by `expectations`. Pure: reads the timeline and the ledger, second by second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from battlebrokers.analysis.facts import LOAD_PHASES, Facts, phase_ns, total, where
from battlebrokers.clock import SECOND_NS

LONG_QUEUE_S = 0.5
"""A queue is worth telling if, at the end of the load, delivering it takes longer than this."""
SHORT_QUEUE_S = 0.1
"""Below this the broker is up to date: the overload began after the last such second."""
SHORTEST_GROWTH_S = 3
"""Shorter ones may be a burst of the plan."""
GROWTH = 1.2
"""In the second half of the overload the queue must be longer than in the first by this factor."""


@dataclass(frozen=True, slots=True)
class Overload:
    """From second `since` on the broker was offered more than it delivered."""

    since: int
    offered_per_s: float
    delivered_per_s: float
    queued: int
    """Deliveries outstanding, and messages not yet taken, when the load ended."""


@dataclass(frozen=True, slots=True)
class Behind:
    """What was overdue when the drain ended, and how long delivering it would have taken at the rate of the drain."""

    messages: int
    seconds: float | None


def slow_readers(facts: Facts) -> frozenset[str]:
    """The groups of clients that read slowly on purpose: what waits for them is not the broker's delay."""
    return groups_with(facts, "clients", ("reads",))


def broker_behind(facts: Facts) -> Behind | None:
    """How far the broker was behind when the drain ended; None if nothing was overdue."""
    slow = slow_readers(facts)
    rows = facts.ledger.select(["client_fleet", "overdue"]).to_pylist()
    messages = sum(row["overdue"] for row in rows if row["client_fleet"] not in slow)
    if not messages:
        return None
    drain = facts.manifest.phase("drain")
    drain_s = phase_ns(drain) / SECOND_NS if drain else 0.0
    arrived = total(where(facts.timeline, phase="drain", side="deliver"), "messages")
    return Behind(messages, messages * drain_s / arrived if arrived and drain_s else None)


def find_overload(facts: Facts) -> Overload | None:
    """The stretch up to the end of the load in which the queue only grew; None if there is none."""
    queued, arrived = _series(facts)
    if len(queued) < SHORTEST_GROWTH_S:
        return None
    busy = [count for count in arrived if count]
    per_s = sum(busy) / len(busy) if busy else 0.0
    if not per_s or queued[-1] < LONG_QUEUE_S * per_s:
        return None
    since = 1 + max((second for second, count in enumerate(queued) if count <= SHORT_QUEUE_S * per_s), default=-1)
    grown, came = queued[since:], arrived[since:]
    half = len(grown) // 2
    # A broker that delivers nothing for a while has stalled, which is told elsewhere.
    if len(grown) < SHORTEST_GROWTH_S or sum(count > 0 for count in came) <= len(came) / 2:
        return None
    if sum(grown[-half:]) < GROWTH * sum(grown[:half]):
        return None
    delivered_per_s = sum(came) / len(came)
    before = queued[since - 1] if since else 0
    return Overload(since, delivered_per_s + (grown[-1] - before) / len(grown), delivered_per_s, grown[-1])


def _series(facts: Facts) -> tuple[list[int], list[int]]:
    """By second of the load: what the broker had yet to take or deliver, and what arrived."""
    leave_out = groups_with(facts, "clients", ("reads", "away")) | groups_with(facts, "fleets", ("away",))
    columns = ["second", "phase", "side", "fleet", "messages", "planned", "queued"]
    rows: list[dict[str, Any]] = [
        row
        for row in facts.timeline.select(columns).to_pylist()
        if row["phase"] in LOAD_PHASES and row["second"] >= 0 and row["fleet"] not in leave_out
    ]
    seconds = 1 + max((row["second"] for row in rows), default=-1)
    delivering, arrived, not_taken = [0] * seconds, [0] * seconds, [0] * seconds
    for row in rows:
        if row["side"] == "deliver":
            delivering[row["second"]] += row["queued"]
            arrived[row["second"]] += row["messages"]
        else:
            not_taken[row["second"]] += row["planned"] - row["messages"]
    waiting, queued = 0, []
    for second in range(seconds):
        waiting += not_taken[second]
        queued.append(max(0, waiting) + delivering[second])
    return queued, arrived


def groups_with(facts: Facts, part: str, keys: tuple[str, ...]) -> frozenset[str]:
    """The fleets or groups of clients that the scenario gives one of these keys."""
    groups = facts.manifest.scenario.resolved.get(part)
    if not isinstance(groups, dict):
        return frozenset()
    return frozenset(
        str(name) for name, group in groups.items() if isinstance(group, dict) and any(group.get(key) for key in keys)
    )
