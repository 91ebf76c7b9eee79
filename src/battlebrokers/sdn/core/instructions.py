"""What a switch can be told: rules, groups and packets to send, as values that know nothing of bytes.

Made by the rules and the broker; the shell turns them into OpenFlow 1.3, the fake switch obeys them as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

CONTROLLER: Final = 0xFFFFFFFD
THROUGH_TABLES: Final = 0xFFFFFFF9
"""Treat it as if it had just come in; only for frames the controller sends."""
IN_PORT: Final = 0xFFFFFFF8
"""Back where it came from: an output names it or it never happens."""


@dataclass(frozen=True, slots=True)
class Match:
    """Which frames; what is None does not matter."""

    in_port: int | None = None
    eth_src: str | None = None
    eth_dst: str | None = None
    eth_type: int | None = None
    ip_proto: int | None = None
    ipv4_src: str | None = None
    ipv4_dst: str | None = None
    fragment: bool | None = None
    """A piece of a larger datagram; the switches' own word for it is not in OpenFlow 1.3 but in Open vSwitch."""
    arp_op: int | None = None
    arp_spa: str | None = None
    arp_tpa: str | None = None
    arp_sha: str | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """Send it out of a port."""

    port: int


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Change an address; `what` is a field of `Match`."""

    what: str
    to: str


@dataclass(frozen=True, slots=True)
class ToGroup:
    """Hand it to a group of this switch."""

    group: int


@dataclass(frozen=True, slots=True)
class AnswerArp:
    """Turn an ARP request into its answer and send it back: the address belongs to the virtual MAC address."""

    address: str


Action = Output | Rewrite | ToGroup | AnswerArp
Actions = tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of a table; of those that match, the one with the highest priority counts."""

    table: int
    priority: int
    match: Match
    actions: Actions = ()
    goto: int | None = None
    meter: int | None = None
    """The limit of how often this may bother the controller."""
    purpose: str = field(default="", compare=False)
    """What it counts: a kind of drop, or `published 1.1.1.1`."""

    @property
    def key(self) -> tuple[int, int, Match]:
        """Two rules with one key cannot stand beside each other."""
        return self.table, self.priority, self.match


@dataclass(frozen=True, slots=True)
class Group:
    """A copy for each bucket."""

    id: int
    buckets: tuple[Actions, ...]


@dataclass(frozen=True, slots=True)
class Meter:
    """At most so many packets a second."""

    id: int
    packets_per_s: int
    burst_packets: int


@dataclass(frozen=True, slots=True)
class Tables:
    """All a switch knows."""

    rules: dict[tuple[int, int, Match], Rule] = field(default_factory=dict)
    groups: dict[int, Group] = field(default_factory=dict)
    meters: dict[int, Meter] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PutRule:
    """Add a rule, or replace the one with its key."""

    rule: Rule


@dataclass(frozen=True, slots=True)
class DropRule:
    """Remove a rule."""

    rule: Rule


@dataclass(frozen=True, slots=True)
class PutGroup:
    """Add a group, or change the one with its number in place: no message in between is lost."""

    group: Group
    known: bool


@dataclass(frozen=True, slots=True)
class DropGroup:
    """Remove a group, and with it every rule that leads there."""

    id: int


@dataclass(frozen=True, slots=True)
class PutMeter:
    """Add a meter, or change the one with its number in place: removed, it would take its rules along."""

    meter: Meter
    known: bool = False


@dataclass(frozen=True, slots=True)
class DropMeter:
    """Remove a meter."""

    id: int


@dataclass(frozen=True, slots=True)
class Send:
    """Let a frame leave this switch as these actions say, as if it had come in at `in_port`."""

    actions: Actions
    frame: bytes
    in_port: int = CONTROLLER


Order = PutRule | DropRule | PutGroup | DropGroup | PutMeter | DropMeter | Send
Orders = dict[int, list[Order]]
"""Switch → what it is told, in this order."""
