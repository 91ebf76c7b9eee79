"""How figures are written, the same in every report: units, infinity, nothing measured."""

from __future__ import annotations

import math

from battlebrokers.analysis.metrics import Metric, latency_of
from battlebrokers.analysis.model import Percentiles
from battlebrokers.analysis.quantiles import samples_for
from battlebrokers.clock import MILLISECOND_NS, SECOND_NS
from battlebrokers.units import format_count, format_duration, format_percent, format_rate, format_size

NOTHING = "–"
"""What stands where nothing was measured."""
LEVEL_NAMES = {"p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99", "p999": "p99.9", "max": "max", "mean": "mean"}
KIND_NAMES = {
    "response": "delivery",
    "service": "service",
    "publish": "publish",
    "lag": "generator lag",
    "held": "held back",
    "last": "last listener",
}
KIND_ABOUT = {
    "response": "planned send → arrival",
    "service": "actual send → arrival",
    "publish": "send → acknowledgement",
    "lag": "planned → actual send, nothing held it",
    "held": "planned → actual send, held by window, socket or connection",
    "last": "planned send → arrival at the last listener",
}


def duration_ms(value_ms: float | None) -> str:
    """A latency in milliseconds, in words."""
    return NOTHING if value_ms is None else format_duration(value_ms * MILLISECOND_NS)


def duration_s(value_s: float | None) -> str:
    """A duration in seconds, in words."""
    return NOTHING if value_s is None else format_duration(value_s * SECOND_NS)


def level_text(found: Percentiles, level: str) -> str:
    """One stated percentile, in words; infinite ones as ∞, those with too few samples with the number they need."""
    return too_few(found.needed[level]) if level in found.needed else duration_ms(latency_of(found, level))


def delivered_text(found: Percentiles) -> str:
    """The percentiles of those that arrived, in one line."""
    return "  ".join(
        f"{LEVEL_NAMES[name]} "
        + (too_few(found.needed_of_delivered[name]) if name in found.needed_of_delivered else duration_ms(value))
        for name, value in found.of_delivered.items()
    )


def too_few(needed: int) -> str:
    """What stands for a percentile that needs more samples than there are."""
    return f"{NOTHING} (n≥{format_count(needed)})"


def share_text(part: float, whole: float) -> str:
    """A part of a whole as a percentage."""
    return format_percent(part / whole) if whole else NOTHING


def point_text(value_ns: float | None, n: int, p: float) -> str:
    """The p-quantile of n values, in words; 0 and 1 are the shortest and the longest, which need no more than one."""
    if value_ns is None:
        return NOTHING
    return format_duration(value_ns) if is_carried(n, p) else too_few(samples_for(p))


def is_carried(n: int, p: float) -> bool:
    """Whether n values carry the p-quantile."""
    return p in (0.0, 1.0) or n >= samples_for(p)


def metric_text(metric: Metric, value: float | None, needed: int | None = None) -> str:
    """A compared figure, in its unit; `needed`: how many samples it would need, if it has too few."""
    if value is None:
        return NOTHING if needed is None else too_few(needed)
    if metric.unit == "ms":
        return duration_ms(value)
    if metric.unit == "per_s":
        return format_rate(value)
    if metric.unit == "share":
        return format_percent(value)
    return format_size(value) if metric.unit == "bytes" else format_count(value)


def ratio_text(value: float | None) -> str:
    """A ratio such as 1.94×."""
    if value is None:
        return NOTHING
    return "∞" if math.isinf(value) or value > 1e6 else f"{format_count(value)}×"


def some(count: int, noun: str) -> str:
    """A count with its noun: 1 device, 2 000 devices."""
    return f"{format_count(count)} {noun}" if count == 1 else f"{format_count(count)} {noun}s"
