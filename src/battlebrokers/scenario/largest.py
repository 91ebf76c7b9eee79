"""The largest message a plan can make: what one connection may have to take in at once follows from it.

Called by workers before they connect anybody. Nodes are sampled, as for estimates; who uses it leaves room.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from battlebrokers.scenario.payloads import PayloadSource, largest_payload_bytes
from battlebrokers.scenario.plan import ClientPlan, DevicePlan, Plan

_SAMPLED_NODES = 8
_SAMPLED_MESSAGES = 16
_GROWTH = 2
"""Texts made from templates vary with names and numbers; those of the sample by less than this."""


def largest_message_bytes(plan: Plan) -> int:
    """Payload and topic of the largest message any device, or any last will, can cause."""
    groups: list[Iterator[DevicePlan] | Iterator[ClientPlan]] = [*plan.device_groups, *plan.client_groups]
    return max((_of_node(node) for nodes in groups for node in islice(nodes, _SAMPLED_NODES)), default=0)


def _of_node(node: DevicePlan | ClientPlan) -> int:
    will = node.connection.will
    largest = _GROWTH * (len(will.topic.encode()) + len(will.payload.encode())) if will is not None else 0
    if isinstance(node, DevicePlan):
        topic_bytes = max((len(topic.encode()) for topic in node.topics), default=0)
        largest = max(largest, _GROWTH * topic_bytes + _payload_bytes(node))
    return largest


def _payload_bytes(device: DevicePlan) -> int:
    known = largest_payload_bytes(device.payload)
    if known is not None:
        return known
    source = PayloadSource(device.payload, device.seed)
    return _GROWTH * max(len(source.one(seq)) for seq in range(_SAMPLED_MESSAGES))
