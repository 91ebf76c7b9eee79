"""One clock hand for all connections of a loop: who has been silent too long?

Connections enter their next check into a slot of the wheel; one timer per loop visits the slots. It knows ticks and
members, nothing of protocols: what a check means is the connection's business.
"""

from __future__ import annotations

import asyncio
import math
from typing import Protocol
from weakref import WeakKeyDictionary

TICK_S = 0.1


def patience(seconds: float) -> int:
    """Ticks to wait for at least so long: the tick at hand began up to one ago."""
    return math.ceil(seconds / TICK_S) + 1


class Member(Protocol):
    """Who can sit in a slot."""

    slot: int
    """The tick of the slot it sits in; 0 when in none."""

    def beat(self) -> int:
        """Called when the slot comes up; returns the tick of the next check, 0 to leave the wheel."""


class Wheel:
    """Slots of ticks, turned by one timer that runs only while somebody sits in a slot."""

    __slots__ = ("_origin_s", "_slots", "_timer", "loop", "tick")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        # Ticks begin at 1 so that 0 can mean "none".
        self._origin_s = loop.time() - TICK_S
        self._slots: dict[int, set[Member]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.tick = 1
        """Now, in ticks; cheap enough for hot paths to copy."""

    def enter(self, member: Member, tick: int) -> None:
        """Have `member` checked at `tick` (or as soon as possible); it leaves the slot it was in."""
        self.leave(member)
        if self._timer is None:
            if not self._slots:
                # Never past a slot in which somebody waits: it would not be visited any more.
                self.tick = self._now()
            self._timer = self.loop.call_later(TICK_S, self._turn)
        member.slot = max(tick, self.tick + 1)
        self._slots.setdefault(member.slot, set()).add(member)

    def leave(self, member: Member) -> None:
        """Do not check `member` any more."""
        members = self._slots.get(member.slot)
        if members is not None:
            members.discard(member)
            if not members:
                del self._slots[member.slot]
        member.slot = 0

    def _now(self) -> int:
        return int((self.loop.time() - self._origin_s) / TICK_S)

    def _turn(self) -> None:
        self._timer = None
        before = self.tick
        self.tick = self._now()
        due: list[Member] = []
        for tick in range(before + 1, self.tick + 1):
            due.extend(self._slots.pop(tick, ()))
        for member in due:
            # A member may have left while an earlier one was being checked.
            if member.slot and member.slot <= self.tick:
                member.slot = 0
                following = member.beat()
                if following:
                    self.enter(member, following)
        if self._slots and self._timer is None:
            self._timer = self.loop.call_later(TICK_S, self._turn)


_wheels: WeakKeyDictionary[asyncio.AbstractEventLoop, Wheel] = WeakKeyDictionary()


def wheel_of(loop: asyncio.AbstractEventLoop) -> Wheel:
    """The one wheel of a loop."""
    wheel = _wheels.get(loop)
    if wheel is None:
        wheel = _wheels[loop] = Wheel(loop)
    return wheel
