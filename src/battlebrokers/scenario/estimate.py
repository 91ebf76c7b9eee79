"""What a plan amounts to, before it runs: rates, sizes, connections, time.

Called by `bb check` and to choose processes. Random paces are taken at their mean, topics are sampled.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from battlebrokers.scenario.expansion import ClientExpansion, DeviceExpansion
from battlebrokers.scenario.nodes import DevicePlan, PhasesPlan
from battlebrokers.scenario.paces import messages_until
from battlebrokers.scenario.payloads import PayloadSource, mean_payload_bytes

SECOND_NS = 1_000_000_000
_SAMPLED_DEVICES = 32
_SAMPLED_TOPICS = 16


@dataclass(frozen=True, slots=True)
class FleetEstimate:
    """One fleet of devices in the measure phase."""

    name: str
    devices: int
    messages: float
    payload_bytes: float
    listeners: float
    """Deliveries that become of one message."""
    stamped: bool


@dataclass(frozen=True, slots=True)
class Estimate:
    """The whole plan; rates and counts are those of the measure phase."""

    fleets: tuple[FleetEstimate, ...]
    devices: int
    clients: int
    connect_ns: int
    measure_ns: int
    duration_ns: int

    @property
    def connections(self) -> int:
        """How many connections are held."""
        return self.devices + self.clients

    @property
    def messages(self) -> float:
        """Messages published."""
        return sum(fleet.messages for fleet in self.fleets)

    @property
    def deliveries(self) -> float:
        """Messages delivered, if none is lost."""
        return sum(fleet.messages * fleet.listeners for fleet in self.fleets)

    @property
    def messages_per_s(self) -> float:
        """Messages published per second."""
        return self.messages * SECOND_NS / max(self.measure_ns, 1)

    @property
    def deliveries_per_s(self) -> float:
        """Messages delivered per second."""
        return self.deliveries * SECOND_NS / max(self.measure_ns, 1)

    @property
    def payload_bytes(self) -> float:
        """Mean payload size over all messages."""
        total = sum(fleet.messages * fleet.payload_bytes for fleet in self.fleets)
        return total / self.messages if self.messages else 0.0

    @property
    def unstamped(self) -> tuple[str, ...]:
        """Fleets whose messages carry no header and are matched by topic and order."""
        return tuple(fleet.name for fleet in self.fleets if fleet.messages and not fleet.stamped)


def estimate(
    devices: Sequence[DeviceExpansion],
    clients: Sequence[ClientExpansion],
    phases: PhasesPlan,
    *,
    until_silent: bool = False,
) -> Estimate:
    """Add everything up; with `until_silent` the load ends once every device has said all it may."""
    listening = _Listening.of(clients)
    device_count = sum(group.count for group in devices)
    client_count = sum(group.count for group in clients)
    nodes = device_count + client_count
    connect_ns = round(nodes / phases.connect_per_s * SECOND_NS) if phases.connect_per_s else 0
    load_ns = phases.load_ns
    if until_silent:
        load_ns = min(load_ns, max((_silent_ns(fleet, load_ns) for fleet in devices), default=load_ns))
    return Estimate(
        fleets=tuple(_fleet(fleet, phases, listening) for fleet in devices),
        devices=device_count,
        clients=client_count,
        connect_ns=connect_ns,
        measure_ns=max(0, min(phases.measure_ns, load_ns - phases.warm_up_ns)),
        duration_ns=connect_ns + load_ns + min(phases.drain_ns, phases.quiet_ns),
    )


def _silent_ns(fleet: DeviceExpansion, load_ns: int) -> int:
    """When the last device of a fleet has said all it may; the end of the load if that is sooner."""
    if not fleet.count:
        return 0
    # Who joins last is last; who is drawn to be slow may be anywhere.
    places = {*range(0, fleet.count, max(1, fleet.count // _SAMPLED_DEVICES)), fleet.count - 1}
    return max(_said_all_ns(fleet.device(place), load_ns) for place in places)


def _said_all_ns(device: DevicePlan, load_ns: int) -> int:
    most = device.at_most
    if most is None or messages_until(device.pace, load_ns) < most:
        return load_ns
    return bisect_left(range(load_ns), float(most), key=partial(messages_until, device.pace)) if most else 0


def _fleet(fleet: DeviceExpansion, phases: PhasesPlan, listening: _Listening) -> FleetEstimate:
    stamped = PayloadSource(fleet.payload, 0).stamped
    if not fleet.count:
        return FleetEstimate(fleet.name, 0, 0.0, mean_payload_bytes(fleet.payload), 0.0, stamped)
    step = max(1, fleet.count // _SAMPLED_DEVICES)
    sample = [fleet.device(place) for place in range(0, fleet.count, step)]
    begin_ns, end_ns = phases.warm_up_ns, phases.warm_up_ns + phases.measure_ns
    messages = listeners = 0.0
    for device in sample:
        most = float("inf") if device.at_most is None else device.at_most
        messages += min(messages_until(device.pace, end_ns), most) - min(messages_until(device.pace, begin_ns), most)
        topics = device.topics[:: max(1, len(device.topics) // _SAMPLED_TOPICS)]
        listeners += sum(listening.count(topic) for topic in topics) / len(topics)
    return FleetEstimate(
        name=fleet.name,
        devices=fleet.count,
        messages=messages * fleet.count / len(sample),
        payload_bytes=mean_payload_bytes(sample[0].payload),
        listeners=listeners / len(sample),
        stamped=stamped,
    )


@dataclass(slots=True)
class _Listening:
    """A tree of filters, level by level, with who listens at each: (who, how many)."""

    children: dict[str, _Listening] = field(default_factory=dict)
    listeners: dict[Hashable, int] = field(default_factory=dict)

    @classmethod
    def of(cls, clients: Iterable[ClientExpansion]) -> _Listening:
        """The tree of all clients; alike clients and shared groups are one entry each."""
        root = cls()
        for group in clients:
            for place in range(min(group.count, 1) if group.alike else group.count):
                for subscription in group.subscriptions(place):
                    who: Hashable = (group.name, place)
                    weight = group.count if group.alike else 1
                    if subscription.share is not None:
                        who, weight = (subscription.share, "share", subscription.filter), 1
                    root._add(subscription.filter, who, weight)
        return root

    def _add(self, topic_filter: str, who: Hashable, weight: int) -> None:
        node = self
        for level in topic_filter.split("/"):
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Listening()
            node = child
        node.listeners[who] = weight

    def count(self, topic: str) -> int:
        """How many deliveries a message on that topic becomes."""
        found: dict[Hashable, int] = {}
        nodes = [self]
        levels = topic.split("/")
        for depth, level in enumerate(levels):
            wild = depth > 0 or not level.startswith("$")
            following = []
            for node in nodes:
                if wild and "#" in node.children:
                    found |= node.children["#"].listeners
                following += [
                    node.children[key] for key in ((level, "+") if wild else (level,)) if key in node.children
                ]
            nodes = following
        for node in nodes:
            found |= node.listeners
            if "#" in node.children:
                found |= node.children["#"].listeners
        return sum(found.values())
