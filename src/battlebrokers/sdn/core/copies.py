"""Where the copies of a message go: for one resource, on every switch. Pure; asked by the rules and by the broker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from battlebrokers.sdn.core.addresses import VIRTUAL_MAC
from battlebrokers.sdn.core.frames import IPV4_TYPE
from battlebrokers.sdn.core.instructions import Actions, Match, Output, Rewrite, Rule
from battlebrokers.sdn.core.network import Forest, Network, Port, Tree
from battlebrokers.sdn.core.resources import Mode, Resource, Source


@dataclass(frozen=True, slots=True)
class Handout:
    """One frame the controller sends: at which switch, what becomes of it there, and for whom."""

    switch: int
    actions: Actions
    subscribers: tuple[str, ...]
    """MAC addresses, a copy for each."""
    is_last: bool = True
    """The copies leave the network there; else the next switch asks what to do with them."""


@dataclass(frozen=True, slots=True)
class Handouts:
    """All that is sent for one message."""

    sent: tuple[Handout, ...]
    unreachable: int = 0
    """Copies for which there is no way."""


class Copies:
    """One resource's copies. Subscribers nobody has seen yet get theirs once they are seen.

    `forest` is the network's; only tree mode needs it.
    """

    def __init__(self, resource: Resource, network: Network, forest: Forest = ()) -> None:
        self._resource = resource
        self._network = network
        self._seen = [
            (mac, ipv4, network.hosts[mac].port)
            for mac, ipv4 in resource.subscribers.items()
            if mac in network.hosts and network.is_up(network.hosts[mac].port)
        ]
        self._forward = _relays(forest, {port.switch for *_, port in self._seen}) if resource.mode is Mode.TREE else {}
        self._ways: dict[int, dict[int, Port]] = {}

    def buckets(self, switch: int) -> tuple[Actions, ...]:
        """What the resource's group on this switch does; in the order of subscription."""
        if self._resource.mode is Mode.GROUP:
            legs = ((mac, ipv4, self._towards(switch, port)) for mac, ipv4, port in self._seen)
            return tuple((*self._rewritten(mac, ipv4), Output(leg)) for mac, ipv4, leg in legs if leg is not None)
        local = [
            (*self._rewritten(mac, ipv4), Output(port.number))
            for mac, ipv4, port in self._seen
            if port.switch == switch
        ]
        relayed: list[Actions] = [(Output(number),) for number in self._forward.get(switch, ())]
        return (*local, *relayed)

    def transit_rules(self, switch: int, table: int) -> Iterator[Rule]:
        """How copies made elsewhere find their subscriber."""
        for mac, ipv4, port in self._seen:
            leg = self._towards(switch, port)
            if leg is not None:
                match = Match(eth_dst=mac, eth_type=IPV4_TYPE, ipv4_dst=ipv4)
                yield Rule(table, 10, match, (Output(leg),))

    def handed_out(self, switch: int) -> Handouts:
        """What the controller sends for a message that came in at this switch."""
        return self._at_first_switch(switch) if self._resource.mode is Mode.REACTIVE else self._at_last_switches()

    def _at_first_switch(self, switch: int) -> Handouts:
        legs = [(mac, ipv4, port, self._towards(switch, port)) for mac, ipv4, port in self._seen]
        sent = tuple(
            Handout(switch, (*self._rewritten(mac, ipv4), Output(leg)), (mac,), is_last=port.switch == switch)
            for mac, ipv4, port, leg in legs
            if leg is not None
        )
        return Handouts(sent, len(legs) - len(sent))

    def _at_last_switches(self) -> Handouts:
        """One frame for each switch, whose actions give all of its subscribers their copy; nothing crosses a link."""
        sent: dict[int, Handout] = {}
        for mac, ipv4, port in self._seen:
            before = sent.get(port.switch, Handout(port.switch, (), ()))
            actions = (*self._rewritten(mac, ipv4, first=not before.actions), Output(port.number))
            sent[port.switch] = Handout(port.switch, (*before.actions, *actions), (*before.subscribers, mac))
        return Handouts(tuple(sent.values()))

    def _towards(self, switch: int, port: Port) -> int | None:
        if switch == port.switch:
            return port.number
        if port.switch not in self._ways:
            self._ways[port.switch] = self._network.ways_to(port.switch)
        way = self._ways[port.switch].get(switch)
        return way.number if way else None

    def _rewritten(self, mac: str, ipv4: str, *, first: bool = True) -> Actions:
        addressed = (Rewrite("eth_dst", mac), Rewrite("ipv4_dst", ipv4))
        if self._resource.source is Source.PUBLISHER or not first:
            return addressed
        return (Rewrite("eth_src", VIRTUAL_MAC), Rewrite("ipv4_src", self._resource.address), *addressed)


def _relays(forest: Forest, wanting: set[int]) -> dict[int, list[int]]:
    """Switch → the ports of its tree behind which somebody wants a copy.

    Who subscribes only prunes the trees: switches change one after the other, and as long as some follow the old
    subscriptions and some the new, nothing runs in circles and nobody who stays misses a message or gets it twice.
    """
    relays: dict[int, list[int]] = {}
    for tree in forest:
        if wanting & set(tree):
            for switch, neighbours in tree.items():
                ports = [port.number for other, port in neighbours.items() if _any_behind(tree, switch, other, wanting)]
                relays[switch] = sorted(ports)
    return relays


def _any_behind(tree: Tree, switch: int, other: int, wanting: set[int]) -> bool:
    seen, waiting = {switch}, [other]
    while waiting:
        one = waiting.pop()
        if one in wanting:
            return True
        seen.add(one)
        waiting += [further for further in tree[one] if further not in seen]
    return False
