"""Asks the switches what they counted, at most twice a second however many ask. Used by REST and the page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from battlebrokers.sdn.controller import Controller
from battlebrokers.sdn.core.broker import Skills
from battlebrokers.sdn.core.instructions import DropGroup, DropRule, Match, Order, PutGroup, Tables
from battlebrokers.sdn.core.network import Port
from battlebrokers.sdn.core.resources import Directory
from battlebrokers.sdn.core.rules import DROPS, meter_of
from battlebrokers.sdn.counters import Sums, Tally
from battlebrokers.sdn.openflow.channel import Channel
from battlebrokers.sdn.openflow.codec import Foreign, read_rule

_FRESH_S: Final = 0.5
_TOO_SLOW: Final = "switch too slow"
"""Frames for a switch that does not read them as fast as they come."""


class Observer:
    """The counters of all switches, as of the last look."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._tally = Tally()
        self._looked_at = float("-inf")
        self._looking = asyncio.Lock()
        self.rule_packets: dict[int, dict[tuple[int, int, Match], int]] = {}
        """Switch → packets by rule, as it last said."""
        self.bucket_packets: dict[int, dict[int, list[int]]] = {}
        """Switch → group → packets of each of its buckets."""
        self.port_packets: dict[Port, int] = {}
        """Packets that left each port."""
        controller.watcher = self

    async def look(self) -> None:
        """Ask every switch, unless that was done just now; one that does not answer is left out."""
        async with self._looking:
            if time.monotonic() - self._looked_at >= _FRESH_S:
                await self._take_in()

    async def _take_in(self) -> None:
        channels = list(self._controller.channels.values())
        await asyncio.gather(*map(self._ask, channels), return_exceptions=True)
        self._looked_at = time.monotonic()

    def before_orders(self, channel: Channel, directory: Directory, known: Tables, orders: list[Order]) -> None:
        """Groups lose their counters when they change, so they are asked once more just before."""
        for order in orders:
            match order:
                case PutGroup(group, is_known) if is_known:
                    self._ask_last(channel, directory, known, group.id)
                case DropGroup(number):
                    self._ask_last(channel, directory, known, number)
                case DropRule(rule):
                    self._tally.rule_leaves(channel.switch, rule)
                case _:
                    pass

    def rule_removed(self, switch: int, key: tuple[int, int, Match], packets: int) -> None:
        """A rule is gone."""
        self._tally.rule_removed(switch, key, packets)

    def switch_joined(self, switch: int, tables: Tables) -> None:
        """A switch came, or came back."""
        self._tally.switch_joined(switch, tables)

    def _ask_last(self, channel: Channel, directory: Directory, known: Tables, number: int) -> None:
        count = self._group_counter(channel.switch, directory, known)

        def last(groups: list[Any]) -> None:
            count(groups)
            self._tally.group_begins_anew(channel.switch, number)

        channel.last_words(number, last)

    def _group_counter(self, switch: int, directory: Directory, known: Tables) -> Callable[[list[Any]], None]:
        """Takes in counters of groups as they were when they were asked for: buckets have no names."""
        addresses = {one.id: one.address for one in directory.resources.values()}

        def count(groups: list[Any]) -> None:
            for counted in groups:
                self.bucket_packets.setdefault(switch, {})[counted.group_id] = _counts(counted)
                group, address = known.groups.get(counted.group_id), addresses.get(counted.group_id)
                if group is not None and address is not None:
                    self._tally.group_counted(switch, address, group, _counts(counted))

        return count

    def sums(self) -> Sums:
        """What switches and controller counted together."""
        counted, controller = self._tally.sums, self._controller
        sums = Sums(
            counted.published.copy(), counted.delivered.copy(), counted.dropped.copy(), counted.refused.copy(),
            counted.lost.copy(),
        )  # fmt: skip
        for address, traffic in controller.copying.traffic.items():
            # Where switches ask, they count what they asked about as published already.
            sums.delivered[address] += traffic.delivered
            sums.lost[address] += traffic.dropped
        sums.dropped.update(controller.copying.drops)
        sums.dropped.update(controller.state.drops)
        for counts in (controller.past, *(channel.counts for channel in controller.channels.values())):
            sums.dropped[_TOO_SLOW] += counts.unsent
        for kind in DROPS:
            sums.dropped.setdefault(kind, 0)
        return sums

    async def _ask(self, channel: Channel) -> None:
        state, switch = self._controller.state, channel.switch
        known = state.known.get(switch, Tables())

        def take_rules(flows: list[Any]) -> None:
            read = ((read_rule(flow), int(flow.packet_count)) for flow in flows)
            counted = {rule.key: packets for rule, packets in read if not isinstance(rule, Foreign)}
            self._tally.rules_counted(switch, known, counted)
            self.rule_packets[switch] = counted

        take_groups = self._group_counter(switch, state.directory, known)
        asked = [channel.port_stats(), channel.flow_stats(take_rules), channel.group_stats(take_groups)]
        if state.skills.get(switch, Skills()).meters:
            asked.append(channel.meter_stats())
        answers = await asyncio.gather(*asked)
        for port in answers[0]:
            self.port_packets[Port(switch, port.port_no)] = port.tx_packets
        resources = {meter_of(one): one.address for one in state.directory.resources.values()}
        for meter in (one for meters in answers[3:] for one in meters):
            held_back = sum(int(band.packet_band_count) for band in meter.band_stats)
            self._tally.meter_counted(switch, meter.meter_id, resources.get(meter.meter_id, ""), held_back)


def _counts(group: Any) -> list[int]:
    return [int(bucket.packet_count) for bucket in group.bucket_stats]
