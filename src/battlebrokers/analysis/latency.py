"""Latencies of the measure phase as the summary states them: percentiles in milliseconds, from merged buckets."""

from __future__ import annotations

import math

from battlebrokers.analysis.facts import MEASURE, Facts, where
from battlebrokers.analysis.model import Latencies, Percentiles
from battlebrokers.analysis.quantiles import Distribution, distributions

LEVELS: dict[str, float] = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99, "p999": 0.999}
"""The percentiles we state, by name."""


def percentiles(found: Distribution) -> Percentiles:
    """The stated percentiles of a distribution."""
    values = {name: found.quantile_ns(p) for name, p in LEVELS.items()}
    infinite = [name for name, value in values.items() if value is not None and math.isinf(value)]
    of_delivered = {}
    if found.lost:
        of_delivered = {name: _ms(found.quantile_ns(p, of_arrived=True)) for name, p in LEVELS.items()}
    return Percentiles(
        **{name: _ms(value) for name, value in values.items()},
        max=_ms(found.max_arrived_ns),
        mean=_ms(found.mean_ns),
        n=found.total,
        lost=found.lost,
        infinite=infinite,
        of_delivered=of_delivered,
    )


def measured(facts: Facts, kind: str) -> Distribution:
    """All values of one kind in the measure phase."""
    return Distribution.from_rows(where(facts.latencies, kind=kind, phase=MEASURE))


def latencies(facts: Facts) -> Latencies:
    """Every kind, over all fleets."""
    return Latencies(
        response=percentiles(measured(facts, "response")),
        service=percentiles(measured(facts, "service")),
        lag=percentiles(measured(facts, "lag")),
        publish=percentiles(measured(facts, "publish")),
        held=percentiles(measured(facts, "held")),
        last=percentiles(measured(facts, "last")),
    )


def per_second(facts: Facts, kind: str, *, phase: str | None = None) -> dict[int, Distribution]:
    """One distribution per second of planned time, over all load phases or one of them."""
    rows = where(facts.latencies, kind=kind)
    rows = where(rows, phase=phase) if phase else rows
    return {int(str(key[0])): found for key, found in distributions(rows, ["second"]).items()}


def _ms(value_ns: float | None) -> float | None:
    return None if value_ns is None or math.isinf(value_ns) else round(value_ns / 1e6, 4)
