"""How much may come in: for one connection at once, and for one process in all. A broker can send anything.

Called by the engine and by `linking`. Pure: follows from the plan, with room for what the plan cannot know.
"""

from __future__ import annotations

from battlebrokers.clock import SECOND_NS
from battlebrokers.protocols.base import LARGEST_BYTES
from battlebrokers.scenario.largest import largest_message_bytes
from battlebrokers.scenario.plan import Plan

_LARGER = 4
"""Encodings, envelopes and properties make a message larger than its payload."""
_ENVELOPE_BYTES = 16 << 10
_ROOM_BYTES = 1 << 20
"""For messages of others, as a broker keeps them on topics of ours, while there are few connections…"""
_ROOM_OF_ALL_BYTES = 256 << 20
"""…and what all connections of a process share when there are many."""
_ANSWERS_OF_ALL_BYTES = 1 << 30
"""The same for dialects: an answer may list everything a middleware stores."""
_MORE_ARRIVALS = 4
_FEWEST_ARRIVALS = 1_000_000


def largest_incoming_bytes(plan: Plan, nodes_here: int, *, scripted: bool) -> int:
    """The largest message one connection takes in, so that all together stay within bounds."""
    needed = _LARGER * largest_message_bytes(plan) + _ENVELOPE_BYTES
    each = max(1, nodes_here)
    if scripted:
        return needed + min(LARGEST_BYTES, _ANSWERS_OF_ALL_BYTES // each)
    return needed + min(_ROOM_BYTES, _ROOM_OF_ALL_BYTES // each)


def most_arrivals(plan: Plan) -> int:
    """How many arrivals a process records: several times what the plan expects, repetitions included."""
    load_s = plan.phases.load_ns / SECOND_NS
    expected = max(plan.messages_per_s, plan.deliveries_per_s) * load_s
    return int(_MORE_ARRIVALS * expected) + _FEWEST_ARRIVALS
