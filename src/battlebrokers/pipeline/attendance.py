"""Who listened when: a client's operations become spells, each saying what the broker owed it at a moment.

Called by the audience step, on the driver: connections are few, messages many. Pure functions, no Spark.
A spell says: a message sent between `start_ns` and `end_ns` was owed as `steady`, near the end as `shaky`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from operator import attrgetter
from typing import NamedTuple

from battlebrokers.clock import MILLISECOND_NS, SECOND_NS

OFF, UNCERTAIN, OWED = 0, 1, 2
"""What is owed: nothing; perhaps (nobody can say); the message. Ordered: the stronger claim wins."""
GRACE_NS = 250 * MILLISECOND_NS
"""Messages sent this shortly before a client left may not have reached it in time."""
BEGINNING_NS, ENDLESS_NS = -(2**62), 2**62


class Owed(NamedTuple):
    """The claim for effective QoS 0, and for QoS 1 and 2."""

    qos0: int
    higher: int


_ALL = Owed(OWED, OWED)
_NOTHING = Owed(OFF, OFF)


@dataclass(frozen=True, slots=True)
class Operation:
    """What attendance needs to know of a row of `operations`."""

    client: int
    kind: str
    started_ns: int
    ended_ns: int | None
    outcome: str
    filter: str | None
    share: str | None
    granted_qos: int | None
    session_present: bool | None
    persistent: bool
    session_expiry_s: int | None = None

    @property
    def moment_ns(self) -> int:
        """When it took effect: answers count when they arrived, farewells when they began."""
        answered = self.kind in {"connect", "subscribe"} and self.ended_ns is not None
        return self.ended_ns if answered and self.ended_ns is not None else self.started_ns


@dataclass(frozen=True, slots=True)
class Spell:
    """A stretch of one subscription. `since_ns … until_ns` are the sends it answers for; spells leave no gap."""

    client: int
    filter: str
    share: str | None
    granted_qos: int
    start_ns: int
    end_ns: int = ENDLESS_NS
    steady: Owed = _ALL
    shaky: Owed = _NOTHING
    shaky_ns: int = ENDLESS_NS
    since_ns: int = BEGINNING_NS
    until_ns: int = ENDLESS_NS

    @property
    def key(self) -> tuple[int, str, str]:
        """The subscription it belongs to."""
        return (self.client, self.filter, self.share or "")


@dataclass(frozen=True, slots=True)
class Subscribed:
    """One granted subscription; `connection` counts the client's connections, from 1."""

    client: int
    filter: str
    share: str | None
    granted_qos: int
    started_ns: int
    ended_ns: int
    connection: int


@dataclass(frozen=True, slots=True)
class Connected:
    """One connection of a client, until its next one."""

    client: int
    connection: int
    from_ns: int
    to_ns: int


@dataclass(frozen=True, slots=True)
class Attendance:
    """Everything the operations say about listening."""

    spells: list[Spell]
    subscriptions: list[Subscribed]
    connections: list[Connected]


def attendance(operations: Iterable[Operation]) -> Attendance:
    """The attendance of all clients; operations may come in any order."""
    result = Attendance([], [], [])
    ordered = sorted(operations, key=lambda one: (one.client, one.moment_ns))
    for client, own in groupby(ordered, key=attrgetter("client")):
        diary = _Diary(client)
        for operation in own:
            diary.note(operation)
        diary.close()
        result.spells.extend(_without_gaps(diary.spells))
        result.subscriptions.extend(diary.subscriptions)
        result.connections.extend(diary.connections)
    return result


class _Diary:
    """One client's life, told operation by operation."""

    def __init__(self, client: int) -> None:
        self.client = client
        self.spells: list[Spell] = []
        self.subscriptions: list[Subscribed] = []
        self.connections: list[Connected] = []
        self._open: dict[tuple[str, str | None], Spell] = {}
        self._away = False
        self._left_ns = 0
        self._left: range = range(0)
        """Which spells ended when it left."""
        self._persistent = False
        self._expiry_s: int | None = None

    def note(self, operation: Operation) -> None:
        """Take in the next operation; those without effect are passed over."""
        succeeded = operation.outcome == "ok"
        match operation.kind:
            case "connect" if succeeded:
                self._connect(operation)
            case "subscribe" if succeeded and operation.filter is not None:
                self._subscribe(operation, operation.filter)
            case "unsubscribe" if succeeded and operation.filter is not None:
                spell = self._open.pop((operation.filter, operation.share), None)
                if spell is not None:
                    self._end(spell, operation.moment_ns, _NOTHING)
            case "disconnect":
                self._leave(operation.moment_ns, OFF)
            case "lost":
                self._leave(operation.moment_ns, UNCERTAIN)

    def close(self) -> None:
        """The run is over: what is open stays open."""
        for spell in self._open.values():
            # A client that never came back: the broker may still hold its messages, nobody can say.
            never_back = Owed(OFF, UNCERTAIN)
            self.spells.append(replace(spell, steady=never_back) if self._away else spell)

    def _connect(self, operation: Operation) -> None:
        now_ns = operation.moment_ns
        if self.connections:
            self.connections[-1] = replace(self.connections[-1], to_ns=now_ns)
        self.connections.append(Connected(self.client, len(self.connections) + 1, now_ns, ENDLESS_NS))
        kept = self._persistent and operation.session_present is not False
        if self._open and not self._away and not kept:
            self._leave(now_ns, UNCERTAIN)
        if self._away:
            self._expire(now_ns)
        for key, spell in list(self._open.items()):
            if self._away:
                self._end(spell, now_ns, spell.steady)
                self._open[key] = replace(spell, start_ns=now_ns, steady=_ALL)
        if not kept:
            self._open.clear()
        self._away = False
        self._persistent, self._expiry_s = operation.persistent, operation.session_expiry_s

    def _subscribe(self, operation: Operation, topic_filter: str) -> None:
        now_ns = operation.moment_ns
        granted_qos = operation.granted_qos if operation.granted_qos is not None else 0
        share = operation.share
        self._persistent, self._expiry_s = operation.persistent, operation.session_expiry_s
        self.subscriptions.append(
            Subscribed(
                self.client,
                topic_filter,
                share,
                granted_qos,
                operation.started_ns,
                now_ns,
                max(1, len(self.connections)),
            )
        )
        before = self._open.get((topic_filter, share))
        if before is not None:
            if before.granted_qos == granted_qos:
                return
            self._end(before, now_ns, before.steady)
        self._open[topic_filter, share] = Spell(self.client, topic_filter, share, granted_qos, now_ns)

    def _leave(self, now_ns: int, unsure: int) -> None:
        if self._away:
            return
        shaky = Owed(unsure, OWED if self._persistent else unsure)
        first = len(self.spells)
        for key, spell in list(self._open.items()):
            self._end(spell, now_ns, shaky)
            self._open[key] = replace(spell, start_ns=now_ns, steady=Owed(OFF, OWED))
        if self._persistent:
            self._away = True
            self._left_ns, self._left = now_ns, range(first, len(self.spells))
        else:
            self._open.clear()

    def _expire(self, back_ns: int) -> None:
        """It comes back, perhaps after its session ended: then the broker had to forget what it kept until then."""
        if self._expiry_s is None:
            return
        over_ns = back_ns - self._left_ns - self._expiry_s * SECOND_NS
        if over_ns < -GRACE_NS:
            return
        claim = UNCERTAIN if over_ns <= GRACE_NS else OFF
        for place in self._left:
            qos0 = self.spells[place].shaky.qos0
            self.spells[place] = replace(self.spells[place], shaky=Owed(qos0, max(qos0, claim)))
        self._open = {key: replace(spell, steady=Owed(OFF, claim)) for key, spell in self._open.items()}

    def _end(self, spell: Spell, now_ns: int, shaky: Owed) -> None:
        shaky_ns = max(spell.start_ns, now_ns - GRACE_NS)
        self.spells.append(replace(spell, end_ns=now_ns, shaky_ns=shaky_ns, shaky=shaky))


def _without_gaps(spells: Sequence[Spell]) -> list[Spell]:
    """Stretch each subscription's spells so that every send falls into exactly one of them."""
    result = []
    for _, own in groupby(sorted(spells, key=lambda one: (one.key, one.start_ns, one.end_ns)), key=attrgetter("key")):
        chain = list(own)
        for place, spell in enumerate(chain):
            since_ns = chain[place - 1].end_ns if place else BEGINNING_NS
            until_ns = spell.end_ns if place + 1 < len(chain) else ENDLESS_NS
            result.append(replace(spell, since_ns=since_ns, until_ns=until_ns))
    return result


def group_spells(spells: Iterable[Spell]) -> list[Spell]:
    """The spells of shared groups as wholes: owed if any member was there, uncertain while any was leaving."""
    result = []
    shared = sorted((spell for spell in spells if spell.share is not None), key=lambda one: (one.share, one.filter))
    for (share, topic_filter), members in groupby(shared, key=attrgetter("share", "filter")):
        result.extend(_merged(share, topic_filter, list(members)))
    return result


def _merged(share: str, topic_filter: str, members: list[Spell]) -> list[Spell]:
    granted_qos = max(member.granted_qos for member in members)
    changes: list[tuple[int, int, Owed]] = []
    for member in members:
        for from_ns, to_ns, owed in (
            (member.start_ns, min(member.shaky_ns, member.end_ns), member.steady),
            (member.shaky_ns, member.end_ns, member.shaky),
        ):
            if from_ns < to_ns:
                changes += [(from_ns, 1, owed), (to_ns, -1, owed)]
    counts = {(level, claim): 0 for level in (0, 1) for claim in (OFF, UNCERTAIN, OWED)}
    pieces: list[tuple[int, Owed]] = []
    for moment_ns, same in groupby(sorted(changes, key=lambda change: change[0]), key=lambda change: change[0]):
        for _, delta, owed in same:
            counts[0, owed.qos0] += delta
            counts[1, owed.higher] += delta
        now = Owed(*(_strongest(counts, level) for level in (0, 1)))
        if not pieces or pieces[-1][1] != now:
            pieces.append((moment_ns, now))
    chain = [
        Spell(-1, topic_filter, share, granted_qos, start_ns, end_ns, owed, owed, end_ns)
        for (start_ns, owed), (end_ns, _) in pairwise([*pieces, (ENDLESS_NS, _NOTHING)])
        if start_ns < end_ns
    ]
    return _without_gaps(chain)


def _strongest(counts: dict[tuple[int, int], int], level: int) -> int:
    if counts[level, UNCERTAIN]:
        return UNCERTAIN
    return OWED if counts[level, OWED] else OFF
