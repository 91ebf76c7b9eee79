"""Reactive mode: messages that came to the controller, and their copies to the switches of the subscribers.

Asked by the controller for every message, so what is done with each kind of them is planned once and kept.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final

from battlebrokers.sdn.core import broker
from battlebrokers.sdn.core.frames import mac_text
from battlebrokers.sdn.core.instructions import CONTROLLER, Output
from battlebrokers.sdn.core.network import Port
from battlebrokers.sdn.core.rules import OVER_LIMIT, burst_of
from battlebrokers.sdn.openflow.channel import Channel
from battlebrokers.sdn.openflow.codec import action_bytes

MOST_PLANS: Final = 10_000

_Kind = tuple[int, int, bytes, bytes]
"""Switch, port, sender and target of a message."""


@dataclass(slots=True)
class Traffic:
    """Of one resource in reactive mode, where no switch counts."""

    published: int = 0
    delivered: int = 0
    dropped: int = 0
    """Messages over the limit, and copies for switches that are away or do not keep up."""


class Allowance:
    """At most so many a second, with a burst: a flood costs no more than this."""

    def __init__(self, per_s: int, burst: int) -> None:
        self._per_s, self._burst = per_s, float(burst)
        self._left = self._burst
        self._at = time.monotonic()

    def take(self) -> bool:
        """Whether one more is allowed."""
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


@dataclass(frozen=True, slots=True)
class _Leg:
    """The copies that leave one switch."""

    channel: Channel
    actions: bytes
    in_port: int
    copies: int


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is done with every message of one kind; good until anything changes."""

    legs: tuple[_Leg, ...] = ()
    unreachable: int = 0
    """Copies for switches that are away."""
    traffic: Traffic | None = None
    allowance: Allowance | None = None
    """Only where the switch itself has no meters."""
    dropped: str = ""


class Copying:
    """Every resource's traffic, and the plans."""

    def __init__(self) -> None:
        self.traffic: dict[str, Traffic] = {}
        self.drops: Counter[str] = Counter()
        """Messages that went no further, by kind."""
        self.plans: dict[_Kind, _Plan] = {}
        self._allowances: dict[tuple[int, str], Allowance] = {}

    def changed(self) -> None:
        """Nothing planned is good any longer."""
        self.plans.clear()

    def copy(
        self, state: broker.State, channels: Mapping[int, Channel], switch: int, in_port: int, frame: bytes
    ) -> None:
        """A message came in at a port of a switch: give everybody their copy."""
        kind = (switch, in_port, frame[6:12], frame[30:34])
        plan = self.plans.get(kind)
        if plan is None:
            if len(self.plans) >= MOST_PLANS:
                self.plans.clear()
            plan = self.plans[kind] = self._planned(state, channels, kind)
        traffic = plan.traffic
        if traffic is None:
            self.drops[plan.dropped] += 1
            return
        if plan.allowance is not None and not plan.allowance.take():
            traffic.dropped += 1
            self.drops[OVER_LIMIT] += 1
            return
        traffic.published += 1
        traffic.dropped += plan.unreachable
        for leg in plan.legs:
            if leg.channel.send_frame(leg.actions, frame, leg.in_port):
                traffic.delivered += leg.copies
            else:
                traffic.dropped += leg.copies

    def _planned(self, state: broker.State, channels: Mapping[int, Channel], kind: _Kind) -> _Plan:
        switch, in_port, sender, target = kind
        address = str(IPv4Address(target)) if len(target) == 4 else ""
        copies = broker.reactive_copies(state, Port(switch, in_port), address, mac_text(sender))
        if isinstance(copies, str):
            return _Plan(dropped=copies)
        counts = {other: sum(isinstance(action, Output) for action in actions) for other, actions in copies.items()}
        legs = tuple(
            _Leg(channels[other], action_bytes(actions), in_port if other == switch else CONTROLLER, counts[other])
            for other, actions in copies.items()
            if other in channels
        )
        unreachable = sum(count for other, count in counts.items() if other not in channels)
        traffic = self.traffic.setdefault(address, Traffic())
        return _Plan(legs, unreachable, traffic, self._allowance(state, switch, address))

    def _allowance(self, state: broker.State, switch: int, address: str) -> Allowance | None:
        if state.skills.get(switch, broker.Skills()).meters or not state.reactive_per_s:
            return None
        limit = burst_of(state.reactive_per_s)
        return self._allowances.setdefault((switch, address), Allowance(state.reactive_per_s, limit))
