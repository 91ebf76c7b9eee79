"""Latencies of the measure phase as the summary states them: percentiles in milliseconds, from merged buckets."""

from __future__ import annotations

import math

from battlebrokers.analysis.facts import MEASURE, Facts, where
from battlebrokers.analysis.model import Latencies, Percentiles
from battlebrokers.analysis.quantiles import Distribution, distributions, samples_for

LEVELS: dict[str, float] = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99, "p999": 0.999}
"""The percentiles we state, by name."""


def needed_samples(level: str) -> int:
    """How many samples a stated percentile needs; 1 for `max` and `mean`."""
    return samples_for(LEVELS[level]) if level in LEVELS else 1


def missing_samples(total: int) -> dict[str, int]:
    """The percentiles that so many samples do not carry, with the number each needs; empty without any sample."""
    return {name: needed for name in LEVELS if 0 < total < (needed := needed_samples(name))}


def percentiles(found: Distribution) -> Percentiles:
    """The stated percentiles of a distribution; those its samples do not carry are left out and named in `needed`."""
    values = {name: found.quantile_ns(p) for name, p in LEVELS.items()}
    infinite = [name for name, value in values.items() if value is not None and math.isinf(value)]
    needed, needed_of_delivered = missing_samples(found.total), missing_samples(found.arrived)
    # Above a percentile that is known to be infinite all are.
    known = next((place for place, name in enumerate(LEVELS) if name in infinite and name not in needed), len(LEVELS))
    needed = {name: n for place, (name, n) in enumerate(needed.items(), len(LEVELS) - len(needed)) if place < known}
    infinite = [name for name in infinite if name not in needed]
    values = {name: None if name in needed else value for name, value in values.items()}
    of_delivered = {}
    if found.lost:
        of_delivered = {
            name: None if name in needed_of_delivered else _ms(found.quantile_ns(p, of_arrived=True))
            for name, p in LEVELS.items()
        }
    return Percentiles(
        **{name: _ms(value) for name, value in values.items()},
        max=_ms(found.max_arrived_ns),
        mean=_ms(found.mean_ns),
        n=found.total,
        lost=found.lost,
        infinite=infinite,
        of_delivered=of_delivered,
        needed=needed,
        needed_of_delivered=needed_of_delivered if found.lost else {},
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
