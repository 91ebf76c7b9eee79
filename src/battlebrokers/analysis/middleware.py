"""What publishing through a contender costs: sizes, answers, failures by kind. Pure: facts in, figures out."""

from __future__ import annotations

import pyarrow.compute as pc

from battlebrokers.analysis.facts import MEASURE, Facts, total, where
from battlebrokers.analysis.model import Action, Bytes, Latencies, Messages, Middleware, Percentiles, Publishing
from battlebrokers.clock import SECOND_NS
from battlebrokers.tables.publishes import FAILURES


def failures(facts: Facts) -> dict[str, int]:
    """Refused and failed publishes of the measure phase by kind, the most frequent first."""
    spoken = protocols(facts)
    found: dict[str, int] = {}
    for row in where(facts.failures, phase=MEASURE).to_pylist():
        kind = failure_kind(row["reason"], spoken.get(row["fleet"], ""))
        found[kind] = found.get(kind, 0) + row["n"]
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def failure_kind(reason: int | None, protocol: str) -> str:
    """A reason in words: ours by name, a broker's by its number."""
    if reason is None:
        return "refused"
    if reason < 0:
        return FAILURES.get(reason, f"failure {reason}")
    return f"reason {reason}" if protocol in ("mqtt", "amqp") else f"status {reason}"


def protocols(facts: Facts) -> dict[str, str]:
    """Fleet or group of clients → the protocol it spoke, as recorded with its nodes."""
    rows = zip(facts.nodes["fleet"].to_pylist(), facts.nodes["protocol"].to_pylist(), strict=True)
    return {fleet: protocol.partition(" ")[0] for fleet, protocol in sorted(set(rows))}


def middleware(
    facts: Facts,
    messages: Messages,
    publishing: Publishing,
    latencies: Latencies,
    volumes: Bytes,
    actions: dict[str, Action],
) -> Middleware:
    """The measures that middlewares are compared by."""
    rows = where(facts.publishing, phase=MEASURE)
    first_ns = pc.min(rows["first_sent_ns"]).as_py()
    ends_ns = [pc.max(rows[name]).as_py() for name in ("last_sent_ns", "last_acked_ns")]
    last_ns = max((end_ns for end_ns in ends_ns if end_ns is not None), default=None)
    total_s = None if first_ns is None or last_ns is None else (last_ns - first_ns) / SECOND_NS
    failed = publishing.refused + publishing.failed + publishing.unacked + publishing.unsent

    def mean(amount_bytes: int) -> float | None:
        return round(amount_bytes / messages.sent, 2) if messages.sent else None

    def spread(kind: str) -> Percentiles:
        return actions[kind].latency_ms if kind in actions else Percentiles()

    return Middleware(
        protocols=protocols(facts),
        publish_ms=latencies.publish,
        subscribe_ms=spread("subscribe"),
        register_ms=spread("register"),
        total_publish_s=None if total_s is None else round(total_s, 4),
        successful=messages.planned - failed,
        failed=failed,
        payload_bytes=mean(volumes.payload),
        structure_bytes=mean(volumes.marshalled),
        url_bytes=mean(total(rows, "url_bytes")),
        wire_bytes=mean(volumes.wire_sent),
        overhead=round(volumes.wire_sent / volumes.payload, 3) if volumes.payload else None,
        traffic_bytes=volumes.total,
        generated_bytes_per_s=round(volumes.marshalled / total_s, 2) if total_s else None,
    )
