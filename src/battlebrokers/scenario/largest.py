"""The largest message a plan can make: what one connection may have to take in at once follows from it.

Called by workers before they connect anybody. Nodes are sampled, as for estimates; who uses it leaves room.
"""

from __future__ import annotations

from itertools import chain, islice

from battlebrokers.scenario.payloads import PayloadSource, largest_payload_bytes
from battlebrokers.scenario.plan import ConnectionPlan, DevicePlan, Plan

_SAMPLED_NODES = 8
_SAMPLED_MESSAGES = 16
_GROWTH = 2
"""Texts made from templates vary with names and numbers; those of the sample by less than this."""


def largest_message_bytes(plan: Plan) -> int:
    """Payload and topic of the largest message any device, or any last will, can cause."""
    devices = (_of_device(each) for nodes in plan.device_groups for each in islice(nodes, _SAMPLED_NODES))
    clients = (_of_will(each.connection) for nodes in plan.client_groups for each in islice(nodes, _SAMPLED_NODES))
    return max(chain(devices, clients), default=0)


def _of_device(device: DevicePlan) -> int:
    topic_bytes = max((len(topic.encode()) for topic in device.topics), default=0)
    return max(_of_will(device.connection), _GROWTH * topic_bytes + _payload_bytes(device))


def _of_will(connection: ConnectionPlan) -> int:
    will = connection.will
    return _GROWTH * (len(will.topic.encode()) + len(will.payload.encode())) if will is not None else 0


def _payload_bytes(device: DevicePlan) -> int:
    known = largest_payload_bytes(device.payload)
    if known is not None:
        return known
    source = PayloadSource(device.payload, device.seed)
    return _GROWTH * max(len(source.one(seq)) for seq in range(_SAMPLED_MESSAGES))
