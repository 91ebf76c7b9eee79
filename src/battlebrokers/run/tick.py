"""The tick: how coarsely an engine process handles sends and arrivals. Decided once, from the plan alone. Pure.

Asked by the orchestrator before the load. It never looks at the broker: a load that adapts to it is no open loop.
"""

from __future__ import annotations

from battlebrokers.clock import MILLISECOND_NS
from battlebrokers.scenario.plan import Plan

TICK_NS = 4 * MILLISECOND_NS
"""Measured: 1 and 2 ms saved little of the time a process spends waking up, 4 ms two thirds of it."""
FINE_UP_TO_PER_S = 100_000
"""Messages sent and received a second that one process handles as they come. More than the orchestrator gives a
process as long as there are cores for another one: ticks are for those who have none, or who asked for fewer."""


def tick_ns(plan: Plan, processes: int) -> int:
    """The tick of each of so many processes, among which the plan is split evenly; 0 is none."""
    # An acknowledgement that waits for a tick would keep a window closed, ours or the broker's.
    if any(fleet.devices and (fleet.qos or fleet.protocol != "mqtt") for fleet in plan.scenario.fleets.values()):
        return 0
    per_s = (plan.messages_per_s + plan.deliveries_per_s) / processes
    return TICK_NS if per_s > FINE_UP_TO_PER_S else 0
