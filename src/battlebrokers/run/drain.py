"""When the drain is over: the rule by which an engine stops waiting for messages after the load. Pure.

Called by the engine many times a second. What is outstanding when it ends is classified by `pipeline.steps.journeys`.
"""

from __future__ import annotations

from battlebrokers.scenario.nodes import PhasesPlan


def is_drained(phases: PhasesPlan, *, waited_ns: int, silent_ns: int, open_acks: bool) -> bool:
    """Whether to stop waiting, `waited_ns` after the load and `silent_ns` after the latest arrival.

    `drain` bounds the wait for a silent broker; one that still delivers is given up to `longest_drain_ns`.
    """
    if waited_ns >= phases.longest_drain_ns:
        return True
    if waited_ns >= phases.drain_ns:
        return silent_ns >= phases.quiet_ns
    return min(waited_ns, silent_ns) >= phases.quiet_ns and not open_acks
