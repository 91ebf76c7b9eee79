"""Rules and groups of a switch in words, for people who look at one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from battlebrokers.sdn.core.addresses import VIRTUAL_MAC
from battlebrokers.sdn.core.frames import ARP_TYPE, IPV4_TYPE, LLDP_TYPE
from battlebrokers.sdn.core.instructions import (
    CONTROLLER,
    IN_PORT,
    Action,
    Actions,
    AnswerArp,
    Match,
    Output,
    Rewrite,
    Rule,
    ToGroup,
)
from battlebrokers.sdn.core.rules import ARP, CLASSIFY, PUBLISH, PUBLISHED, TRANSIT, UDP

TABLES: Final = {
    CLASSIFY: "who speaks", TRANSIT: "between switches", PUBLISH: "publishing", ARP: "questions for addresses",
}  # fmt: skip
_TYPES: Final = {ARP_TYPE: "ARP", IPV4_TYPE: "IPv4", LLDP_TYPE: "beacons (LLDP)"}
_PORTS: Final = {CONTROLLER: "to the controller", IN_PORT: "back where it came from"}


def match_in_words(match: Match) -> str:
    """Which frames."""
    return ", ".join(_conditions(match)) or "everything else"


def actions_in_words(rule: Rule, resources: Mapping[int, str]) -> str:
    """What happens to them; `resources` are addresses by the number of their group."""
    if rule.goto is not None:
        return f"go on to: {TABLES.get(rule.goto, str(rule.goto))}"
    if rule.actions:
        return _actions(rule.actions, resources)
    reason = "" if rule.purpose.startswith(PUBLISHED) else rule.purpose
    return f"dropped: {reason}" if reason else "dropped"


def bucket_in_words(actions: Actions) -> str:
    """What a group does with one copy."""
    return _actions(actions, {})


def _conditions(match: Match) -> list[str]:
    told = [_kind(match)] if match.eth_type is not None else []
    if match.fragment:
        told.append("fragments")
    if match.in_port is not None:
        told.append(f"in at port {match.in_port}")
    if match.arp_tpa is not None:
        told.append(f"asking for {match.arp_tpa}")
    sender = [word for word in (match.ipv4_src or match.arp_spa, match.eth_src) if word]
    if sender:
        told.append(f"from {' '.join(sender)}")
    if match.ipv4_dst is not None:
        told.append(f"to {match.ipv4_dst}")
    elif match.eth_dst is not None:
        told.append("to resources" if match.eth_dst == VIRTUAL_MAC else f"to {match.eth_dst}")
    return told


def _kind(match: Match) -> str:
    if match.ip_proto == UDP:
        return "UDP"
    return _TYPES.get(match.eth_type or 0, f"type {match.eth_type:#06x}")


def _actions(actions: Actions, resources: Mapping[int, str]) -> str:
    return ", ".join(words for action in actions if (words := _action(action, resources)))


def _action(action: Action, resources: Mapping[int, str]) -> str:
    if isinstance(action, Output):
        return _PORTS.get(action.port, f"out at port {action.port}")
    if isinstance(action, ToGroup):
        return f"copies for {resources[action.group]}" if action.group in resources else f"group {action.group}"
    if isinstance(action, AnswerArp):
        return f"answered: {action.address} is at {VIRTUAL_MAC}"
    if isinstance(action, Rewrite) and action.what.startswith("ipv4"):
        return f"{'from' if action.what.endswith('src') else 'to'} {action.to}"
    return ""
