"""Stretches in which nothing arrived although messages were due, to a fraction of a second. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from battlebrokers.analysis.capacity import groups_with
from battlebrokers.analysis.facts import LOAD_PHASES, Facts
from battlebrokers.clock import SECOND_NS
from battlebrokers.tables.slots import SLOT_NS

SHORTEST_S = 0.5
"""A shorter silence may be the machine's or the plan's."""
FEWEST_DUE = 5
"""So many deliveries must have become due in the first half of the silence: those had time to arrive."""


@dataclass(frozen=True, slots=True)
class Stall:
    """A silence; moments count from the start of the load."""

    begin_s: float
    end_s: float
    due: int
    """Deliveries that became due in it."""
    share: float
    """Of all deliveries of the load."""
    to_the_end: bool
    """Whether nothing arrived any more before the load ended, or afterwards."""

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return self.end_s - self.begin_s


def stalls(facts: Facts) -> list[Stall]:
    """All of the load phases, in order; none for a run in which nobody listens, or nothing ever arrived.

    Clients that are away or read slowly on purpose do not count.
    """
    ends = [phase.end_ns for phase in facts.manifest.phases if phase.name in LOAD_PHASES]
    if not ends:
        return []
    load_ns = max(ends) - facts.load_start_ns
    leave_out = groups_with(facts, "clients", ("reads", "away"))
    # What is planned while a device is away on purpose is due when it is sent.
    moment = "sent" if groups_with(facts, "fleets", ("away",)) else "planned"
    rows = [row for row in facts.slots.to_pylist() if row["client_fleet"] not in leave_out]
    due: dict[int, int] = {}
    arrived: dict[int, tuple[int, int]] = {}
    for row in rows:
        due[row["slot"]] = due.get(row["slot"], 0) + row[moment]
        if row["arrived"]:
            first, last = row["first_ns"] - facts.load_start_ns, row["last_ns"] - facts.load_start_ns
            known = arrived.get(row["slot"], (first, last))
            arrived[row["slot"]] = min(known[0], first), max(known[1], last)
    if not arrived:
        return []
    spans = [(0, 0), *sorted(arrived.values())]
    silences = [(last, first, False) for (_, last), (first, _) in pairwise(spans)]
    silences.append((spans[-1][1], load_ns, True))
    whole = sum(n for slot, n in due.items() if 0 <= slot * SLOT_NS < load_ns)
    found = []
    for begin_ns, end_ns, to_the_end in silences:
        if begin_ns >= load_ns or end_ns - begin_ns < SHORTEST_S * SECOND_NS:
            continue
        waiting = _due_between(due, begin_ns, end_ns)
        if _due_between(due, begin_ns, (begin_ns + end_ns) // 2) >= FEWEST_DUE:
            found.append(Stall(begin_ns / SECOND_NS, end_ns / SECOND_NS, waiting, waiting / max(1, whole), to_the_end))
    return found


def _due_between(due: dict[int, int], begin_ns: int, end_ns: int) -> int:
    """Counted by whole slots: the one in which the silence begins belongs to before it."""
    first, end = begin_ns // SLOT_NS + 1, -(-end_ns // SLOT_NS)
    return sum(count for slot, count in due.items() if first <= slot < end)
