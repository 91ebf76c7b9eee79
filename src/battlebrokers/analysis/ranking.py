"""A battle's outcome: contenders compared block by block and ranked. Pure: summaries in, ranking out (told by `story`).

Blocks (repeats) are the unit: per block a ratio, over blocks the median ratio with an order-statistic interval.
"Same" is a possible answer. Runs that are VOID are left out of every figure; where others used the machine, or fewer
than two contenders have a trusted run, latency or everything goes unranked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from battlebrokers.analysis.interval import log_ratio, median_interval, median_ratio
from battlebrokers.analysis.metrics import BY_NAME, METRICS, Metric, is_latency, needed_for, undelivered_share
from battlebrokers.analysis.model import Check, Summary
from battlebrokers.errors import QuantityError
from battlebrokers.scenario.expectations import parse_expectation

MARGIN = 0.05
"""Ratios within ±5 % of 1 count as the same."""
RatioAnswer = Literal["better", "worse", "same", "unclear"]
_Merit = tuple[bool, bool, float, float]
"""All void? None passed? Share that never arrived; the deciding figure. Smaller is better."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """`of` against `to` in one metric: their values' ratio, and whether `of` is better."""

    metric: Metric
    of: str
    to: str
    ratio: float
    low: float
    high: float
    confident: bool
    """Whether low–high is a 95 % interval; if not, it is the range over the blocks."""
    blocks: int
    answer: RatioAnswer


@dataclass(frozen=True, slots=True)
class Standing:
    """One contender's place; `values` are medians over its blocks, by metric name."""

    rank: int | None
    """None: it cannot be ranked, because it, or every other, has no trusted run."""
    contender: str
    versions: tuple[str, ...]
    runs: int
    verdicts: dict[str, int]
    values: dict[str, float]
    needed: dict[str, int] = field(default_factory=dict)
    """Percentiles none of its trusted runs has the samples for → how many they need."""
    samples: int = 0
    """The most deliveries (publishes, where nothing was owed) any trusted run measured."""
    void_reason: str = ""
    """Why its first VOID run is VOID."""

    @property
    def place(self) -> str:
        """Its place as it is shown."""
        return "–" if self.rank is None else str(self.rank)

    @property
    def trusted(self) -> int:
        """Runs that are not VOID."""
        return self.runs - self.verdicts.get("VOID", 0)


@dataclass(frozen=True, slots=True)
class Ranking:
    """The outcome of a battle."""

    scenario: str
    title: str
    """The scenario's name with scale and overrides; several, where runs of several kinds are ranked."""
    decided_by: Metric
    standings: tuple[Standing, ...]
    ratios: tuple[Ratio, ...]
    """The leader against each other contender, every metric both have."""
    summaries: tuple[Summary, ...]
    disturbed: str = ""
    """Why nothing is ranked on latency: what others used of the machine in one of the runs; empty if they did not."""


def rank(summaries: Sequence[Summary]) -> Ranking:
    """Rank the contenders of a battle, or of any runs of one scenario."""
    by_contender: dict[str, list[Summary]] = {}
    for summary in summaries:
        by_contender.setdefault(label_of(summary, summaries), []).append(summary)
    trusted = {name: [run for run in runs if run.verdict != "VOID"] for name, runs in by_contender.items()}
    decided_by = _deciding_metric([run for runs in trusted.values() for run in runs])
    disturbed = _disturbance(summaries)
    compared = [metric for metric in METRICS if not (disturbed and is_latency(metric))]

    def merit(name: str) -> _Merit:
        runs = trusted[name]
        passed = any(run.verdict == "PASS" or (disturbed and _misses_latency_only(run)) for run in runs)
        loss = median(undelivered_share(run) or 0.0 for run in runs) if runs else 0.0
        value = _median_value(runs, decided_by) if decided_by in compared else None
        sign = 1 if decided_by.lower_is_better else -1
        return (not runs, not passed, round(loss, 4), math.inf if value is None else sign * value)

    order = sorted(by_contender, key=merit)
    ratios = [
        found
        for other in order[1:]
        for metric in compared
        if (found := ratio_of(metric, order[0], trusted[order[0]], other, trusted[other])) is not None
    ]
    ranks = _ranks(order, trusted, decided_by if decided_by in compared else None, merit)
    # One that is alone has beaten nobody.
    rankable = {name for name in order if trusted[name]}
    rankable = rankable if len(rankable) > 1 or len(order) == 1 else set()
    standings = tuple(
        Standing(
            rank=ranks[name] if name in rankable else None,
            contender=name,
            versions=tuple(sorted({run.contender.version for run in by_contender[name]})),
            runs=len(by_contender[name]),
            verdicts=dict(Counter(run.verdict for run in by_contender[name])),
            values={m.name: value for m in METRICS if (value := _median_value(trusted[name], m)) is not None},
            needed=_needed(trusted[name]),
            samples=max((run.trust.samples for run in trusted[name]), default=0),
            void_reason=next((run.reasons[0] for run in by_contender[name] if run.verdict == "VOID"), ""),
        )
        for name in order
    )
    return Ranking(
        scenario=", ".join(sorted({summary.scenario for summary in summaries})),
        title=", ".join(sorted({summary.title for summary in summaries})),
        decided_by=decided_by,
        standings=standings,
        ratios=tuple(ratios),
        summaries=tuple(summaries),
        disturbed=disturbed,
    )


def _misses_latency_only(run: Summary) -> bool:
    """Whether nothing but expectations of latency failed; a machine that others use decides those, too."""
    failed = [one.text for one in run.expectations if one.ok is False]
    return bool(failed) and run.state != "broker-failed" and all(_is_of_latency(text) for text in failed)


def _is_of_latency(text: str) -> bool:
    try:
        return parse_expectation(text).latency is not None
    except QuantityError:  # a promise, in words of its own
        return False


def other_load(summary: Summary) -> Check | None:
    """The check that tells that others used more of the machine than the limit; None if they did not."""
    for check in summary.trust.checks:
        if check.id == "other-load" and check.measured is not None and check.limit is not None:
            return check if check.measured > check.limit else None
    return None


def _disturbance(summaries: Sequence[Summary]) -> str:
    """What others used in the run they disturbed most; a slow broker hides it, a fast one does not."""
    found = [(check.measured or 0.0, summary.run, check) for summary in summaries if (check := other_load(summary))]
    if not found:
        return ""
    _, run, check = max(found, key=lambda one: one[:2])
    return f"in {len(found)} of {len(summaries)} runs (most in {run}) {check.sentence}"


def _needed(runs: Sequence[Summary]) -> dict[str, int]:
    """The percentiles that no run has the samples for."""
    return {
        metric.name: needed
        for metric in METRICS
        for needed in [max((needed_for(metric, run) or 0 for run in runs), default=0)]
        if needed and all(metric.read(run) is None for run in runs)
    }


def label_of(summary: Summary, among: Sequence[Summary]) -> str:
    """The contender's name, with version, profile or place where another run of the battle makes it ambiguous."""
    contender = summary.contender
    namesakes = [other.contender for other in among if other.contender.name == contender.name]
    label = contender.name
    if len({other.version for other in namesakes}) > 1:
        label += f" {contender.version}"
    if len({other.profile for other in namesakes}) > 1:
        label += f" ({contender.profile})"
    # The same broker twice in one block is a null pair: what differs between the two is noise.
    if summary.battle is not None:
        place = [summary.battle["id"], summary.battle["block"]]
        twins = [
            other.battle["order"]
            for other in among
            if other.battle and [other.battle["id"], other.battle["block"]] == place and other.contender == contender
        ]
        again = sorted(twins).index(summary.battle["order"])
        label += f" (again {again})" if again > 1 else " (again)" if again else ""
    return label


def ratio_of(metric: Metric, of: str, of_runs: list[Summary], to: str, to_runs: list[Summary]) -> Ratio | None:
    """Compare two contenders block by block; None if no block has both values."""
    ours, theirs = _by_block(of_runs, metric), _by_block(to_runs, metric)
    logs = [log_ratio(ours[block], theirs[block]) for block in sorted(ours.keys() & theirs.keys())]
    if not logs:
        return None
    interval = median_interval(logs)
    low, high = interval or (min(logs), max(logs))
    return Ratio(
        metric=metric,
        of=of,
        to=to,
        ratio=median_ratio(logs),
        low=math.exp(min(low, 700.0)),
        high=math.exp(min(high, 700.0)),
        confident=interval is not None,
        blocks=len(logs),
        answer=_answer(metric, low, high, median(logs)),
    )


def _answer(metric: Metric, low: float, high: float, middle: float) -> RatioAnswer:
    near = math.log1p(MARGIN)
    if -near <= low and high <= near:
        return "same"
    if low <= 0 <= high or abs(middle) <= near:
        return "unclear"
    return "better" if (middle < 0) == metric.lower_is_better else "worse"


def _by_block(runs: list[Summary], metric: Metric) -> dict[int, float]:
    found: dict[int, list[float]] = {}
    for index, run in enumerate(runs):
        value = metric.read(run)
        if value is not None:
            found.setdefault(int(run.battle["block"]) if run.battle else index, []).append(value)
    return {block: median(values) for block, values in found.items()}


def _median_value(runs: list[Summary], metric: Metric) -> float | None:
    values = list(_by_block(runs, metric).values())
    return median(values) if values else None


def _deciding_metric(runs: list[Summary]) -> Metric:
    """Delivery p99 where somebody listens, else publish p99 where there are acknowledgements, else the rate."""
    for name in ("response_p99", "publish_p99"):
        metric = BY_NAME[name]
        if any(metric.read(run) is not None or needed_for(metric, run) for run in runs):
            return metric
    return BY_NAME["sent_rate"] if runs else BY_NAME["response_p99"]


def _ranks(
    order: list[str], trusted: dict[str, list[Summary]], metric: Metric | None, merit: Callable[[str], _Merit]
) -> dict[str, int]:
    """Places 1, 2, …; a contender shares the place of the one before it unless a difference is shown."""
    ranks: dict[str, int] = {}
    for place, name in enumerate(order, start=1):
        before = order[place - 2] if place > 1 else None
        shared = False
        if before is not None and merit(before)[:3] == merit(name)[:3]:
            found = ratio_of(metric, before, trusted[before], name, trusted[name]) if metric is not None else None
            shared = found is None or found.answer in ("same", "unclear")
        ranks[name] = ranks[before] if shared and before is not None else place
    return ranks
