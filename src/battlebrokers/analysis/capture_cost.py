"""What capturing cost: the difference between two runs that are equal but for a capture. Part of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from battlebrokers.analysis.metrics import Metric
from battlebrokers.tables.manifest import Manifest

MEASURED_BY = ("response_p50", "response_p99", "publish_p99", "delivered_rate", "sent_rate")


@dataclass(frozen=True, slots=True)
class Cost:
    """One figure without and with a capture; `noise`: the difference may be chance."""

    metric: Metric
    without: float
    with_capture: float
    noise: bool

    @property
    def ratio(self) -> float | None:
        """With ÷ without."""
        finite = 0 < self.without < float("inf") and self.with_capture < float("inf")
        return self.with_capture / self.without if finite else None


@dataclass(frozen=True, slots=True)
class CaptureCost:
    """Which run captured, how much, and what that did to latency and rate."""

    captured: str
    packets: int
    dropped: int
    costs: tuple[Cost, ...]
    trusted: bool = True
    """Whether neither run is VOID."""

    def to_dict(self) -> dict[str, Any]:
        """As part of what `bb compare --json` prints."""
        return {
            "captured": self.captured,
            "packets": self.packets,
            "dropped": self.dropped,
            "trusted": self.trusted,
            "metrics": [
                {
                    "name": cost.metric.name,
                    "without": _finite(cost.without),
                    "with": _finite(cost.with_capture),
                    "ratio": _finite(cost.ratio),
                    "noise": cost.noise,
                }
                for cost in self.costs
            ],
        }


def cost_of_capturing(
    baseline: Manifest,
    contender: Manifest,
    figures: Sequence[tuple[Metric, float, float, bool]],
    *,
    trusted: bool = True,
) -> CaptureCost | None:
    """The cost, if one of two otherwise equal runs captured; figures: (metric, baseline, contender, noise)."""
    did = has_captured(baseline), has_captured(contender)
    if did[0] == did[1] or not _same_broker(baseline, contender):
        return None
    captured = baseline if did[0] else contender
    costs = [
        Cost(metric, *((after, before) if did[0] else (before, after)), noise)
        for metric, before, after, noise in figures
        if metric.name in MEASURED_BY
    ]
    return CaptureCost(
        captured=captured.run,
        packets=sum(each.packets or 0 for each in captured.captures),
        dropped=sum(each.dropped or 0 for each in captured.captures),
        costs=tuple(costs),
        trusted=trusted,
    )


def has_captured(manifest: Manifest) -> bool:
    """Whether a run has a capture of anything."""
    return any(each.files for each in manifest.captures)


def _same_broker(a: Manifest, b: Manifest) -> bool:
    ours, theirs = a.contender, b.contender
    same = (ours.name, ours.version, ours.profile) == (theirs.name, theirs.version, theirs.profile)
    return same and ours.config_sha256 == theirs.config_sha256


def _finite(value: float | None) -> float | None:
    return None if value is None or value in (float("inf"), float("-inf")) else round(value, 6)
