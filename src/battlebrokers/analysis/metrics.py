"""The figures by which runs are compared: a name, a unit, which direction is better, and how to read it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from battlebrokers.analysis.model import Latencies, Percentiles, Summary

Unit = Literal["ms", "per_s", "share", "bytes", "count"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a summary; `read` gives infinity for what never arrived and None for what was not measured."""

    name: str
    label: str
    unit: Unit
    lower_is_better: bool
    read: Callable[[Summary], float | None]
    about: str


def latency_of(found: Percentiles, level: str) -> float | None:
    """A stated percentile as a number: infinite if it falls among the lost, None without samples."""
    return math.inf if level in found.infinite else getattr(found, level)


def needed_for(metric: Metric, summary: Summary) -> int | None:
    """How many samples a percentile needs that is not stated because it has fewer; None for any other figure."""
    kind, _, level = metric.name.partition("_")
    spread = getattr(summary.latency_ms, kind, None)
    return spread.needed.get(level) if isinstance(spread, Percentiles) else None


def is_latency(metric: Metric) -> bool:
    """Whether it is a percentile of a latency, which a busy machine makes longer."""
    kind, _, level = metric.name.partition("_")
    return kind in Latencies.__struct_fields__ and level in Percentiles.__struct_fields__


def undelivered_share(summary: Summary) -> float | None:
    """Deliveries that never came (lost, overdue or indeterminate) as a share of those expected."""
    counts = summary.messages
    return (counts.expected - counts.delivered) / counts.expected if counts.expected else None


def lost_share(summary: Summary) -> float | None:
    """Lost deliveries as a share of those expected."""
    return summary.messages.lost / summary.messages.expected if summary.messages.expected else None


def _delivered_rate(summary: Summary) -> float | None:
    return summary.rates.delivered if summary.messages.expected else None


def _cpu_ms_per_1000(summary: Summary) -> float | None:
    """CPU time of the contender per 1000 messages it handled (in and out)."""
    measure_s = next((phase.duration_s for phase in summary.phases if phase.name == "measure"), 0.0)
    handled = summary.messages.sent + summary.messages.delivered
    own = [service.cpu_mean_percent for service in summary.services if service.role == "contender"]
    return sum(own) / 100 * measure_s * 1000 / handled * 1000 if own and handled and measure_s else None


def _rss(summary: Summary) -> float | None:
    own = [service.rss_max_bytes for service in summary.services if service.role == "contender"]
    return float(sum(own)) if own else None


def _latency(kind: str, level: str) -> Callable[[Summary], float | None]:
    return lambda summary: latency_of(getattr(summary.latency_ms, kind), level)


METRICS: tuple[Metric, ...] = (
    Metric("response_p50", "delivery p50", "ms", True, _latency("response", "p50"), "Planned send to arrival: median."),
    Metric("response_p99", "delivery p99", "ms", True, _latency("response", "p99"), "Planned send to arrival: p99."),
    Metric("response_p999", "delivery p99.9", "ms", True, _latency("response", "p999"), "The same: p99.9."),
    Metric("service_p99", "service p99", "ms", True, _latency("service", "p99"), "Actual send to arrival: p99."),
    Metric("publish_p99", "publish p99", "ms", True, _latency("publish", "p99"), "Send to acknowledgement: p99."),
    Metric("delivered_rate", "delivered", "per_s", False, _delivered_rate, "First arrivals per second."),
    Metric("sent_rate", "sent", "per_s", False, lambda summary: summary.rates.sent, "Messages sent per second."),
    Metric("lost", "lost", "share", True, lost_share, "Lost deliveries as a share of those expected."),
    Metric(
        "undelivered",
        "never arrived",
        "share",
        True,
        undelivered_share,
        "Lost, overdue and indeterminate deliveries as a share of those expected.",
    ),
    Metric("cpu", "broker CPU / 1000 messages", "ms", True, _cpu_ms_per_1000, "CPU time per 1000 messages in and out."),
    Metric("rss", "broker memory", "bytes", True, _rss, "Highest resident memory of the contender."),
)

BY_NAME = {metric.name: metric for metric in METRICS}
