"""Messages and copies that came to the controller, in the modes whose switches ask: what is sent for each.

Asked by the controller for every one of them, so what is done with each kind is planned once and kept: nothing but
bytes that are there already is sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Final

from battlebrokers.sdn.allowance import Allowance
from battlebrokers.sdn.core import broker
from battlebrokers.sdn.core.addresses import VIRTUAL_MAC
from battlebrokers.sdn.core.copies import Handout
from battlebrokers.sdn.core.frames import mac_bytes, mac_text
from battlebrokers.sdn.core.instructions import CONTROLLER
from battlebrokers.sdn.core.network import Port
from battlebrokers.sdn.core.resources import Mode, Source
from battlebrokers.sdn.core.rules import IN_TRANSIT, OVER_LIMIT, burst_of
from battlebrokers.sdn.openflow.channel import Channel
from battlebrokers.sdn.openflow.codec import action_bytes
from battlebrokers.sdn.openflow.wire import packet_out_head

MOST_PLANS: Final = 10_000
MOST_ON_THE_WAY: Final = 5_000
"""Copies between switches about which the next one has not asked yet. More messages are not let in until it has: else
questions pile up at every switch, and links are lost with the beacons that wait behind them."""
_VIRTUAL: Final = mac_bytes(VIRTUAL_MAC)

_Kind = tuple[int, int, bytes, bytes]
"""Switch and port, sender and resource of a message; or switch and port, MAC and IPv4 address of a copy's receiver."""


@dataclass(slots=True)
class Traffic:
    """Of one resource about whose messages switches ask, where no switch counts copies."""

    delivered: int = 0
    dropped: int = 0
    """Messages over the limit, and copies for switches that are away or do not keep up."""
    let_in: int = 0
    """Copies it put on their way lately."""


@dataclass(slots=True)
class _Leg:
    """Frames that are sent to one switch. What stands before each is made once for all of one size."""

    channel: Channel
    actions: tuple[bytes, ...]
    in_port: int
    copies: int
    delivered: int
    """So many of them count as delivered when they are sent, the others at their last switch."""
    asked: int = 0
    """About so many of them the next switch will ask."""
    _size: int = -1
    _heads: tuple[bytes, ...] = ()

    def send(self, frame: bytes) -> bool:
        size = len(frame)
        if size != self._size:
            self._heads = (*(packet_out_head(actions, size, self.in_port) for actions in self.actions), b"")
            self._size = size
        return self.channel.send_frame(self._heads, frame)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is done with every message of one kind; good until anything changes."""

    legs: tuple[_Leg, ...] = ()
    asked: int = 0
    unreachable: int = 0
    """Copies for switches that are away, or to which no way leads."""
    traffic: Traffic | None = None
    allowance: Allowance | None = None
    """Only where the switch itself has no meters."""
    dropped: str = ""


@dataclass(frozen=True, slots=True)
class _Onward:
    """What is done with every copy of one kind that is on its way; good until anything changes."""

    leg: _Leg | None
    dropped: str = ""
    by_source: dict[bytes, Traffic] = field(default_factory=dict)
    """Of resources whose copies come from their own address."""
    traffic: Traffic | None = None
    """Of all others; None where several send the subscriber copies, which nobody can tell apart here."""
    allowance: Allowance | None = None


class Copying:
    """Every resource's traffic, and the plans."""

    def __init__(self) -> None:
        self.traffic: dict[str, Traffic] = {}
        self.drops: Counter[str] = Counter()
        """Messages and copies that went no further, by kind."""
        self.plans: dict[_Kind, _Plan] = {}
        self.onward: dict[_Kind, _Onward] = {}
        self.on_the_way = 0
        self._let_in = self._busy = 0
        """Copies put on their way lately, and by how many resources."""
        self._allowances: dict[tuple[int, str], Allowance] = {}
        self._written: set[Channel] = set()
        self._shared: frozenset[str] | None = None
        self._known_to_switches: frozenset[str] = frozenset()

    def changed(self) -> None:
        """Nothing planned is good any longer."""
        self.plans.clear()
        self.onward.clear()
        self._shared = None

    def time_passed(self) -> None:
        """About a second did: copies that are lost are not waited for for ever."""
        self.on_the_way //= 2
        for one in self.traffic.values():
            one.let_in //= 2
        self._let_in = sum(one.let_in for one in self.traffic.values())
        self._busy = sum(one.let_in > 0 for one in self.traffic.values())

    def caught_up(self) -> None:
        """All that came together is answered: let it go."""
        for channel in self._written:
            channel.flush()
        self._written.clear()

    def copy(
        self, state: broker.State, channels: Mapping[int, Channel], switch: int, in_port: int, frame: bytes
    ) -> None:
        """A message came in at a port of a switch: give everybody their copy. Or a copy did: send it on."""
        if frame[:6] != _VIRTUAL:
            self._carry_on(state, channels, switch, in_port, frame)
            return
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
        if (plan.asked and not self._lets_in(traffic, plan.asked)) or (
            plan.allowance is not None and not plan.allowance.take()
        ):
            traffic.dropped += 1
            self.drops[OVER_LIMIT] += 1
            return
        traffic.dropped += plan.unreachable
        for leg in plan.legs:
            if leg.send(frame):
                self._written.add(leg.channel)
                traffic.delivered += leg.delivered
                self.on_the_way += leg.asked
            else:
                traffic.dropped += leg.copies

    def _lets_in(self, traffic: Traffic, copies: int) -> bool:
        """Whether so many copies more may be on their way; where there are too many, only of who had less than others,
        so that a flood on one resource keeps nobody else's messages out."""
        if self.on_the_way >= MOST_ON_THE_WAY and traffic.let_in * max(1, self._busy) >= self._let_in:
            return False
        self._busy += not traffic.let_in
        traffic.let_in += copies
        self._let_in += copies
        return True

    def _carry_on(
        self, state: broker.State, channels: Mapping[int, Channel], switch: int, in_port: int, frame: bytes
    ) -> None:
        if self.on_the_way:
            self.on_the_way -= 1
        kind = (switch, in_port, frame[:6], frame[30:34])
        onward = self.onward.get(kind)
        if onward is None:
            if len(self.onward) >= MOST_PLANS:
                self.onward.clear()
            onward = self.onward[kind] = self._planned_onward(state, channels, kind)
        traffic = onward.by_source.get(frame[26:30], onward.traffic) if onward.by_source else onward.traffic
        if onward.allowance is not None and not onward.allowance.take():
            dropped = OVER_LIMIT
        elif onward.leg is None:
            dropped = onward.dropped
        elif onward.leg.send(frame):
            self._written.add(onward.leg.channel)
            self.on_the_way += onward.leg.asked
            if traffic is not None:
                traffic.delivered += onward.leg.delivered
            return
        else:
            dropped = ""  # the channel counts what it does not send
        if traffic is not None:
            traffic.dropped += 1
        if dropped:
            self.drops[dropped] += 1

    def _planned(self, state: broker.State, channels: Mapping[int, Channel], kind: _Kind) -> _Plan:
        switch, in_port, sender, target = kind
        address = str(IPv4Address(target)) if len(target) == 4 else ""
        found = broker.handed_out(state, Port(switch, in_port), address, mac_text(sender))
        if isinstance(found, str):
            return _Plan(dropped=found)
        self._look(state)
        is_told_apart = state.directory[address].source is Source.RESOURCE
        together: dict[int, list[Handout]] = {}
        unreachable = found.unreachable
        for one in found.sent:
            if one.switch in channels:
                together.setdefault(one.switch, []).append(one)
            else:
                unreachable += len(one.subscribers)
        legs = tuple(
            self._leg(channels[other], in_port if other == switch else CONTROLLER, handouts, is_told_apart)
            for other, handouts in together.items()
        )
        traffic = self.traffic.setdefault(address, Traffic())
        asked = sum(leg.asked for leg in legs)
        return _Plan(legs, asked, unreachable, traffic, self._allowance(state, switch, address))

    def _leg(self, channel: Channel, in_port: int, handouts: list[Handout], is_told_apart: bool) -> _Leg:
        actions = tuple(action_bytes(one.actions) for one in handouts)
        copies = sum(len(one.subscribers) for one in handouts)
        further = [mac for one in handouts if not one.is_last for mac in one.subscribers]
        asked = [mac for mac in further if mac not in self._known_to_switches]
        # Who gets copies of several resources is not told apart at its own switch: they count where they are made.
        later = [mac for mac in asked if is_told_apart or mac not in (self._shared or ())]
        return _Leg(channel, actions, in_port, copies, copies - len(later), len(asked))

    def _planned_onward(self, state: broker.State, channels: Mapping[int, Channel], kind: _Kind) -> _Onward:
        switch, in_port, receiver, target = kind
        mac, ipv4 = mac_text(receiver), str(IPv4Address(target)) if len(target) == 4 else ""
        found = broker.carried_on(state, Port(switch, in_port), mac, ipv4)
        leg = None
        if not isinstance(found, str) and switch in channels:
            last, asked = int(found.is_last), int(not found.is_last)
            leg = _Leg(channels[switch], (action_bytes(found.actions),), CONTROLLER, 1, last, asked)
        self._look(state)
        mine = [one for one in state.resources() if one.mode is Mode.REACTIVE and mac in one.subscribers]
        by_source = {
            IPv4Address(one.address).packed: self.traffic.setdefault(one.address, Traffic())
            for one in mine
            if one.source is Source.RESOURCE
        }
        others = [one.address for one in mine if one.source is Source.PUBLISHER]
        traffic = self.traffic.setdefault(others[0], Traffic()) if len(others) == 1 else None
        dropped = found if isinstance(found, str) else ""
        return _Onward(leg, dropped, by_source, traffic, self._allowance(state, switch, ""))

    def _look(self, state: broker.State) -> None:
        """Who gets copies of several reactive resources that look alike, and whom switches know by group mode."""
        if self._shared is None:
            alike = (one for one in state.resources() if one.mode is Mode.REACTIVE and one.source is Source.PUBLISHER)
            counted = Counter(mac for one in alike for mac in one.subscribers)
            self._shared = frozenset(mac for mac, count in counted.items() if count > 1)
            groups = (one for one in state.resources() if one.mode is Mode.GROUP)
            self._known_to_switches = frozenset(mac for one in groups for mac in one.subscribers)

    def _allowance(self, state: broker.State, switch: int, address: str) -> Allowance | None:
        """Of a resource; without an address, of copies on their way."""
        if state.skills.get(switch, broker.Skills()).meters or not state.reactive_per_s:
            return None
        per_s = state.reactive_per_s if address else IN_TRANSIT.packets_per_s
        return self._allowances.setdefault((switch, address), Allowance(per_s, burst_of(per_s)))
