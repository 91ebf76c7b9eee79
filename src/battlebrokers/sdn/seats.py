"""Seats: which host of a lab a device or client of a run sits at. Asked over REST; knows neither switches nor sockets.

A host is one subscriber, and a subscriber may not publish on its own resource: so every client has a host to itself,
and devices share hosts that are kept for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Literal

from battlebrokers.errors import InputError
from battlebrokers.sdn.lab.topology import LabHost, Topology

Role = Literal["device", "client"]


class NoSeatError(InputError):
    """Every host for clients is taken."""


class UnknownSeatError(InputError):
    """Nobody sits there."""


@dataclass(frozen=True, slots=True)
class Seat:
    """One place taken."""

    number: int
    role: Role
    host: LabHost


class Seats:
    """The seats of one lab, in turn over its switches."""

    def __init__(self, topology: Topology) -> None:
        by_switch = [
            [host for host in topology.hosts.values() if host.port.switch == switch]
            for switch in topology.switches.values()
        ]
        # The first host of each switch that can spare one; a lab of single hosts spares its first.
        kept = [hosts[0] for hosts in by_switch if len(hosts) > 1] or [hosts[0] for hosts in by_switch if hosts][:1]
        turns = chain.from_iterable(zip_longest(*by_switch))
        self.device_hosts: tuple[LabHost, ...] = tuple(kept)
        self.client_hosts: tuple[LabHost, ...] = tuple(host for host in turns if host and host not in kept)
        self.taken: dict[int, Seat] = {}
        self._last = 0
        self._devices = 0

    def take(self, role: Role) -> Seat:
        """A seat; NoSeatError when a client finds none."""
        if role == "device":
            if not self.device_hosts:
                raise NoSeatError("there are no seats for devices: the lab has no host", hint="give it a larger one")
            host = self.device_hosts[self._devices % len(self.device_hosts)]
            self._devices += 1
        else:
            busy = {seat.host for seat in self.taken.values() if seat.role == "client"}
            free = next((host for host in self.client_hosts if host not in busy), None)
            if free is None:
                raise NoSeatError(
                    f"all {len(self.client_hosts)} seats for clients are taken",
                    hint="every client needs a host to itself: take a larger topology, or fewer clients",
                )
            host = free
        self._last += 1
        seat = self.taken[self._last] = Seat(self._last, role, host)
        return seat

    def give_back(self, number: int) -> Seat:
        """Free a seat; UnknownSeatError when nobody has it."""
        if number not in self.taken:
            raise UnknownSeatError(f"nobody has seat {number}", hint="GET /api/v1/lab lists those that are taken")
        return self.taken.pop(number)
