"""What every switch should know, given the resources and the network. Pure; the heart of the broker.

Called by the broker after each change. Whatever no rule names is dropped in the switch: nothing is ever flooded, so
loops in the network do no harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from battlebrokers.sdn.core.addresses import VIRTUAL_MAC
from battlebrokers.sdn.core.copies import Copies
from battlebrokers.sdn.core.frames import ARP_TYPE, IPV4_TYPE, LLDP_TYPE
from battlebrokers.sdn.core.instructions import (
    CONTROLLER,
    AnswerArp,
    Group,
    Match,
    Meter,
    Output,
    Rule,
    Tables,
    ToGroup,
)
from battlebrokers.sdn.core.network import Host, Network
from battlebrokers.sdn.core.resources import Directory, Mode, Resource

CLASSIFY: Final = 0
TRANSIT: Final = 1
PUBLISH: Final = 2
ARP: Final = 3

UDP: Final = 17

FRAGMENT: Final = "fragment"
FORGED_LINK: Final = "forged link"
SPOOFED: Final = "spoofed source"
HOST_TO_HOST: Final = "host to host"
NOT_UDP: Final = "not UDP"
OWN_RESOURCE: Final = "own resource"
UNKNOWN_RESOURCE: Final = "unknown resource"
ASTRAY: Final = "astray between switches"
ARP_FOR_NOBODY: Final = "ARP for no resource"
OVER_LIMIT: Final = "over the limit"
OTHER: Final = "other"
DROPS: Final = (
    FRAGMENT, FORGED_LINK, SPOOFED, HOST_TO_HOST, NOT_UDP, OWN_RESOURCE, UNKNOWN_RESOURCE, ASTRAY, ARP_FOR_NOBODY,
    OVER_LIMIT, OTHER,
)  # fmt: skip
"""Why a switch drops a frame; each has rules of its own, so each is counted."""
PUBLISHED: Final = "published"

QUESTIONS: Final = Meter(1, packets_per_s=2000, burst_packets=400)
"""How often ARP and link discovery may bother the controller, per switch: a flood costs it no more than this."""
REACTIVE_PER_S: Final = 50_000
"""How many messages of one resource a switch may hand to the controller in a second: more than it can copy."""


def burst_of(per_s: int) -> int:
    """How many messages may come at once where so many may come in a second."""
    return max(1, per_s // 2)


IN_TRANSIT: Final = Meter(2, packets_per_s=REACTIVE_PER_S, burst_packets=burst_of(REACTIVE_PER_S))
"""How often copies between switches may bother the controller, per switch. Resources are limited where their messages
come in; this is for what somebody else lets in between switches."""


def wanted_tables(
    directory: Directory, network: Network, answers_arp: Mapping[int, bool], *, metered: Mapping[int, bool],
    reactive_per_s: int = REACTIVE_PER_S,
) -> dict[int, Tables]:  # fmt: skip
    """The tables of every connected switch.

    A switch that can answer ARP itself does so for hosts that are known; the controller does it for all others. A
    resource about whose messages switches ask has a meter of its own, so that a flood on one does not keep others from
    being served; `reactive_per_s` of 0 is none.
    """
    in_trees = any(resource.mode is Mode.TREE for resource in directory.resources.values())
    forest = network.forest() if in_trees else ()
    copies = {resource.address: Copies(resource, network, forest) for resource in directory.resources.values()}
    meters = _meters(directory, reactive_per_s)
    return {
        switch: _tables(switch, directory, network, copies, answers_arp[switch], meters if metered[switch] else {})
        for switch in network.ports
    }


def _tables(
    switch: int, directory: Directory, network: Network, copies: Mapping[str, Copies], answers_arp: bool,
    meters: dict[int, Meter],
) -> Tables:  # fmt: skip
    meter = QUESTIONS.id if QUESTIONS.id in meters else None
    rules = [*_classified(switch, network, meter)]
    groups: dict[int, Group] = {}
    for resource in directory.resources.values():
        rules += _published(switch, resource, network, meters)
        rules.append(_asked(resource.address, meter, answers_arp))
        made = copies[resource.address]
        if not resource.mode.asks:
            groups[resource.id] = Group(resource.id, made.buckets(switch))
        if resource.mode is Mode.TREE:
            rules.append(Rule(TRANSIT, 10, _to_resource(resource.address), (ToGroup(resource.id),)))
        elif resource.mode is Mode.GROUP:
            rules += made.transit_rules(switch, TRANSIT)
    if _any_reactive(directory):
        rules += _in_transit(meters)
    rules += [
        Rule(TRANSIT, 0, Match(), purpose=ASTRAY),
        Rule(PUBLISH, 0, Match(), purpose=UNKNOWN_RESOURCE),
        Rule(ARP, 0, Match(), purpose=ARP_FOR_NOBODY),
    ]
    return Tables({rule.key: rule for rule in rules}, groups, meters)


def _to_resource(address: str, in_port: int | None = None, eth_src: str | None = None) -> Match:
    return Match(in_port, eth_src, VIRTUAL_MAC, IPV4_TYPE, ipv4_dst=address)


def _classified(switch: int, network: Network, meter: int | None) -> Iterator[Rule]:
    """Table 0: who speaks, and may they?"""
    ask = (Output(CONTROLLER),)
    yield Rule(CLASSIFY, 100, Match(eth_type=LLDP_TYPE), ask, meter=meter)
    yield Rule(CLASSIFY, 95, Match(eth_type=IPV4_TYPE, fragment=True), purpose=FRAGMENT)
    for end in network.links:
        if end.switch == switch:
            yield Rule(CLASSIFY, 90, Match(in_port=end.number), goto=TRANSIT)
    for host in network.hosts.values():
        if not network.is_up(host.port):
            yield from _missed(host)
            continue
        if host.port.switch == switch and host.port not in network.links:
            yield from _known(host)
        yield from _claimed(host)
    yield Rule(CLASSIFY, 60, Match(eth_type=ARP_TYPE), ask, meter=meter)
    yield Rule(CLASSIFY, 50, Match(eth_dst=VIRTUAL_MAC, eth_type=IPV4_TYPE, ip_proto=UDP), goto=PUBLISH)
    yield Rule(CLASSIFY, 45, Match(eth_dst=VIRTUAL_MAC, eth_type=IPV4_TYPE), purpose=NOT_UDP)
    yield Rule(CLASSIFY, 10, Match(eth_type=IPV4_TYPE), purpose=HOST_TO_HOST)
    yield Rule(CLASSIFY, 0, Match(), purpose=OTHER)


def _known(host: Host) -> Iterator[Rule]:
    """A port whose host is known: this host and no other speaks there."""
    port, mac, ipv4 = host.port.number, host.mac, host.ipv4
    yield Rule(CLASSIFY, 105, Match(in_port=port, eth_type=LLDP_TYPE), purpose=FORGED_LINK)
    itself = Match(port, mac, VIRTUAL_MAC, IPV4_TYPE, UDP, ipv4)
    yield Rule(CLASSIFY, 80, itself, goto=PUBLISH)
    yield Rule(CLASSIFY, 80, Match(port, mac, eth_type=ARP_TYPE, arp_spa=ipv4, arp_sha=mac), goto=ARP)
    yield Rule(CLASSIFY, 76, Match(port, mac, VIRTUAL_MAC, IPV4_TYPE, ipv4_src=ipv4), purpose=NOT_UDP)
    yield Rule(CLASSIFY, 75, Match(port, mac, eth_type=IPV4_TYPE, ipv4_src=ipv4), purpose=HOST_TO_HOST)
    yield Rule(CLASSIFY, 70, Match(in_port=port), purpose=SPOOFED)


def _claimed(host: Host) -> Iterator[Rule]:
    """Addresses that are taken: nobody else may use them, at any port of any switch."""
    yield Rule(CLASSIFY, 65, Match(eth_src=host.mac), purpose=SPOOFED)
    yield Rule(CLASSIFY, 65, Match(eth_type=IPV4_TYPE, ipv4_src=host.ipv4), purpose=SPOOFED)
    yield Rule(CLASSIFY, 65, Match(eth_type=ARP_TYPE, arp_spa=host.ipv4), purpose=SPOOFED)


def _missed(host: Host) -> Iterator[Rule]:
    """The switch of this host is away: it may show itself elsewhere by ARP, and is believed there. Until then its
    messages are taken for what the switch sends on, which nobody but a switch may."""
    yield Rule(CLASSIFY, 65, Match(eth_src=host.mac, eth_type=IPV4_TYPE), purpose=SPOOFED)
    yield Rule(CLASSIFY, 65, Match(eth_type=IPV4_TYPE, ipv4_src=host.ipv4), purpose=SPOOFED)


def _any_reactive(directory: Directory) -> bool:
    return any(resource.mode is Mode.REACTIVE for resource in directory.resources.values())


def _in_transit(meters: Mapping[int, Meter]) -> Iterator[Rule]:
    """Table 1: copies of reactive mode, which no rule knows. What is still for a resource is none of them."""
    yield Rule(TRANSIT, 6, Match(eth_dst=VIRTUAL_MAC), purpose=ASTRAY)
    meter = IN_TRANSIT.id if IN_TRANSIT.id in meters else None
    yield Rule(TRANSIT, 5, Match(eth_type=IPV4_TYPE, ip_proto=UDP), (Output(CONTROLLER),), meter=meter)


def _meters(directory: Directory, reactive_per_s: int) -> dict[int, Meter]:
    meters = [QUESTIONS]
    if reactive_per_s:
        meters += [IN_TRANSIT] if _any_reactive(directory) else []
        limited = [one for one in directory.resources.values() if one.mode.asks]
        meters += [Meter(meter_of(one), reactive_per_s, burst_of(reactive_per_s)) for one in limited]
    return {meter.id: meter for meter in meters}


def meter_of(resource: Resource) -> int:
    """The number of the meter that limits what a resource asks the controller."""
    return IN_TRANSIT.id + resource.id


def _published(switch: int, resource: Resource, network: Network, meters: Mapping[int, Meter]) -> Iterator[Rule]:
    """Table 2: on what may they publish, and what happens then?"""
    own = f"{OWN_RESOURCE} {resource.address}"
    for mac in resource.subscribers:
        host = network.hosts.get(mac)
        if host is None or not network.is_up(host.port):
            # Nobody knows where it is: it is held back by its address, wherever it speaks.
            yield Rule(PUBLISH, 20, _to_resource(resource.address, eth_src=mac), purpose=own)
        elif host.port.switch == switch:
            # By port, not by address: addresses can be forged.
            yield Rule(PUBLISH, 20, _to_resource(resource.address, host.port.number), purpose=own)
    action = Output(CONTROLLER) if resource.mode.asks else ToGroup(resource.id)
    meter = meter_of(resource) if meter_of(resource) in meters else None
    purpose = f"{PUBLISHED} {resource.address}"
    yield Rule(PUBLISH, 10, _to_resource(resource.address), (action,), meter=meter, purpose=purpose)


def _asked(address: str, meter: int | None, answers_arp: bool) -> Rule:
    """Table 3: who has this address? The virtual MAC address has."""
    match = Match(eth_type=ARP_TYPE, arp_op=1, arp_tpa=address)
    if answers_arp:
        return Rule(ARP, 10, match, (AnswerArp(address),))
    return Rule(ARP, 10, match, (Output(CONTROLLER),), meter=meter)
