"""What the switches counted, by resource and by kind of drop. Pure sums; asked by REST through the controller.

A switch counts a rule from when it was written: counters that fall back begin anew, and the sum goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from battlebrokers.sdn.core.instructions import Actions, Match, Rewrite, Tables
from battlebrokers.sdn.core.resources import Directory
from battlebrokers.sdn.core.rules import OWN_RESOURCE, PUBLISHED

RuleKey = tuple[int, int, Match]


@dataclass(frozen=True, slots=True)
class Seen:
    """The packets a switch counted: by rule, and by the buckets of each group."""

    rules: dict[RuleKey, int]
    buckets: dict[int, list[int]]


@dataclass(slots=True)
class Sums:
    """Over all switches, since the controller started."""

    published: Counter[str] = field(default_factory=Counter)
    delivered: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    """By kind."""
    refused: Counter[str] = field(default_factory=Counter)
    """Of each resource: what its own subscribers tried to publish."""


class Tally:
    """Sums that never fall back; one for the life of a controller."""

    def __init__(self) -> None:
        self._last: dict[tuple[object, ...], int] = {}
        self._sums = Sums()

    @property
    def sums(self) -> Sums:
        """All there is so far."""
        return self._sums

    def add(self, directory: Directory, known: Mapping[int, Tables], seen: Mapping[int, Seen]) -> None:
        """Take in what every switch counted now."""
        for switch, counted in seen.items():
            tables = known.get(switch, Tables())
            for key, packets in counted.rules.items():
                rule = tables.rules.get(key)
                if rule is not None and rule.purpose:
                    self._count(rule.purpose, self._grown((switch, key), packets))
            for resource in directory.resources.values():
                group = tables.groups.get(resource.id)
                if group is not None:
                    grown = self._delivered(switch, resource.id, group.buckets, counted.buckets.get(resource.id, ()))
                    self._sums.delivered[resource.address] += grown

    def _delivered(self, switch: int, group: int, buckets: Iterable[Actions], packets: Iterable[int]) -> int:
        """Copies made for a subscriber; those that only go to the next switch are made there once more."""
        total = 0
        for actions, count in zip(buckets, packets, strict=False):
            # Keyed by what the bucket does: buckets move up when an earlier one goes.
            grown = self._grown((switch, group, actions), count)
            total += grown if any(isinstance(action, Rewrite) for action in actions) else 0
        return total

    def _grown(self, key: tuple[object, ...], packets: int) -> int:
        before = self._last.get(key, 0)
        self._last[key] = packets
        return packets - before if packets >= before else packets

    def _count(self, purpose: str, packets: int) -> None:
        kind, _, address = purpose.rpartition(" ")
        if kind == PUBLISHED:
            self._sums.published[address] += packets
        elif kind == OWN_RESOURCE:
            self._sums.dropped[OWN_RESOURCE] += packets
            self._sums.refused[address] += packets
        else:
            self._sums.dropped[purpose] += packets
