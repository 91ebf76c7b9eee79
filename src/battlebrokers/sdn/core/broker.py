"""The broker's mind: something happened → its new state, and what the switches are told. Pure and without a clock.

The shell feeds it what came over sockets and carries out what it says; tests feed it by hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from battlebrokers.sdn.core.addresses import BROADCAST_MAC, VIRTUAL_MAC, is_resource
from battlebrokers.sdn.core.copies import Copies, Handout, Handouts
from battlebrokers.sdn.core.difference import difference
from battlebrokers.sdn.core.frames import (
    ARP_TYPE,
    LLDP_TYPE,
    Arp,
    Beacon,
    arp_answer,
    arp_question,
    beacon_frame,
    frame_type,
    mac_text,
    read_arp,
    read_beacon,
    resource_of,
)
from battlebrokers.sdn.core.instructions import CONTROLLER, Order, Orders, Output, Send, Tables
from battlebrokers.sdn.core.network import Host, Network, Port
from battlebrokers.sdn.core.resources import Directory, Mode, Resource
from battlebrokers.sdn.core.rules import (
    ASTRAY,
    FORGED_LINK,
    OTHER,
    OWN_RESOURCE,
    REACTIVE_PER_S,
    SPOOFED,
    UNKNOWN_RESOURCE,
    wanted_tables,
)

BEACON_LIFE_MS: Final = 3_000
"""A beacon that took longer was kept by somebody and is played again."""
_SOUGHT_AT_ONCE: Final = 16
LINK_LIFE_MS: Final = 10_000
"""A link whose beacons stopped coming is gone, even if both ports say they are up."""


@dataclass(frozen=True, slots=True)
class Skills:
    """What a switch can do beyond OpenFlow 1.3's necessities."""

    answers_arp: bool = False
    meters: bool = False


OPEN_VSWITCH: Final = Skills(answers_arp=True, meters=True)


@dataclass(frozen=True, slots=True)
class State:
    """All the broker knows."""

    secret: bytes
    """With it beacons are signed; whoever lacks it cannot invent a link."""
    directory: Directory = field(default_factory=Directory)
    network: Network = field(default_factory=Network)
    skills: dict[int, Skills] = field(default_factory=dict)
    known: dict[int, Tables] = field(default_factory=dict)
    """What each switch was told, or said of itself when it came."""
    link_seen_ms: dict[Port, int] = field(default_factory=dict)
    awaited: frozenset[int] = frozenset()
    """Switches of before that have not called again since a restart of ours. As long as there are any, nobody is told
    anything: rules made from half a network would undo what the other half needs."""
    reactive_per_s: int = REACTIVE_PER_S
    """The limit of each resource about whose messages switches ask, at each switch; 0 is none."""
    drops: dict[str, int] = field(default_factory=dict)
    """Frames that reached the controller and went no further, by kind."""

    def resources(self) -> Iterable[Resource]:
        """All there are."""
        return self.directory.resources.values()


Decision = tuple[State, Orders]


def switch_joined(
    state: State, switch: int, ports: frozenset[int], tables: Tables, skills: Skills, serial: str = ""
) -> Decision:
    """A switch came, with what it already knows: only what differs is changed, deliveries go on.

    What happened at its ports while it or we were away counts as if it happened now.
    """
    state = _without_replaced(state, switch, serial)
    came = replace(
        state,
        network=state.network.with_switch(switch, ports).without_hosts_down(switch).with_serial(switch, serial),
        skills=state.skills | {switch: skills},
        known=state.known | {switch: tables},
        awaited=state.awaited - {switch},
    )
    return settled(came)


def _without_replaced(state: State, switch: int, serial: str) -> State:
    """Another serial number: another switch, so hosts and links of the old one are forgotten.

    Switches of a lab share theirs: where the lab is another, those of the old one that are gone do not come back.
    """
    before = state.network.serials.get(switch, "")
    if before == serial:
        return state
    gone = {switch} | {
        other for other, one in state.network.serials.items() if before and one == before and other not in state.known
    }
    network = state.network
    for one in gone:
        network = network.with_other_switch(one)
    seen_ms = {end: at for end, at in state.link_seen_ms.items() if end.switch not in gone}
    return replace(state, network=network, link_seen_ms=seen_ms, awaited=state.awaited - gone)


def switch_left(state: State, switch: int) -> Decision:
    """A switch is gone, or no longer talks to us: ways are found around it."""
    known = {other: tables for other, tables in state.known.items() if other != switch}
    skills = {other: one for other, one in state.skills.items() if other != switch}
    seen_ms = {end: at for end, at in state.link_seen_ms.items() if end.switch != switch}
    network = state.network.without_switch(switch)
    return settled(replace(state, network=network, known=known, skills=skills, link_seen_ms=seen_ms))


def tables_read(state: State, switch: int, tables: Tables) -> Decision:
    """What a switch knows turned out to be this: it is told again what it lacks."""
    return settled(replace(state, known=state.known | {switch: tables}))


def switch_forgotten(state: State, switch: int) -> Decision:
    """Somebody says that a switch that is away will not come back: nothing is behind it any longer."""
    return settled(replace(state, network=state.network.with_other_switch(switch)))


def awaited_no_longer(state: State) -> Decision:
    """Whoever has not come back by now is gone."""
    network = state.network
    for switch in state.awaited:
        network = network.without_switch(switch)
    return settled(replace(state, network=network, awaited=frozenset()))


def ports_changed(state: State, switch: int, up: frozenset[int]) -> Decision:
    """Ports came or went. The host behind a port that went down is forgotten: it may turn up elsewhere."""
    return settled(replace(state, network=state.network.with_switch(switch, up).without_hosts_down(switch)))


def directory_changed(state: State, directory: Directory) -> Decision:
    """Resources or subscriptions are others now."""
    return settled(replace(state, directory=directory))


def host_forgotten(state: State, mac: str) -> Decision:
    """Somebody says that a host is no longer where it was."""
    return settled(replace(state, network=state.network.without_host(mac)))


def links_aged(state: State, now_ms: int) -> Decision:
    """Time passed: links without a sign of life are gone."""
    network = state.network
    for end, seen_ms in state.link_seen_ms.items():
        if now_ms - seen_ms > LINK_LIFE_MS and end in network.links:
            network = network.without_link(end)
    return settled(replace(state, network=network)) if network is not state.network else (state, {})


def beacons(state: State, now_ms: int) -> Orders:
    """A beacon out of every port where no host is known."""
    taken = {host.port for host in state.network.hosts.values()}
    orders: Orders = {}
    for switch, numbers in state.network.ports.items():
        for number in sorted(numbers):
            if Port(switch, number) not in taken:
                frame = beacon_frame(Beacon(switch, number, now_ms), state.secret)
                orders.setdefault(switch, []).append(Send((Output(number),), frame))
    return orders


def unseen(state: State) -> dict[str, str]:
    """Subscribers nobody has seen: MAC address → IPv4 address."""
    every = (one for resource in state.directory.resources.values() for one in resource.subscribers.items())
    return {mac: ipv4 for mac, ipv4 in every if mac not in state.network.hosts}


def searches(state: State, now_ms: int) -> Orders:
    """Questions for subscribers nobody has seen, where neither a host nor a link is known: a host that only listens
    shows itself by its answer. A few at a time, by turns."""
    sought = list(unseen(state).values())
    first = now_ms // 1000 * _SOUGHT_AT_ONCE % len(sought) if len(sought) > _SOUGHT_AT_ONCE else 0
    # From nobody: hosts answer, and remember nothing.
    frames = [
        arp_question(VIRTUAL_MAC, "0.0.0.0", ipv4, BROADCAST_MAC)  # noqa: S104 (an address in a frame)
        for ipv4 in (sought + sought)[first : first + min(len(sought), _SOUGHT_AT_ONCE)]
    ]
    taken = {host.port for host in state.network.hosts.values()} | set(state.network.links)
    orders: Orders = {}
    for switch, numbers in state.network.ports.items() if frames else ():
        for number in sorted(numbers):
            if Port(switch, number) not in taken:
                orders.setdefault(switch, []).extend(Send((Output(number),), frame) for frame in frames)
    return orders


def packet_came(state: State, at: Port, frame: bytes, now_ms: int) -> Decision:
    """A switch asks what to do with a frame."""
    kind = frame_type(frame)
    if kind == LLDP_TYPE:
        return _beacon_came(state, at, read_beacon(frame, state.secret), now_ms)
    if kind == ARP_TYPE:
        question = read_arp(frame)
        return _arp_came(state, at, question) if question else _dropped(state, OTHER)
    address = resource_of(frame)
    if address is None:
        return _dropped(state, OTHER)
    if mac_text(frame[:6]) == VIRTUAL_MAC:
        return _published(state, at, address, frame)
    return _in_transit(state, at, address, frame)


def settled(state: State) -> Decision:
    """Tell every switch what it should know and does not."""
    if state.awaited:
        return state, {}
    wanted = wanted_tables(
        state.directory,
        state.network,
        {switch: skills.answers_arp for switch, skills in state.skills.items()},
        metered={switch: skills.meters for switch, skills in state.skills.items()},
        reactive_per_s=state.reactive_per_s,
    )
    orders: Orders = {}
    for switch, tables in wanted.items():
        changes: list[Order] = difference(state.known.get(switch, Tables()), tables)
        if changes:
            orders[switch] = changes
    return replace(state, known=wanted), orders


def _beacon_came(state: State, at: Port, beacon: Beacon | None, now_ms: int) -> Decision:
    """A link is there when a beacon of ours crossed it just now, and no host lives at either end."""
    if beacon is None or not 0 <= now_ms - beacon.sent_ms <= BEACON_LIFE_MS:
        return _dropped(state, FORGED_LINK)
    sender = Port(beacon.switch, beacon.port)
    network = state.network
    ends_up = network.is_up(at) and network.is_up(sender)
    if sender == at or network.host_at(at) or network.host_at(sender) or not ends_up:
        return _dropped(state, FORGED_LINK)
    seen = replace(state, link_seen_ms=state.link_seen_ms | {at: now_ms, sender: now_ms})
    if network.links.get(at) == sender:
        return seen, {}
    return settled(replace(seen, network=network.with_link(at, sender)))


def _arp_came(state: State, at: Port, arp: Arp) -> Decision:
    """Somebody shows who it is, and may ask for a resource."""
    if not state.network.is_up(at) or at in state.network.links or arp.eth_src != arp.sender_mac or not _plausible(arp):
        return _dropped(state, SPOOFED)
    network = state.network
    host = Host(arp.sender_mac, arp.sender_ipv4, at)
    answer: list[Order] = []
    if arp.op == 1 and arp.target_ipv4 in state.directory.resources:
        answer = [Send((Output(at.number),), arp_answer(arp))]
    if network.hosts.get(host.mac) == host:
        return state, {at.switch: answer} if answer else {}
    # Somebody who claims what another has, or speaks where another lives, is turned away as long as that port is up.
    rivals = [
        other
        for other in network.hosts.values()
        if (other.mac == host.mac or other.ipv4 == host.ipv4 or other.port == at) and network.is_up(other.port)
    ]
    if rivals:
        return _dropped(state, SPOOFED)
    for other in list(network.hosts.values()):
        if other.mac == host.mac or other.ipv4 == host.ipv4 or other.port == at:
            network = network.without_host(other.mac)
    learned, orders = settled(replace(state, network=network.with_host(host)))
    if answer:
        orders.setdefault(at.switch, []).extend(answer)
    return learned, orders


def _plausible(arp: Arp) -> bool:
    first = int(arp.sender_mac[:2], 16)
    if first & 1 or arp.sender_mac in (VIRTUAL_MAC, "00:00:00:00:00:00"):
        return False
    return arp.sender_ipv4 != "0.0.0.0" and not is_resource(arp.sender_ipv4)  # noqa: S104 (an address in a frame)


def handed_out(state: State, at: Port, address: str, sender: str) -> Handouts | str:
    """What the controller sends for a message that came in at a port, or why it sends nothing.

    `sender` is the MAC address it came from.
    """
    resource = state.directory.resources.get(address)
    if at in state.network.links:
        return ASTRAY
    if resource is None or not resource.mode.asks:
        return UNKNOWN_RESOURCE
    host = state.network.host_at(at)
    if sender in resource.subscribers or (host is not None and host.mac in resource.subscribers):
        return OWN_RESOURCE
    return Copies(resource, state.network).handed_out(at.switch)


def carried_on(state: State, at: Port, mac: str, ipv4: str) -> Handout | str:
    """What the controller sends for a copy that came over a link, or why it sends nothing.

    Only copies of reactive mode come this far. The next switch is that of the network as it is now.
    """
    network, host = state.network, state.network.hosts.get(mac)
    wanted = any(one.mode is Mode.REACTIVE and one.subscribers.get(mac) == ipv4 for one in state.resources())
    if at not in network.links or not wanted or host is None or not network.is_up(host.port):
        return ASTRAY
    if host.port.switch == at.switch:
        return Handout(at.switch, (Output(host.port.number),), (mac,))
    way = network.ways_to(host.port.switch).get(at.switch)
    return ASTRAY if way is None else Handout(at.switch, (Output(way.number),), (mac,), is_last=False)


def _published(state: State, at: Port, address: str, frame: bytes) -> Decision:
    """A message on a resource about which switches ask: a copy for every subscriber."""
    copies = handed_out(state, at, address, mac_text(frame[6:12]))
    if isinstance(copies, str):
        return _dropped(state, copies)
    orders: Orders = {}
    for one in copies.sent:
        in_port = at.number if one.switch == at.switch else CONTROLLER
        orders.setdefault(one.switch, []).append(Send(one.actions, frame, in_port))
    return state, orders


def _in_transit(state: State, at: Port, ipv4: str, frame: bytes) -> Decision:
    """A copy on its way: one switch further."""
    copy = carried_on(state, at, mac_text(frame[:6]), ipv4)
    if isinstance(copy, str):
        return _dropped(state, copy)
    # As if it came from us: after a change its way may lead back where it came from.
    return state, {at.switch: [Send(copy.actions, frame)]}


def _dropped(state: State, kind: str) -> Decision:
    return replace(state, drops=state.drops | {kind: state.drops.get(kind, 0) + 1}), {}
