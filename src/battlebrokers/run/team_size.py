"""How many engine processes a load wants. Pure; asked by the orchestrator."""

from __future__ import annotations

from battlebrokers.contenders.broker_url import LOOPBACK
from battlebrokers.scenario.plan import Plan

_EVENTS_PER_PROCESS = 60_000
_CONNECTIONS_PER_PROCESS = 15_000


def suggest_processes(plan: Plan, cores: int) -> int:
    """As many as the rate and the connections ask for; no more than cores, unless connections need them."""
    if any(fleet.protocol == LOOPBACK for fleet in plan.scenario.fleets.values()):
        return 1  # whose memory it is
    events_per_s = plan.messages_per_s + plan.deliveries_per_s
    needed = -(-(plan.device_count + plan.client_count) // _CONNECTIONS_PER_PROCESS)
    wanted = max(1, round(events_per_s / _EVENTS_PER_PROCESS), needed)
    return min(wanted, max(cores, needed))
