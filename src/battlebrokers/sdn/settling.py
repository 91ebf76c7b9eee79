"""When a change is in effect: every switch has done what it was told, and what was on its way is gone.

Awaited by the controller before anybody is answered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Final

from battlebrokers.sdn.core.network import Network
from battlebrokers.sdn.core.resources import Directory
from battlebrokers.sdn.openflow.channel import Channel

SETTLE_S: Final = 0.02
"""Open vSwitch answers a barrier when its tables are changed; what it cached of the old ones lives up to 10 ms on."""
_SETTLE_STEPS: Final = 20
_PATIENCE: Final = 2.0
"""How much longer than that, for each second the barriers took."""


async def in_effect(channels: Iterable[Channel]) -> dict[int, str]:
    """Wait until every switch has done what it was told; returns those that have not, and why.

    One that went away meanwhile is told when it returns.
    """
    told = list(channels)
    done = await asyncio.gather(*map(_obeyed, told), return_exceptions=True)
    return {one.switch: one.refused or "away" for one, fault in zip(told, done, strict=True) if fault is not None}


def rounds_to_go(before: Directory, after: Directory, network: Network) -> int:
    """How often more all switches have to be waited for: with each time, a copy on its way gets one switch further.

    Only for those who left a resource while another one lets copies pass that are addressed to them.
    """
    at = (network.hosts[mac].port.switch for mac in after.still_reached(before) if mac in network.hosts)
    return max(map(network.farthest, at), default=0)


async def _obeyed(channel: Channel) -> None:
    began = time.monotonic()
    await channel.barrier()
    # A switch that is slow to answer is as slow to forget.
    slow_s = _PATIENCE * (time.monotonic() - began)
    # In steps: where processors are scarce each takes longer than it should, for us as for the switch that forgets.
    for _ in range(_SETTLE_STEPS):
        await asyncio.sleep(SETTLE_S / _SETTLE_STEPS)
    await asyncio.sleep(slow_s)
