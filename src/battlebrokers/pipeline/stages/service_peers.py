"""Sums of exchanges and messages → `service_peers`: what each service was asked by each of its peers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from battlebrokers.pipeline.stages.peers import OUTSIDE
from battlebrokers.pipeline.stages.responses import Answers, Took
from battlebrokers.pipeline.stages.traffic import TrafficSum
from battlebrokers.tables import SERVICE_PEERS

_QUANTILES = {"response_p50_ns": 0.5, "response_p95_ns": 0.95, "response_p99_ns": 0.99, "response_max_ns": 1.0}

Used = Mapping[str, tuple[float | None, int | None]]
"""Service → mean CPU in percent of a core, highest resident memory."""
Pair = tuple[str, str]


def service_peers(answers: Answers, traffic: TrafficSum, used: Used) -> pa.Table:
    """The rows of `service_peers`; whoever is outside is a peer and no service."""
    said = traffic.between()
    asked: dict[Pair, Took] = {}
    for (asker, answerer, *_), took in answers.kinds():
        asked.setdefault((answerer, asker), Took()).merge(took)
    spoke = {pair for one, other in said for pair in ((one, other), (other, one))}
    rows = [
        _row(service, peer, asked.get((service, peer), Took()), said, used)
        for service, peer in sorted(spoke | set(asked))
        if service != OUTSIDE
    ]
    return pa.Table.from_pylist(rows, schema=SERVICE_PEERS.arrow_schema())


def _row(service: str, peer: str, took: Took, said: Mapping[Pair, tuple[int, int]], used: Used) -> dict[str, Any]:
    answered = took.n - took.unanswered
    received, sent = said.get((peer, service), (0, 0)), said.get((service, peer), (0, 0))
    cpu_percent, rss_bytes = used.get(service, (None, None))
    return {
        "service": service, "peer": peer, "requests": took.n, "answered": answered, "failed": took.failed,
        "unanswered": took.unanswered, "uncertain": took.uncertain, "request_bytes": took.request_bytes,
        "response_bytes": took.response_bytes, "response_mean_ns": took.total_ns / answered if answered else None,
        **(took.quantiles(_QUANTILES) if answered else {}),
        "received_messages": received[0], "received_bytes": received[1], "sent_messages": sent[0],
        "sent_bytes": sent[1], "cpu_mean_percent": cpu_percent, "rss_max_bytes": rss_bytes,
    }  # fmt: skip
