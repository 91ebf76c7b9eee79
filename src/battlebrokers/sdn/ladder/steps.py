"""From what was seen to the ladder: who handed the message to whom, when, and what was changed on the way. Pure.

Frames and OpenFlow messages are joined by the mark in the message's payload. A cable between switches is captured at
both ends: the end that saw a frame first has sent it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from typing import Final, Literal, NamedTuple

from battlebrokers.sdn.core.frames import IPV4_TYPE, Arp, frame_type, mac_text, read_arp
from battlebrokers.sdn.core.instructions import THROUGH_TABLES
from battlebrokers.sdn.ladder.conversation import PacketIn, PacketOut, packet_in, packet_out, switches_of
from battlebrokers.sdn.ladder.facts import CONTROLLER, Facts, HostCable, WireEnd
from battlebrokers.sdn.ladder.sightings import Seen, Sighting, Unread

_UDP: Final = 17
_UDP_PAYLOAD_AT: Final = 8
_UNKNOWN_SWITCH: Final = "a switch"

Kind = Literal["udp", "arp", "packet_in", "packet_out"]


class Addresses(NamedTuple):
    """Whom a datagram names."""

    eth_src: str
    eth_dst: str
    ipv4_src: str
    ipv4_dst: str


@dataclass(frozen=True, slots=True)
class Step:
    """One arrow of the ladder."""

    time_ns: int
    sender: str
    receiver: str
    kind: Kind
    what: str
    note: str = ""
    """What the sender changed, or was told to change."""
    addresses: Addresses | None = None


@dataclass(frozen=True, slots=True)
class Lifeline:
    """One vertical line of the ladder."""

    name: str
    kind: Literal["host", "switch", "controller"]
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Ladder:
    """The way of one message; times count from its first step."""

    facts: Facts
    lifelines: tuple[Lifeline, ...]
    steps: tuple[Step, ...]
    missing: tuple[str, ...]
    """Subscribers whose copy was not seen."""
    unread: Unread


def build(facts: Facts, seen: Seen) -> Ladder:
    """The ladder of the message these facts name."""
    mark = facts.mark.encode()
    marked = [one for one in seen.sightings if _addresses(one.frame, mark) is not None]
    steps = [*_on_host_cables(facts, marked, mark), *_between_switches(marked, mark)]
    first_ns = min((step.time_ns for step in steps), default=None)
    steps += _questions(facts, seen.sightings, first_ns)
    steps += _with_controller(facts, seen, mark, first_ns)
    steps.sort(key=lambda step: step.time_ns)
    steps = list(_annotated(steps))
    began_ns = steps[0].time_ns if steps else 0
    got = {step.receiver for step in steps if step.kind == "udp"}
    return Ladder(
        facts=facts,
        lifelines=tuple(_lifelines(facts, steps)),
        steps=tuple(replace(step, time_ns=step.time_ns - began_ns) for step in steps),
        missing=tuple(name for name in facts.subscribers if name not in got),
        unread=seen.unread,
    )


def _addresses(frame: bytes, mark: bytes) -> Addresses | None:
    """Of a datagram that carries the mark; None for everything else."""
    if frame_type(frame) != IPV4_TYPE or len(frame) < 34 or frame[14] >> 4 != 4 or frame[23] != _UDP:
        return None
    if mark not in frame[14 + (frame[14] & 0x0F) * 4 + _UDP_PAYLOAD_AT :]:
        return None
    return Addresses(
        mac_text(frame[6:12]), mac_text(frame[:6]), str(IPv4Address(frame[26:30])), str(IPv4Address(frame[30:34]))
    )


def _datagram(time_ns: int, sender: str, receiver: str, named: Addresses) -> Step:
    return Step(
        time_ns, sender, receiver, "udp", f"UDP {named.ipv4_src} → {named.ipv4_dst}", addresses=named
    )  # fmt: skip


def _on_host_cables(facts: Facts, marked: Iterable[Sighting], mark: bytes) -> Iterator[Step]:
    for one in marked:
        named = _addresses(one.frame, mark)
        if isinstance(one.place, HostCable) and named is not None:
            yield _datagram(one.time_ns, *_direction(facts, one.place, named.eth_dst), named)


def _direction(facts: Facts, cable: HostCable, eth_dst: str) -> tuple[str, str]:
    """Nothing is ever flooded: what reaches a host names it, everything else comes from it."""
    to_host = eth_dst == facts.hosts[cable.host].mac
    return (cable.switch, cable.host) if to_host else (cable.host, cable.switch)


def _between_switches(marked: Iterable[Sighting], mark: bytes) -> Iterator[Step]:
    """A frame seen at both ends of a cable is one step."""
    passed: defaultdict[tuple[int, bytes], list[Sighting]] = defaultdict(list)
    for one in marked:
        if isinstance(one.place, WireEnd):
            passed[one.place.cable, one.frame].append(one)
    for (_, frame), found in passed.items():
        named = _addresses(frame, mark)
        waiting: list[Sighting] = []
        for one in found:
            other = next((earlier for earlier in waiting if earlier.place != one.place), None)
            if other is None:
                waiting.append(one)
            else:
                waiting.remove(other)
                yield from _crossing(other, named)
        for alone in waiting:
            yield from _crossing(alone, named)


def _crossing(earlier: Sighting, named: Addresses | None) -> Iterator[Step]:
    if isinstance(earlier.place, WireEnd) and named is not None:
        yield _datagram(earlier.time_ns, earlier.place.switch, earlier.place.other, named)


def _questions(facts: Facts, sightings: Iterable[Sighting], before_ns: int | None) -> Iterator[Step]:
    """The publisher asks who has the resource's address, before it sends."""
    for one in sightings:
        if not isinstance(one.place, HostCable) or one.place.host != facts.publisher:
            continue
        arp = read_arp(one.frame)
        if arp is not None and _is_ours(facts, arp) and (before_ns is None or one.time_ns <= before_ns):
            sender, receiver = _direction(facts, one.place, mac_text(one.frame[:6]))
            yield Step(one.time_ns, sender, receiver, "arp", _said(arp))


def _is_ours(facts: Facts, arp: Arp) -> bool:
    asks = arp.op == 1 and arp.target_ipv4 == facts.resource
    own = facts.hosts[facts.publisher].ipv4
    return (asks and arp.sender_ipv4 == own) or (arp.op == 2 and arp.sender_ipv4 == facts.resource)


def _said(arp: Arp) -> str:
    if arp.op == 1:
        return f"ARP who has {arp.target_ipv4}?"
    return f"ARP {arp.sender_ipv4} is at {arp.sender_mac}"


def _with_controller(facts: Facts, seen: Seen, mark: bytes, before_ns: int | None) -> Iterator[Step]:
    numbers = switches_of(seen.told)
    names = {number: name for name, number in facts.switches.items()}
    first = next(
        (place.switch for listed in facts.files.values() for place in listed
         if isinstance(place, HostCable) and place.host == facts.publisher), _UNKNOWN_SWITCH,
    )  # fmt: skip
    for one in seen.told:
        asked = packet_in(one.raw) if one.to_controller else None
        ordered = packet_out(one.raw) if not one.to_controller else None
        carried = asked or ordered
        if carried is None or not _belongs(facts, carried.frame, mark, one.time_ns, before_ns):
            continue
        switch = names.get(numbers.get(one.switch_port, -1), "")
        if asked is not None:
            # Only the publisher's switch asks about what is not rewritten yet, so it is known even when the
            # conversation does not tell.
            here = first if _is_from_publisher(facts, asked.frame, mark) else _UNKNOWN_SWITCH
            yield Step(one.time_ns, switch or here, CONTROLLER, "packet_in", _asked(asked))
        elif ordered is not None:
            note = _rewriting(ordered)
            yield Step(one.time_ns, CONTROLLER, switch or _UNKNOWN_SWITCH, "packet_out", _ordered(ordered), note)


def _is_from_publisher(facts: Facts, frame: bytes, mark: bytes) -> bool:
    named = _addresses(frame, mark)
    return named is None or named.ipv4_dst == facts.resource


def _belongs(facts: Facts, frame: bytes, mark: bytes, time_ns: int, before_ns: int | None) -> bool:
    if _addresses(frame, mark) is not None:
        return True
    arp = read_arp(frame)
    return arp is not None and _is_ours(facts, arp) and (before_ns is None or time_ns <= before_ns)


def _asked(asked: PacketIn) -> str:
    buffer = "no buffer" if asked.buffer is None else f"buffer {asked.buffer:#x}"
    carried = " ARP" if read_arp(asked.frame) else ""
    return f"PACKET_IN{carried} port {asked.in_port}, {buffer}, {len(asked.frame)} B"


def _ordered(ordered: PacketOut) -> str:
    carried = " ARP" if read_arp(ordered.frame) else ""
    if ordered.outputs == (THROUGH_TABLES,):
        return f"PACKET_OUT{carried} through the tables, {len(ordered.frame)} B"
    count = len(ordered.outputs)
    return f"PACKET_OUT{carried} {count} {'output' if count == 1 else 'outputs'}, {len(ordered.frame)} B"


def _rewriting(ordered: PacketOut) -> str:
    addresses = {what: [to for field, to in ordered.rewritten if field == what] for what in ("ipv4_src", "ipv4_dst")}
    told = []
    if addresses["ipv4_src"]:
        told.append(f"from {', '.join(addresses['ipv4_src'])}")
    if addresses["ipv4_dst"]:
        told.append(f"to {', '.join(addresses['ipv4_dst'])}")
    return f"rewrite {' '.join(told)}" if told else ""


def _annotated(steps: list[Step]) -> Iterator[Step]:
    """Each datagram that its sender did not get like that says what was changed."""
    held: defaultdict[str, list[Addresses]] = defaultdict(list)
    original: Addresses | None = None
    for step in steps:
        named = step.addresses
        if named is None:
            yield step
            continue
        if original is None:
            original = named
        changed = named != original and named not in held[step.sender]
        yield replace(step, note=_changes(original, named)) if changed else step
        held[step.receiver].append(named)


def _changes(before: Addresses, after: Addresses) -> str:
    changes = []
    for word, ipv4, mac in (("source", "ipv4_src", "eth_src"), ("destination", "ipv4_dst", "eth_dst")):
        if getattr(before, ipv4) != getattr(after, ipv4) or getattr(before, mac) != getattr(after, mac):
            changes.append(f"{word} {getattr(after, ipv4)} {getattr(after, mac)}")
    return f"rewritten: {', '.join(changes)}"


def _lifelines(facts: Facts, steps: Iterable[Step]) -> Iterator[Lifeline]:
    """Publisher, its switch, the controller, further switches, subscribers."""
    named = dict.fromkeys(name for step in steps for name in (step.sender, step.receiver))
    hosts = [name for name in facts.hosts if name in named and name != facts.publisher]
    switches = [name for name in named if name not in facts.hosts and name != CONTROLLER]
    near = [
        place.switch for listed in facts.files.values() for place in listed
        if isinstance(place, HostCable) and place.host == facts.publisher and place.switch in named
    ][:1]  # fmt: skip
    further = sorted(
        (name for name in switches if name not in near), key=lambda name: facts.switches.get(name, 1 << 64)
    )
    if facts.publisher in named:
        yield Lifeline(facts.publisher, "host", facts.hosts[facts.publisher].ipv4)
    for name in near:
        yield Lifeline(name, "switch")
    if CONTROLLER in named:
        yield Lifeline(CONTROLLER, "controller")
    for name in further:
        yield Lifeline(name, "switch")
    for name in hosts:
        yield Lifeline(name, "host", facts.hosts[name].ipv4)
