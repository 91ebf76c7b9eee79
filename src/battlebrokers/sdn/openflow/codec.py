"""The core's orders as OpenFlow 1.3 messages, and a switch's tables as the core's. os-ken's codec does the bytes.

Used by the channel. What a switch holds that is not ours becomes `Foreign`: it is removed, never understood.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from os_ken.ofproto import ofproto_v1_3 as of
from os_ken.ofproto import ofproto_v1_3_parser as parser
from os_ken.ofproto.ofproto_protocol import ProtocolDesc

from battlebrokers.sdn.core.addresses import VIRTUAL_MAC
from battlebrokers.sdn.core.instructions import (
    IN_PORT,
    Action,
    Actions,
    AnswerArp,
    DropGroup,
    DropMeter,
    DropRule,
    Group,
    Match,
    Meter,
    Order,
    Output,
    PutGroup,
    PutMeter,
    PutRule,
    Rewrite,
    Rule,
    Send,
    ToGroup,
)
from battlebrokers.sdn.openflow.wire import HEADER, packet_out

DIALECT: Final = ProtocolDesc(version=of.OFP_VERSION)
_FRAGMENT = (1, 1)
"""Open vSwitch's bit for any piece of a datagram, and its mask."""
_MATCHED = frozenset(Match.__slots__) - {"fragment"}
_REWRITTEN = frozenset({"eth_src", "eth_dst", "ipv4_src", "ipv4_dst"})


@dataclass(frozen=True)
class Foreign:
    """A rule somebody else made."""

    table: int
    priority: int
    match: Any


class _UnreadableError(Exception):
    """Not something we would have written."""


def read_message(raw: bytes) -> Any:
    """A message whose lengths add up, as os-ken sees it; `ValueError` when it sees nothing in it.

    Not by os-ken's own door: that one logs every byte of what is wrong, and swallows everything.
    """
    _, kind, length, xid = HEADER.unpack_from(raw)
    try:
        return parser.msg_parser(DIALECT, of.OFP_VERSION, kind, length, xid, raw)
    except Exception as fault:  # it fails in every way there is, also with a bare Exception
        raise ValueError(f"{type(fault).__name__}: {fault}") from fault


def message(order: Order) -> Any:
    """One order as one message; `Send` has its own way, see `sent`."""
    match order:
        case PutRule(rule):
            return _flow_mod(of.OFPFC_ADD, rule)
        case DropRule(rule):
            return _flow_mod(of.OFPFC_DELETE_STRICT, rule)
        case PutGroup(group, known):
            buckets = [_bucket(actions) for actions in group.buckets]
            command = of.OFPGC_MODIFY if known else of.OFPGC_ADD
            return parser.OFPGroupMod(DIALECT, command, of.OFPGT_ALL, group.id, buckets)
        case DropGroup(number):
            return parser.OFPGroupMod(DIALECT, of.OFPGC_DELETE, of.OFPGT_ALL, number, [])
        case PutMeter(meter, known):
            band = parser.OFPMeterBandDrop(rate=meter.packets_per_s, burst_size=meter.burst_packets)
            command = of.OFPMC_MODIFY if known else of.OFPMC_ADD
            return parser.OFPMeterMod(DIALECT, command, of.OFPMF_PKTPS | of.OFPMF_BURST, meter.id, [band])
        case DropMeter(number):
            return parser.OFPMeterMod(DIALECT, of.OFPMC_DELETE, 0, number, [])
        case Send():
            raise TypeError("a frame to send is not a change of tables")


def sent(order: Send) -> bytes:
    """A frame to send, ready for the wire."""
    return packet_out(action_bytes(order.actions), order.frame, order.in_port)


def action_bytes(actions: Actions) -> bytes:
    """Actions as a packet-out carries them; worth keeping where they are needed again."""
    return b"".join(bytes(_serialized(one)) for one in _written(actions))


def removal(foreign: Foreign) -> Any:
    """The message that removes somebody else's rule."""
    return parser.OFPFlowMod(
        DIALECT, table_id=foreign.table, command=of.OFPFC_DELETE_STRICT, priority=foreign.priority, match=foreign.match,
        instructions=[], buffer_id=of.OFP_NO_BUFFER, out_port=of.OFPP_ANY, out_group=of.OFPG_ANY,
    )  # fmt: skip


def read_rule(flow: Any) -> Rule | Foreign:
    """A rule in a reply to a question for flows."""
    try:
        return _rule(flow)
    except _UnreadableError:
        return Foreign(flow.table_id, flow.priority, flow.match)


def read_match(match: Any) -> Match | None:
    """What a rule asked for; None when we would not have written it."""
    try:
        return _read_match(match)
    except _UnreadableError:
        return None


def read_groups(descriptions: Iterable[Any]) -> Iterator[Group | int]:
    """The groups in a reply to a question for their descriptions; the bare number of one that is not ours."""
    for group in descriptions:
        try:
            buckets = tuple(_read(bucket.actions) for bucket in group.buckets)
        except _UnreadableError:
            yield group.group_id
        else:
            yield Group(group.group_id, buckets) if group.type == of.OFPGT_ALL else group.group_id


def read_meters(configs: Iterable[Any]) -> Iterator[Meter | int]:
    """The meters in a reply to a question for their configuration; the bare number of one that is not ours."""
    for config in configs:
        bands = config.bands
        if config.flags == of.OFPMF_PKTPS | of.OFPMF_BURST and len(bands) == 1 and bands[0].type == of.OFPMBT_DROP:
            yield Meter(config.meter_id, bands[0].rate, bands[0].burst_size)
        else:
            yield config.meter_id


def _flow_mod(command: int, rule: Rule) -> Any:
    return parser.OFPFlowMod(
        DIALECT, table_id=rule.table, command=command, priority=rule.priority, match=_match(rule.match),
        instructions=_instructions(rule) if command == of.OFPFC_ADD else [], buffer_id=of.OFP_NO_BUFFER,
        out_port=of.OFPP_ANY, out_group=of.OFPG_ANY,
        # What a rule has counted comes with its end, else the last of it would be lost.
        flags=of.OFPFF_SEND_FLOW_REM if rule.purpose and command == of.OFPFC_ADD else 0,
    )  # fmt: skip


def _match(match: Match) -> Any:
    asked = {name: getattr(match, name) for name in _MATCHED if getattr(match, name) is not None}
    standard = parser.OFPMatch(**asked)
    if match.fragment is None:
        return standard
    # A field may only stand behind those it depends on, and os-ken would put this one first.
    return parser.OFPMatch(_ordered_fields=[*standard.items(), ("ip_frag", _FRAGMENT if match.fragment else (0, 1))])


def _instructions(rule: Rule) -> list[Any]:
    made: list[Any] = []
    if rule.meter is not None:
        made.append(parser.OFPInstructionMeter(rule.meter))
    if rule.actions:
        made.append(parser.OFPInstructionActions(of.OFPIT_APPLY_ACTIONS, list(_written(rule.actions))))
    if rule.goto is not None:
        made.append(parser.OFPInstructionGotoTable(rule.goto))
    return made


def _bucket(actions: Actions) -> Any:
    return parser.OFPBucket(watch_port=of.OFPP_ANY, watch_group=of.OFPG_ANY, actions=list(_written(actions)))


def _written(actions: Actions) -> Iterator[Any]:
    for action in actions:
        match action:
            case Output(port):
                yield parser.OFPActionOutput(port, of.OFPCML_NO_BUFFER)
            case Rewrite(what, to):
                yield parser.OFPActionSetField(**{what: to})
            case ToGroup(number):
                yield parser.OFPActionGroup(number)
            case AnswerArp(address):
                yield from _arp_turned_round(address)


def _arp_turned_round(address: str) -> Iterator[Any]:
    """Open vSwitch can copy one field into another, so a question becomes its answer without anybody being asked."""
    yield parser.NXActionRegMove(src_field="eth_src_nxm", dst_field="eth_dst_nxm", n_bits=48)
    yield parser.OFPActionSetField(eth_src=VIRTUAL_MAC)
    yield parser.OFPActionSetField(arp_op=2)
    yield parser.NXActionRegMove(src_field="arp_sha_nxm", dst_field="arp_tha_nxm", n_bits=48)
    yield parser.NXActionRegMove(src_field="arp_spa_nxm", dst_field="arp_tpa_nxm", n_bits=32)
    yield parser.OFPActionSetField(arp_sha=VIRTUAL_MAC)
    yield parser.OFPActionSetField(arp_spa=address)
    yield parser.OFPActionOutput(IN_PORT, of.OFPCML_NO_BUFFER)


def _serialized(action: Any) -> bytearray:
    raw = bytearray()
    action.serialize(raw, 0)
    return raw


def _rule(flow: Any) -> Rule:
    actions: Actions = ()
    goto = meter = None
    for instruction in flow.instructions:
        if instruction.type == of.OFPIT_APPLY_ACTIONS:
            actions = _read(instruction.actions)
        elif instruction.type == of.OFPIT_GOTO_TABLE:
            goto = instruction.table_id
        elif instruction.type == of.OFPIT_METER:
            meter = instruction.meter_id
        else:
            raise _UnreadableError
    if flow.idle_timeout or flow.hard_timeout:
        raise _UnreadableError
    return Rule(flow.table_id, flow.priority, _read_match(flow.match), actions, goto, meter)


def _read_match(match: Any) -> Match:
    asked: dict[str, Any] = {}
    for name, value in match.items():
        if name == "ip_frag":
            asked["fragment"] = value in (_FRAGMENT, _FRAGMENT[0])
        elif name in _MATCHED and not isinstance(value, tuple):
            asked[name] = value
        else:
            raise _UnreadableError
    return Match(**asked)


def _read(actions: Iterable[Any]) -> Actions:
    listed = list(actions)
    if any(isinstance(action, parser.NXActionRegMove) for action in listed):
        return (_read_arp(listed),)
    return tuple(_read_one(action) for action in listed)


def _read_one(action: Any) -> Action:
    if isinstance(action, parser.OFPActionOutput):
        return Output(action.port)
    if isinstance(action, parser.OFPActionGroup):
        return ToGroup(action.group_id)
    if isinstance(action, parser.OFPActionSetField) and action.key in _REWRITTEN:
        return Rewrite(action.key, action.value)
    raise _UnreadableError


def _read_arp(actions: list[Any]) -> AnswerArp:
    addresses = [a.value for a in actions if isinstance(a, parser.OFPActionSetField) and a.key == "arp_spa"]
    if len(addresses) == 1:
        ours = [bytes(_serialized(action)) for action in _arp_turned_round(addresses[0])]
        if [bytes(_serialized(action)) for action in actions] == ours:
            return AnswerArp(addresses[0])
    raise _UnreadableError
