"""Asks the switches what they counted, at most twice a second however many ask. Used by REST and the page."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from battlebrokers.sdn.controller import Controller
from battlebrokers.sdn.core.network import Port
from battlebrokers.sdn.core.rules import DROPS
from battlebrokers.sdn.counters import Seen, Sums, Tally
from battlebrokers.sdn.openflow.channel import Channel
from battlebrokers.sdn.openflow.codec import Foreign, read_rule

_FRESH_S: Final = 0.5


class Observer:
    """The counters of all switches, as of the last look."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._tally = Tally()
        self._looked_at = float("-inf")
        self._looking = asyncio.Lock()
        self.port_packets: dict[Port, int] = {}
        """Packets that left each port."""
        controller.before_change = self._look_now

    async def look(self) -> None:
        """Ask every switch, unless that was done just now; one that does not answer is left out."""
        async with self._looking:
            if time.monotonic() - self._looked_at >= _FRESH_S:
                await self._take_in()

    async def _look_now(self) -> None:
        async with self._looking:
            await self._take_in()

    async def _take_in(self) -> None:
        channels = dict(self._controller.channels)
        answers = await asyncio.gather(*map(self._ask, channels.values()), return_exceptions=True)
        seen = {switch: one for switch, one in zip(channels, answers, strict=True) if isinstance(one, Seen)}
        state = self._controller.state
        self._tally.add(state.directory, state.known, seen)
        self._looked_at = time.monotonic()

    def sums(self) -> Sums:
        """What switches and controller counted together."""
        counted, controller = self._tally.sums, self._controller
        sums = Sums(counted.published.copy(), counted.delivered.copy(), counted.dropped.copy(), counted.refused.copy())
        for address, traffic in controller.traffic.items():
            # In reactive mode the switches count what they asked about as published already.
            sums.delivered[address] += traffic.delivered
        sums.dropped.update(controller.drops)
        sums.dropped.update(controller.state.drops)
        for kind in DROPS:
            sums.dropped.setdefault(kind, 0)
        return sums

    async def _ask(self, channel: Channel) -> Seen:
        flows, groups, ports = await asyncio.gather(channel.flow_stats(), channel.group_stats(), channel.port_stats())
        for port in ports:
            self.port_packets[Port(channel.switch, port.port_no)] = port.tx_packets
        rules = {}
        for flow in flows:
            rule = read_rule(flow)
            if not isinstance(rule, Foreign):
                rules[rule.key] = int(flow.packet_count)
        return Seen(rules, {group.group_id: _counts(group) for group in groups})


def _counts(group: Any) -> list[int]:
    return [int(bucket.packet_count) for bucket in group.bucket_stats]
