"""What of a valid scenario cannot show anything: clients no message is for, expectations nothing can break. Pure.

Called by `bb check`. What came of it in a run is told by `analysis.vacuity`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from battlebrokers.errors import QuantityError
from battlebrokers.scenario.expectations import Expectation, parse_expectation
from battlebrokers.scenario.nodes import DevicePlan
from battlebrokers.scenario.plan import Plan
from battlebrokers.units import format_count

OF_DELIVERIES = frozenset({"expected", "delivered", "lost", "overdue", "indeterminate", "late", "reordered"})
"""Counts of deliveries owed: where none is owed they say nothing."""
_OF_ARRIVALS = OF_DELIVERIES | {"duplicates", "response", "service", "last", "delivered_rate"}
_OF_ANSWERS = frozenset({"acked", "unacked", "refused", "retries", "publish"})
_FILTERS_SHOWN = 3

Tree = dict[str, "Tree"]
"""Topics, level by level."""
_END = "\0"
"""Where a topic ends; no topic contains it."""


def warnings(plan: Plan) -> list[str]:
    """One sentence for each such thing; empty for a scenario that shows what it asks for."""
    speaking = [name for name, fleet in plan.scenario.fleets.items() if fleet.devices and fleet.every]
    lines = _unheard(plan) if speaking else []
    for text in plan.scenario.expect:
        try:
            expectation = parse_expectation(text)
        except QuantityError:
            continue
        if why := _vacuous(expectation, plan, speaking):
            lines.append(f"`{text}` can never fail: {why}.")
    return lines


def _vacuous(expectation: Expectation, plan: Plan, speaking: list[str]) -> str:
    """Why an expectation is worth nothing here; empty if it is worth something."""
    if expectation.holds_always:
        return "it holds whatever happens"
    about = expectation.latency[0] if expectation.latency else expectation.metric
    clients = plan.scenario.clients.values()
    listening = any(group.count and group.subscribe for group in clients)
    if about in ("subscribe", "subscribe_failures"):
        return "" if listening else "nobody subscribes"
    if about in ("connect", "connect_failures"):
        return "" if plan.device_count + plan.client_count else "nobody connects"
    if not speaking:
        return "nothing is sent"
    if about in _OF_ARRIVALS and not plan.estimate.deliveries:
        return "no client is owed any message"
    if about == "wills" and not _has_wills(plan):
        return "nobody has a last will"
    if about in _OF_ANSWERS and not any(_is_answered(plan, name) for name in speaking):
        return "no publish is answered at QoS 0"
    return ""


def _has_wills(plan: Plan) -> bool:
    connections = chain((one.connection for one in plan.devices()), (one.connection for one in plan.clients()))
    return any(connection.will for connection in connections)


def _is_answered(plan: Plan, fleet: str) -> bool:
    """Whether publishes of a fleet get an answer; of a protocol that is chosen later nobody knows."""
    one = plan.scenario.fleets[fleet]
    protocol = one.protocol or plan.scenario.protocol or "mqtt"
    return protocol != "udp" and (protocol != "mqtt" or bool(one.qos))


def _unheard(plan: Plan) -> list[str]:
    """The groups with clients that no message is for, and filters that match nothing."""
    tree = _tree(plan.devices())
    unheard: dict[str, int] = {}
    unmatched: dict[str, dict[str, None]] = {}
    for client in plan.clients():
        missed = [one.filter for one in client.subscriptions if not _reaches(tree, one.filter.split("/"))]
        unmatched.setdefault(client.fleet, {}).update(dict.fromkeys(missed[:_FILTERS_SHOWN]))
        if missed and len(missed) == len(client.subscriptions):
            unheard[client.fleet] = unheard.get(client.fleet, 0) + 1
    lines = []
    for name, filters in unmatched.items():
        if not filters:
            continue
        shown = ", ".join(list(filters)[:_FILTERS_SHOWN]) + (" …" if len(filters) > _FILTERS_SHOWN else "")
        count, of = unheard.get(name, 0), plan.scenario.clients[name].count
        who = (
            f"{format_count(count)} of {format_count(of)} clients get no message" if count else "not all filters match"
        )
        lines.append(f"{name}: {who}, because no fleet publishes to {shown}.")
    return lines


def _tree(devices: Iterable[DevicePlan]) -> Tree:
    root: Tree = {}
    for device in devices:
        will = device.connection.will
        for topic in (*device.topics, *([will.topic] if will else [])):
            node = root
            for level in topic.split("/"):
                node = node.setdefault(level, {})
            node[_END] = {}
    return root


def _reaches(node: Tree, levels: list[str], depth: int = 0) -> bool:
    """Whether a topic below this node is meant by the levels of a filter from `depth` on."""
    if depth == len(levels):
        return _END in node
    level = levels[depth]
    if level == "#":
        # `a/#` means `a` as well; wildcards at the beginning do not mean topics such as `$SYS`.
        return any(depth or not name.startswith("$") for name in node)
    if level == "+":
        names = (name for name in node if name != _END and (depth or not name.startswith("$")))
        return any(_reaches(node[name], levels, depth + 1) for name in names)
    return level in node and _reaches(node[level], levels, depth + 1)
