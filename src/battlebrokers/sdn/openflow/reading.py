"""Reading back what a switch knows: rules, groups and meters as the core's `Tables`. Used by the channel.

The switches are ours: what somebody else put there is removed in the same breath.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from os_ken.ofproto import ofproto_v1_3 as of
from os_ken.ofproto import ofproto_v1_3_parser as parser

from battlebrokers.sdn.core.instructions import Group, Meter, Rule, Tables
from battlebrokers.sdn.openflow.codec import DIALECT, Foreign, read_groups, read_meters, read_rule, removal


async def read_tables(ask: Callable[[Any], Awaitable[list[Any]]], send: Callable[[Any], None]) -> Tables:
    """What it already knows of us; what is somebody else's is removed."""
    rules: dict[Any, Rule] = {}
    every = parser.OFPFlowStatsRequest(DIALECT, 0, of.OFPTT_ALL, of.OFPP_ANY, of.OFPG_ANY, 0, 0)
    for rule in map(read_rule, await ask(every)):
        if isinstance(rule, Foreign):
            send(removal(rule))
        else:
            rules[rule.key] = rule
    groups: dict[int, Group] = {}
    for group in read_groups(await ask(parser.OFPGroupDescStatsRequest(DIALECT, 0))):
        if isinstance(group, int):
            send(parser.OFPGroupMod(DIALECT, of.OFPGC_DELETE, of.OFPGT_ALL, group, []))
        else:
            groups[group.id] = group
    meters: dict[int, Meter] = {}
    try:
        found = await ask(parser.OFPMeterConfigStatsRequest(DIALECT, 0, of.OFPM_ALL))
    except ConnectionError:
        found = []
    for meter in read_meters(found):
        if isinstance(meter, int):
            send(parser.OFPMeterMod(DIALECT, of.OFPMC_DELETE, 0, meter, []))
        else:
            meters[meter.id] = meter
    return Tables(rules, groups, meters)
