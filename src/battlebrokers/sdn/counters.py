"""What the switches counted, by resource and by kind of drop. Pure sums; asked by REST through the observer.

A switch counts a rule from when it was written. What goes is counted with its last words, so that sums never lose it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from battlebrokers.sdn.core.instructions import Group, Match, Rewrite, Rule, Tables
from battlebrokers.sdn.core.rules import OVER_LIMIT, OWN_RESOURCE, PUBLISHED

RuleKey = tuple[int, int, Match]


@dataclass(slots=True)
class Sums:
    """Over all switches, since the controller started."""

    published: Counter[str] = field(default_factory=Counter)
    delivered: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    """By kind."""
    refused: Counter[str] = field(default_factory=Counter)
    """Of each resource: what its own subscribers tried to publish."""
    lost: Counter[str] = field(default_factory=Counter)
    """Of each resource about which switches ask: messages over the limit, and copies nobody could take."""


class Tally:
    """Sums that never fall back; one for the life of a controller. Told things in the order a switch said them."""

    def __init__(self) -> None:
        self._rules: dict[tuple[int, RuleKey], int] = {}
        self._groups: dict[tuple[int, int], Counter[object]] = {}
        self._meters: dict[tuple[int, int], int] = {}
        self._leaving: dict[tuple[int, RuleKey], str] = {}
        self._sums = Sums()

    @property
    def sums(self) -> Sums:
        """All there is so far."""
        return self._sums

    def rules_counted(self, switch: int, tables: Tables, packets: Mapping[RuleKey, int]) -> None:
        """What rules have counted by now; `tables` are those the switch had when it counted."""
        for key, count in packets.items():
            rule = tables.rules.get(key)
            if rule is not None and rule.purpose:
                before = self._rules.get((switch, key), 0)
                self._rules[switch, key] = count
                # Falling back means that it began anew: somebody else removed it meanwhile.
                self._count(rule.purpose, count - before if count >= before else count)

    def group_counted(self, switch: int, address: str, group: Group, packets: Iterable[int]) -> None:
        """What the buckets of a resource's group have counted by now."""
        before = self._groups.get((switch, group.id), Counter())
        # By what a bucket does: buckets move up when an earlier one goes.
        now: Counter[object] = Counter()
        for actions, count in zip(group.buckets, packets, strict=False):
            now[actions] = count
            # A copy that only goes to the next switch is made there once more.
            if any(isinstance(action, Rewrite) for action in actions):
                grown = count - before[actions]
                self._sums.delivered[address] += grown if grown >= 0 else count
        self._groups[switch, group.id] = now

    def meter_counted(self, switch: int, meter: int, address: str, packets: int) -> None:
        """What a meter has held back by now; of which resource, where it is one's."""
        before = self._meters.get((switch, meter), 0)
        self._meters[switch, meter] = packets
        grown = packets - before if packets >= before else packets
        self._sums.dropped[OVER_LIMIT] += grown
        if address:
            self._sums.lost[address] += grown

    def group_begins_anew(self, switch: int, group: int) -> None:
        """It was replaced or is gone: its buckets count from zero."""
        self._groups.pop((switch, group), None)

    def rule_leaves(self, switch: int, rule: Rule) -> None:
        """It was told to go; what it has counted comes with its end."""
        if rule.purpose:
            self._leaving[switch, rule.key] = rule.purpose

    def rule_removed(self, switch: int, key: RuleKey, packets: int) -> None:
        """Its last words."""
        purpose = self._leaving.pop((switch, key), None)
        before = self._rules.pop((switch, key), 0)
        if purpose is not None:
            self._count(purpose, packets - before if packets >= before else packets)

    def switch_joined(self, switch: int, tables: Tables) -> None:
        """It knows no more than this: what it no longer has, it will count from zero."""
        for gone in [one for one in self._rules if one[0] == switch and one[1] not in tables.rules]:
            del self._rules[gone]
        for group in [one for one in self._groups if one[0] == switch and one[1] not in tables.groups]:
            del self._groups[group]
        for leaving in [one for one in self._leaving if one[0] == switch]:
            del self._leaving[leaving]

    def _count(self, purpose: str, packets: int) -> None:
        kind, _, address = purpose.rpartition(" ")
        if kind == PUBLISHED:
            self._sums.published[address] += packets
        elif kind == OWN_RESOURCE:
            self._sums.dropped[OWN_RESOURCE] += packets
            self._sums.refused[address] += packets
        else:
            self._sums.dropped[purpose] += packets
