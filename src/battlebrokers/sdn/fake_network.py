"""A network in memory: fake switches, the wires between them, and the core deciding. For tests and for trying out.

What it says of a message is what real switches must do with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from battlebrokers.sdn.core import broker
from battlebrokers.sdn.core.broker import OPEN_VSWITCH
from battlebrokers.sdn.core.instructions import Orders
from battlebrokers.sdn.core.network import Port
from battlebrokers.sdn.core.resources import Directory
from battlebrokers.sdn.fake_switch import FakeSwitch, Outcome

_MOST_STEPS = 100_000
"""A frame that is still on its way after so many steps runs in circles."""


class FakeNetwork:
    """Switches and wires; `state` is what the broker knows of them."""

    def __init__(
        self, ports: dict[int, frozenset[int]], wires: Iterable[tuple[Port, Port]], secret: bytes = b"fake",
        skills: broker.Skills = OPEN_VSWITCH,
    ) -> None:  # fmt: skip
        self.switches = {switch: FakeSwitch(numbers) for switch, numbers in ports.items()}
        self.wires = {end: other for one, two in wires for end, other in ((one, two), (two, one))}
        self.state = broker.State(secret)
        self.now_ms = 0
        self._skills = skills

    def start(self) -> None:
        """All switches come, and their links are found."""
        for switch, fake in self.switches.items():
            self.decided(broker.switch_joined(self.state, switch, fake.ports, fake.tables, self._skills))
        self.discover()

    def discover(self) -> None:
        """One round of beacons."""
        self.carry_out(broker.beacons(self.state, self.now_ms))

    def change(self, directory: Directory) -> None:
        """Resources or subscriptions are others now."""
        self.decided(broker.directory_changed(self.state, directory))

    def decided(self, decision: broker.Decision) -> list[tuple[Port, bytes]]:
        """Take over what the core decided; returns the frames that reached the edge of the network by it."""
        self.state, orders = decision
        return self.carry_out(orders)

    def carry_out(self, orders: Orders) -> list[tuple[Port, bytes]]:
        """Tell the switches; returns the frames that reached the edge of the network by it."""
        left: list[tuple[Port, bytes]] = []
        for switch, told in orders.items():
            for order in told:
                left += self._carried(switch, self.switches[switch].obey(order), Port(switch, 0))
        return left

    def inject(self, at: Port, frame: bytes) -> list[tuple[Port, bytes]]:
        """A host sends a frame; returns every frame that left the network, and where."""
        return self._carried(at.switch, self.switches[at.switch].receive(at.number, frame), at)

    def _carried(self, switch: int, first: Outcome, came_at: Port) -> list[tuple[Port, bytes]]:
        left: list[tuple[Port, bytes]] = []
        waiting = deque([(switch, first, came_at)])
        for _ in range(_MOST_STEPS):
            if not waiting:
                return left
            at_switch, outcome, came = waiting.popleft()
            for number, frame in outcome.sent:
                end = Port(at_switch, number)
                other = self.wires.get(end)
                if other is None:
                    left.append((end, frame))
                else:
                    waiting.append((other.switch, self.switches[other.switch].receive(other.number, frame), other))
            for frame in outcome.asked:
                left += self.decided(broker.packet_came(self.state, came, frame, self.now_ms))
        raise RuntimeError("a frame runs in circles")
