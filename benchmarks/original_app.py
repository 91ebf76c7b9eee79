"""The peer of `sdn.tree_vs_original_32`: the network broker as it was designed first, on our own fast codec.

Run as a program by `sdn_network.py` with a port and a JSON file of the switches' ways: the first switch asks, a copy
for each subscriber leaves it, and every further switch on the way asks about every copy. It discovers nothing.
"""

from __future__ import annotations

import asyncio
import json
import sys
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from battlebrokers.sdn.core.frames import IPV4_TYPE
from battlebrokers.sdn.core.instructions import CONTROLLER, Match, Output, PutRule, Rewrite, Rule
from battlebrokers.sdn.openflow.channel import Channel
from battlebrokers.sdn.openflow.codec import action_bytes
from battlebrokers.sdn.openflow.introduction import Introduction
from battlebrokers.sdn.openflow.lobby import Lobby

_TARGET = slice(30, 34)
"""Where an IPv4 frame says whom it is for."""


class OriginalBroker:
    """Packet-in → a packet-out per subscriber at the first switch, and one per copy at each switch after it."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._resource = IPv4Address(told["resource"]).packed
        self._copies: dict[int, list[bytes]] = {}
        self._onwards: dict[tuple[int, bytes], bytes] = {}
        for subscriber in told["subscribers"]:
            mac, ipv4 = subscriber["mac"], subscriber["ipv4"]
            for switch, port in subscriber["ways"].items():
                number, leaves = int(switch), Output(port)
                addressed = (Rewrite("eth_dst", mac), Rewrite("ipv4_dst", ipv4), leaves)
                self._copies.setdefault(number, []).append(action_bytes(addressed))
                self._onwards[number, IPv4Address(ipv4).packed] = action_bytes((leaves,))

    def joined(self, channel: Channel, introduction: Introduction) -> None:  # noqa: ARG002
        """A switch came: IPv4 comes to us."""
        channel.tell([PutRule(Rule(0, 10, Match(eth_type=IPV4_TYPE), (Output(CONTROLLER),)))])

    def packet_came(self, channel: Channel, in_port: int, frame: bytes) -> None:
        """A message, or a copy that is on its way."""
        target = frame[_TARGET]
        if target == self._resource:
            for actions in self._copies[channel.switch]:
                channel.send_frame(actions, frame, in_port)
        elif onwards := self._onwards.get((channel.switch, target)):
            channel.send_frame(onwards, frame, in_port)

    def left(self, channel: Channel) -> None:
        """Its copies are lost: no part of this comparison."""

    def ports_changed(self, channel: Channel, up: frozenset[int]) -> None:
        """They stay as they are told."""

    def rule_removed(self, channel: Channel, key: tuple[int, int, Match], packets: int) -> None:
        """Nobody removes any."""

    def order_refused(self, channel: Channel) -> None:
        """It has no rules that could be refused but its first."""

    def hung_up(self, channel: Channel) -> None:
        """The benchmark is over."""


async def serve(port: int, told: dict[str, Any]) -> None:
    """Until somebody ends it."""
    broker, lobby = OriginalBroker(told), Lobby()
    server = await asyncio.get_running_loop().create_server(lambda: Channel(broker, lobby), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())))
