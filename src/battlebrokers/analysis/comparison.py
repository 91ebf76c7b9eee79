"""Two runs side by side: baseline and contender, figure by figure, with better, worse or noise as the answer.

Refuses runs whose plan, seed or machine differ, or one of which is VOID, unless asked to compare anyway; of a VOID run
no figure is called better or worse. Noise is what one run can tell of
itself: its seconds are resampled. Differences between repeats are the business of `ranking`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from battlebrokers.analysis.capture_cost import CaptureCost, cost_of_capturing
from battlebrokers.analysis.facts import MEASURE, Facts
from battlebrokers.analysis.interval import bootstrap_quantile
from battlebrokers.analysis.latency import LEVELS, per_second
from battlebrokers.analysis.metrics import METRICS, Metric, is_latency, needed_for
from battlebrokers.analysis.model import Summary
from battlebrokers.analysis.ranking import other_load
from battlebrokers.errors import UsageError
from battlebrokers.tables.manifest import Manifest
from battlebrokers.units import format_duration

NOISE_MARGIN = 0.05
"""Relative differences up to this are noise, whatever the interval says."""
Answer = Literal["better", "worse", "noise", "same", "not judged"]

_MACHINE_WORDS = ("cpu", "core", "memory", "machine", "arch", "kernel", "hostname", "governor", "system")
_VOLATILE_WORDS = ("free", "available", "used", "percent", "load", "mhz", "freq", "uptime", "time")


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of both runs; low–high bounds contender ÷ baseline where seconds could be resampled."""

    metric: Metric
    baseline: float | None
    """None: too few samples; the number that is needed is in `needed`."""
    contender: float | None
    low: float | None
    high: float | None
    answer: Answer
    needed: int | None = None

    @property
    def ratio(self) -> float | None:
        """Contender ÷ baseline."""
        if self.baseline is None or self.contender is None or math.isinf(self.baseline) or self.baseline == 0:
            return None
        return self.contender / self.baseline


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both runs, what differs in how they were made, and every figure both have."""

    baseline: Summary
    contender: Summary
    differences: tuple[str, ...]
    rows: tuple[Row, ...]
    capture_cost: CaptureCost | None = None
    """What capturing cost, if one of two otherwise equal runs captured."""
    void: tuple[str, ...] = ()
    """Which of the two are VOID, and why."""
    disturbed: tuple[str, ...] = ()
    """In which of the two others used more of the machine than the limit: no latency is called better or worse."""

    def to_dict(self) -> dict[str, Any]:
        """What `bb compare --json` prints."""
        return {
            "baseline": self.baseline.run,
            "contender": self.contender.run,
            "void": list(self.void),
            "disturbed": list(self.disturbed),
            "differences": list(self.differences),
            "metrics": [
                {
                    "name": row.metric.name,
                    "unit": row.metric.unit,
                    "baseline": _finite(row.baseline),
                    "contender": _finite(row.contender),
                    "ratio": _finite(row.ratio),
                    "low": _finite(row.low),
                    "high": _finite(row.high),
                    "answer": row.answer,
                    "needed": row.needed,
                }
                for row in self.rows
            ],
            "capture_cost": self.capture_cost.to_dict() if self.capture_cost is not None else None,
        }


def compare(baseline: tuple[Facts, Summary], contender: tuple[Facts, Summary], *, anyway: bool = False) -> Comparison:
    """Compare two runs; refuse with the reasons if they were not made alike and `anyway` is not set."""
    differences = tuple(incomparable(baseline[0], contender[0]))
    void = tuple(_void_words(summary) for _, summary in (baseline, contender) if summary.verdict == "VOID")
    if void and not anyway:
        reasons = "".join(f"\n  {reason}" for reason in void)
        raise UsageError(
            f"nothing can be said of a measurement that is VOID:{reasons}",
            hint="Measure again; `--anyway` prints the figures side by side all the same, without an answer.",
        )
    if differences and not anyway:
        reasons = "".join(f"\n  {reason}" for reason in differences)
        raise UsageError(
            f"{baseline[1].run} and {contender[1].run} were not made alike:{reasons}",
            hint="`--anyway` compares them all the same.",
        )
    rows = [row for metric in METRICS if (row := _row(metric, baseline, contender)) is not None]
    if void:
        rows = [replace(row, answer="not judged") for row in rows]
    disturbed = tuple(
        f"in {summary.run} {check.sentence}"
        for _, summary in (baseline, contender)
        if (check := other_load(summary)) is not None
    )
    if disturbed:
        rows = [replace(row, answer="not judged") if is_latency(row.metric) else row for row in rows]
    cost = None
    if not differences:
        figures = [
            (row.metric, row.baseline, row.contender, row.answer in ("noise", "same"))
            for row in rows
            if row.baseline is not None and row.contender is not None
        ]
        cost = cost_of_capturing(
            baseline[0].manifest, contender[0].manifest, figures, trusted=not void and not disturbed
        )
    return Comparison(baseline[1], contender[1], differences, tuple(rows), cost, void, disturbed)


def _void_words(summary: Summary) -> str:
    return f"{summary.run} is VOID: {'; '.join(summary.reasons)}"


def incomparable(first: Facts, second: Facts) -> list[str]:
    """Why two runs do not compare strictly, in words; empty if they do."""
    a, b = first.manifest, second.manifest
    found = []
    if a.scenario.name != b.scenario.name:
        found.append(f"the scenarios differ: {a.scenario.name} and {b.scenario.name}")
    elif a.seed != b.seed:
        found.append(f"the seeds differ: {a.seed} and {b.seed}")
    elif a.plan_sha256 != b.plan_sha256:
        found.append("the plans differ: other scenario text, overrides or scale")
    if a.tick_ns != b.tick_ns:
        found.append(f"sends and arrivals were handled {_handled(a)} and {_handled(b)}: give both as many processes")
    for key in sorted(a.host.keys() & b.host.keys()):
        name = key.lower()
        stable = any(word in name for word in _MACHINE_WORDS) and not any(word in name for word in _VOLATILE_WORDS)
        if stable and a.host[key] != b.host[key]:
            found.append(f"the machines differ in {key}: {_short(a.host[key])} and {_short(b.host[key])}")
    ours = a.versions.get("battlebrokers"), b.versions.get("battlebrokers")
    if ours[0] != ours[1]:
        found.append(f"the versions of BattleBrokers differ: {ours[0]} and {ours[1]}")
    return found


def _row(metric: Metric, baseline: tuple[Facts, Summary], contender: tuple[Facts, Summary]) -> Row | None:
    """One figure of both; None if it was not measured in one of them."""
    before, after = metric.read(baseline[1]), metric.read(contender[1])
    needed = needed_for(metric, baseline[1]), needed_for(metric, contender[1])
    if before is None or after is None:
        known = (before is not None or needed[0]) and (after is not None or needed[1])
        return Row(metric, before, after, None, None, "not judged", needed[0] or needed[1]) if known else None
    if metric.name == "lost":
        return Row(metric, before, after, None, None, _loss_answer(baseline[1], contender[1]))
    low, high = _ratio_interval(metric, baseline[0], contender[0])
    return Row(metric, before, after, low, high, _answer(metric, before, after, low, high))


def _answer(metric: Metric, before: float, after: float, low: float | None, high: float | None) -> Answer:
    if before == after:
        return "same"
    if not math.isinf(before) and not math.isinf(after):
        near = abs(after - before) <= NOISE_MARGIN * max(abs(before), abs(after))
        if near or (low is not None and high is not None and low <= 1 <= high):
            return "noise"
    return "better" if (after < before) == metric.lower_is_better else "worse"


def _ratio_interval(metric: Metric, baseline: Facts, contender: Facts) -> tuple[float | None, float | None]:
    kind, _, level = metric.name.partition("_")
    if level not in LEVELS:
        return None, None
    ours = bootstrap_quantile(per_second(contender, kind, phase=MEASURE), LEVELS[level], seed=1)
    theirs = bootstrap_quantile(per_second(baseline, kind, phase=MEASURE), LEVELS[level], seed=2)
    if ours is None or theirs is None or theirs[0] <= 0 or math.isinf(theirs[1]):
        return None, None
    return ours[0] / theirs[1], ours[1] / theirs[0]


def _loss_answer(baseline: Summary, contender: Summary) -> Answer:
    """Two-proportion test at 95 %."""
    a, b = baseline.messages, contender.messages
    if a.lost * b.expected == b.lost * a.expected:
        return "same"
    pooled = (a.lost + b.lost) / (a.expected + b.expected)
    deviation = math.sqrt(pooled * (1 - pooled) * (1 / a.expected + 1 / b.expected))
    difference = b.lost / b.expected - a.lost / a.expected
    if deviation > 0 and abs(difference) / deviation < 1.96:
        return "noise"
    return "better" if difference < 0 else "worse"


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 6)


def _handled(manifest: Manifest) -> str:
    return f"every {format_duration(manifest.tick_ns)}" if manifest.tick_ns else "as they came"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
