"""The plan: scenario + seed → every device, client and phase. Pure data, expanded lazily and always the same.

Called by workers (for their share) and by `bb check`. Never opens a socket or reads a clock.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec

from battlebrokers.errors import InputError
from battlebrokers.scenario.estimate import Estimate, estimate
from battlebrokers.scenario.expansion import ClientExpansion, DeviceExpansion, Origin
from battlebrokers.scenario.matching import Matching
from battlebrokers.scenario.model import Scenario
from battlebrokers.scenario.nodes import (
    NEVER_NS,
    AwayPlan,
    ClientPlan,
    ConnectionPlan,
    DevicePlan,
    FilterPlan,
    PacePlan,
    PayloadPlan,
    PhasesPlan,
    SizePlan,
    TlsPlan,
    WillPlan,
)
from battlebrokers.scenario.resolve import resolve
from battlebrokers.secrets import MASK, Secret
from battlebrokers.units import parse_duration_ns, parse_rate_per_s

__all__ = [
    "NEVER_NS",
    "AwayPlan",
    "ClientPlan",
    "ConnectionPlan",
    "DevicePlan",
    "FilterPlan",
    "PacePlan",
    "PayloadPlan",
    "PhasesPlan",
    "Plan",
    "SizePlan",
    "TlsPlan",
    "WillPlan",
    "build_plan",
]

_FORMAT = 1


@dataclass(frozen=True)
class Plan:
    """A resolved scenario with its seed and the run it is for; devices and clients are made when asked for."""

    scenario: Scenario
    seed: int
    run_id: str = ""

    @cached_property
    def _fleets(self) -> list[DeviceExpansion]:
        origin = Origin(self.seed, self.run_id)
        firsts = itertools.accumulate((fleet.devices for fleet in self.scenario.fleets.values()), initial=0)
        return [
            DeviceExpansion(name, fleet, first, origin)
            for (name, fleet), first in zip(self.scenario.fleets.items(), firsts, strict=False)
        ]

    @cached_property
    def _groups(self) -> list[ClientExpansion]:
        origin = Origin(self.seed, self.run_id)
        firsts = itertools.accumulate((group.count for group in self.scenario.clients.values()), initial=0)
        return [
            ClientExpansion(name, group, first, origin)
            for (name, group), first in zip(self.scenario.clients.items(), firsts, strict=False)
        ]

    @cached_property
    def phases(self) -> PhasesPlan:
        """How long each phase lasts."""
        phases = self.scenario.phases
        return PhasesPlan(
            connect_per_s=parse_rate_per_s(phases.connect) if phases.connect else 0.0,
            warm_up_ns=parse_duration_ns(phases.warm_up),
            measure_ns=parse_duration_ns(phases.measure),
            cool_down_ns=parse_duration_ns(phases.cool_down),
            drain_ns=parse_duration_ns(phases.drain),
            quiet_ns=parse_duration_ns(phases.quiet),
        )

    @property
    def until_silent(self) -> bool:
        """Whether the load ends early when every device has said all it may."""
        return bool(self.scenario.phases.until_silent)

    @property
    def device_count(self) -> int:
        """How many devices in all."""
        return sum(fleet.devices for fleet in self.scenario.fleets.values())

    @property
    def client_count(self) -> int:
        """How many clients in all."""
        return sum(group.count for group in self.scenario.clients.values())

    def devices(self, share: int = 0, of: int = 1) -> Iterator[DevicePlan]:
        """The devices whose number leaves the remainder `share` when divided by `of`, by number."""
        return itertools.chain.from_iterable(fleet.devices(share, of) for fleet in self._fleets)

    def clients(self, share: int = 0, of: int = 1) -> Iterator[ClientPlan]:
        """The clients whose number leaves the remainder `share` when divided by `of`, by number."""
        return itertools.chain.from_iterable(group.clients(share, of) for group in self._groups)

    def topics_over(self, protocol: str) -> Iterator[tuple[int, tuple[str, ...], int]]:
        """Of every device that speaks this protocol: number, topics, seed of the dice that choose (-1: none)."""
        for fleet in self._fleets:
            if (fleet.fleet.protocol or "mqtt") == protocol:
                yield from ((fleet.first_number + place, *fleet.topics(place)) for place in range(fleet.count))

    @property
    def device_groups(self) -> Iterator[Iterator[DevicePlan]]:
        """The devices, fleet by fleet."""
        return (fleet.devices(0, 1) for fleet in self._fleets)

    @property
    def client_groups(self) -> Iterator[Iterator[ClientPlan]]:
        """The clients, group by group."""
        return (group.clients(0, 1) for group in self._groups)

    @cached_property
    def matching(self) -> Matching:
        """Every topic its devices can publish to."""
        return Matching(topic for device in self.devices() for topic in device.topics)

    @cached_property
    def estimate(self) -> Estimate:
        """What it amounts to: rates, sizes, connections, time."""
        return estimate(self._fleets, self._groups, self.phases, until_silent=self.until_silent)

    @property
    def messages_per_s(self) -> float:
        """Messages published per second of the measure phase, estimated."""
        return self.estimate.messages_per_s

    @property
    def deliveries_per_s(self) -> float:
        """Deliveries per second of the measure phase, estimated."""
        return self.estimate.deliveries_per_s

    def lines(self, mask: str = MASK) -> Iterator[bytes]:
        """The whole plan as JSON lines: a head, then every device and client.

        The same scenario and seed give the same bytes: the run id is left out, passwords are masked.
        """
        plan = self if not self.run_id else replace(self, run_id="")
        encode = msgspec.json.Encoder(enc_hook=lambda value: mask if isinstance(value, Secret) else str(value)).encode
        yield (
            encode({"format": _FORMAT, "scenario": self.scenario.name, "seed": self.seed, "phases": self.phases})
            + b"\n"
        )
        for kind, nodes in (("device", plan.devices()), ("client", plan.clients())):
            for node in nodes:
                yield encode({kind: node}) + b"\n"

    def to_bytes(self) -> bytes:
        """The lines as one piece."""
        return b"".join(self.lines())

    @cached_property
    def sha256(self) -> str:
        """The fingerprint of the lines, with the mask of the first versions: runs of then and now stay comparable."""
        digest = hashlib.sha256()
        for line in self.lines(mask="***"):
            digest.update(line)
        return digest.hexdigest()

    def to_message(self) -> bytes:
        """A small message from which another process makes the same plan."""
        return msgspec.json.encode(
            {"format": _FORMAT, "scenario": self.scenario.plain(reveal=True), "seed": self.seed, "run_id": self.run_id}
        )

    @classmethod
    def from_message(cls, message: bytes) -> Plan:
        """The plan of a message made by `to_message`; raises InputError if it is not one."""
        try:
            content = msgspec.json.decode(message)
            if content["format"] != _FORMAT:
                raise InputError(
                    f"this plan has format {content['format']}, not {_FORMAT}", hint="use the same version everywhere"
                )
            return cls(Scenario.model_validate(content["scenario"]), int(content["seed"]), str(content["run_id"]))
        except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
            raise InputError(f"this is not a plan: {str(error).splitlines()[0]}") from None


def build_plan(scenario: Scenario, seed: int | None = None, run_id: str = "") -> Plan:
    """The plan of a scenario; its own seed unless another is given."""
    return Plan(resolve(scenario), scenario.seed if seed is None else seed, run_id)
