"""Connects, subscribes, registrations, … that did not succeed, by kind. Pure: recorded operations in, counts out.

What becomes of publishes is in `middleware`; both name kinds alike.
"""

from __future__ import annotations

from collections import Counter

import pyarrow.compute as pc

from battlebrokers.analysis.columns import text_scalar
from battlebrokers.analysis.facts import Facts
from battlebrokers.analysis.middleware import failure_kind

Attempt = tuple[str, str, str, str]
"""Role, fleet, kind of operation, kind of failure."""
WRONG_ARRIVALS = {
    "malformed": "packets from the broker were malformed",
    "oversized": "messages from the broker were larger than anything this run can cause, and were not kept",
    "unreadable": "notifications were not as the contender's file says",
    "stray_acknowledgements": "acknowledgements of the broker named no message or request of ours",
}
"""Counters of workers for what came in and was no message, and how that is told."""


def failed_attempts(facts: Facts) -> Counter[Attempt]:
    """How often which operation of whom failed, and how."""
    nodes = facts.nodes.select(["role", "node", "fleet", "protocol"]).to_pylist()
    known = {(row["role"], row["node"]): (row["fleet"], row["protocol"].partition(" ")[0]) for row in nodes}
    failed = facts.operations.filter(pc.not_equal(facts.operations["outcome"], text_scalar("ok")))
    found: Counter[Attempt] = Counter()
    for row in failed.select(["role", "node", "kind", "outcome", "reason"]).to_pylist():
        # The controller's own acts belong to no node, and go over HTTP.
        fleet, protocol = known.get((row["role"], row["node"]), ("", "http"))
        found[row["role"], fleet, row["kind"], attempt_kind(row["outcome"], row["reason"], protocol)] += 1
    return found


def summed_attempts(facts: Facts) -> Counter[Attempt]:
    """The same from the measures, where the evidence is gone: they know outcomes, but no kinds."""
    failed = facts.actions.filter(pc.not_equal(facts.actions["outcome"], text_scalar("ok")))
    return Counter({(row["role"], row["fleet"], row["kind"], row["outcome"]): row["n"] for row in failed.to_pylist()})


def attempt_kind(outcome: str, reason: int | None, protocol: str) -> str:
    """Why it failed: `timeout`, `TLS`, `status 401`, `reason 135`; the outcome where nobody gave a reason."""
    return outcome if not reason else failure_kind(reason, protocol)


def failures_of(attempts: Counter[Attempt], kind: str) -> dict[str, int]:
    """Failures of one kind of operation, the most frequent first."""
    found: Counter[str] = Counter()
    for (_, _, what, why), n in attempts.items():
        if what == kind:
            found[why] += n
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def wrong_arrivals(facts: Facts) -> dict[str, int]:
    """What came in and was no message, by kind, over the whole run."""
    workers = facts.manifest.workers
    counted = {name: sum(worker.counters.get(name, 0) for worker in workers) for name in WRONG_ARRIVALS}
    return {name: n for name, n in counted.items() if n}
