"""Switches that are away: what they go on doing that is no longer wanted, and until when anybody waits for them.

Kept by the controller. Where only the connection is gone, a switch goes on switching by the rules it has.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from battlebrokers.errors import EnvironmentNotReady
from battlebrokers.sdn.core.instructions import Tables, ToGroup
from battlebrokers.sdn.core.rules import PUBLISH

GONE_AFTER_S: Final = 60.0
"""Whoever is away for longer is taken as gone: a switch that was removed must not be waited for for ever."""


class NotYetInEffectError(EnvironmentNotReady):
    """A change that is kept, but that some switch does not follow yet."""


def not_yet(late: dict[int, str]) -> NotYetInEffectError:
    """The refusal that names these switches, each with what is the matter with it."""
    told = ", ".join(f"switch {switch} ({why})" for switch, why in sorted(late.items()))
    return NotYetInEffectError(
        f"kept, but not in effect yet at {told}",
        hint="it takes effect when the switch is back; one that will not come back: "
        f"DELETE /api/v1/switches/{min(late)}",
    )


def delivers(tables: Tables) -> frozenset[str]:
    """The resources whose messages a switch with these tables copies by itself."""
    return frozenset(
        rule.match.ipv4_dst
        for rule in tables.rules.values()
        if rule.table == PUBLISH and rule.match.ipv4_dst and any(isinstance(action, ToGroup) for action in rule.actions)
    )


@dataclass(slots=True)
class _Away:
    delivers: frozenset[str]
    since_s: float
    missed: set[str] = field(default_factory=set)


class Absences:
    """By the number of the switch."""

    def __init__(self) -> None:
        self._away: dict[int, _Away] = {}

    def left(self, switch: int, resources: frozenset[str]) -> None:
        """A switch is away, and goes on delivering messages of these resources."""
        self._away[switch] = _Away(resources, time.monotonic())

    def ended(self, switch: int) -> None:
        """It is back, or known to be gone."""
        self._away.pop(switch, None)

    def missed(self, resources: Collection[str]) -> dict[int, str]:
        """These resources are others now: the switches that do not know it and deliver by what they know."""
        late = {}
        for switch, away in self._present().items():
            if touched := away.delivers.intersection(resources):
                away.missed |= touched
                late[switch] = "away"
        return late

    def behind(self, resource: str) -> list[int]:
        """Switches that have missed a change of a resource."""
        return [switch for switch, away in self._present().items() if resource in away.missed]

    def _present(self) -> dict[int, _Away]:
        now = time.monotonic()
        for switch in [one for one, away in self._away.items() if now - away.since_s > GONE_AFTER_S]:
            del self._away[switch]
        return self._away
