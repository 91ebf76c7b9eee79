"""Expectations, QoS promises and failed publishes, judged against what was measured. Pure: figures in, words out.

An expectation that cannot be judged (nothing measured, too few samples for its percentile, or our own ticks would
decide it) says so; `verdict` makes that VOID. Messages that never arrived make a percentile infinite, and infinity
fails every upper limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from battlebrokers.analysis.latency import LEVELS
from battlebrokers.analysis.metrics import latency_of
from battlebrokers.analysis.model import Action, Group, Judged, Latencies, Messages, Percentiles, Publishing, Rates
from battlebrokers.clock import MILLISECOND_NS
from battlebrokers.errors import QuantityError
from battlebrokers.scenario.expectations import Expectation, parse_expectation
from battlebrokers.units import format_count, format_duration, format_percent, format_rate


@dataclass(frozen=True, slots=True)
class Figures:
    """What expectations can speak of."""

    messages: Messages
    publishing: Publishing
    latencies: Latencies
    rates: Rates
    actions: dict[str, Action]
    groups: list[Group]
    tick_ms: float = 0.0
    """How coarsely sends and arrivals were handled; 0 is as they came."""


def judge_expectations(texts: list[str], figures: Figures) -> list[Judged]:
    """Judge a scenario's expectations, in order."""
    return [_judge_text(text, figures) for text in texts]


def judge_promises(groups: list[Group]) -> list[Judged]:
    """What QoS 1 and 2 promise, judged for each that was used; QoS 0 promises nothing."""
    found = []
    for qos, promise in (
        (1, "QoS 1: nothing acknowledged is lost"),
        (2, "QoS 2: nothing is lost, nothing comes twice"),
    ):
        mine = [group for group in groups if group.qos == qos and group.expected]
        if not mine:
            continue
        expected, lost = sum(group.expected for group in mine), sum(group.lost for group in mine)
        duplicates = sum(group.duplicates for group in mine)
        measured = f"{format_count(lost)} of {format_count(expected)} lost"
        if qos == 2:
            measured += f", {format_count(duplicates)} twice"
        broken = [f"{group.fleet} → {group.client_fleet}" for group in mine if not group.promise_kept]
        if broken:
            measured += f" ({', '.join(broken[:3])}{' …' if len(broken) > 3 else ''})"
        value = float(lost + (duplicates if qos == 2 else 0))
        found.append(Judged(text=promise, ok=not broken, measured=measured, value=value, source="promise"))
    return found


def judge_overdue(texts: list[str], figures: Figures, slow_readers: frozenset[str]) -> list[Judged]:
    """What QoS 1 and 2 let expect: deliveries arrive before the drain ends. Told only where some did not."""
    spoken_of = {text.split()[0].rstrip("<>=!") for text in texts if text.split()}
    mine = [group for group in figures.groups if group.qos and group.client_fleet not in slow_readers]
    overdue, expected = sum(group.overdue for group in mine), sum(group.expected for group in mine)
    if not overdue or spoken_of & _DECIDE_OVERDUE:
        return []
    measured = f"{format_count(overdue)} of {format_count(expected)} did not, though messages were still arriving"
    text = "QoS 1 and 2: every message arrives before the drain ends"
    return [Judged(text=text, ok=False, measured=measured, value=float(overdue), source="promise")]


_DECIDE_OVERDUE = frozenset({"overdue", "delivered", "delivered_rate"})
"""Who expects something of these has said how much may be missing when the drain ends."""


def judge_publishes(texts: list[str], figures: Figures) -> list[Judged]:
    """What no scenario needs to say: publishes get through. Told only where some did not and no expectation decides."""
    spoken_of = {text.split()[0].rstrip("<>=!") for text in texts if text.split()}
    counts = {
        name: getattr(figures.publishing, name)
        for name in ("refused", "failed", "unacked")
        if getattr(figures.publishing, name) and name not in spoken_of and not spoken_of & _DECIDE_PUBLISHES
    }
    # Only what was sent is owed or acknowledged: those expectations say nothing of what the broker never took.
    of_plan = spoken_of & _DECIDE_BACKLOG or any("planned" in text.split()[1:] for text in texts)
    if figures.publishing.backlog and not of_plan:
        counts["backlog"] = figures.publishing.backlog
    if not counts:
        return []
    total = sum(counts.values())
    said = ", ".join(f"{format_count(n)} {_KIND_WORDS.get(name, name)}" for name, n in counts.items())
    why = ", ".join(f"{kind} {format_count(n)}" for kind, n in list(figures.messages.failures.items())[:3])
    measured = f"{format_count(total)} of {format_count(figures.messages.planned)} did not: {said}"
    return [
        Judged(
            text="every publish gets through",
            ok=False,
            measured=f"{measured} ({why})" if why else measured,
            value=float(total),
            source="promise",
        )
    ]


_DECIDE_PUBLISHES = frozenset({"acked", "indeterminate", "delivered", "delivered_rate"})
"""Who expects something of these has said how many publishes may fail; `refused`, `failed` and `unacked` speak for
themselves. `lost` does not: a publish that failed is not lost, for nobody took it."""
_DECIDE_BACKLOG = frozenset({"sent", "unsent", "sent_rate"})
"""The same for messages that never left; a share of `planned` speaks of them too."""
_KIND_WORDS = {
    "unacked": "unanswered",
    "backlog": "held by the broker (window, socket or connection) until the load was over",
}


def _judge_text(text: str, figures: Figures) -> Judged:
    try:
        expectation = parse_expectation(text)
    except QuantityError as error:
        return Judged(text=text, ok=None, measured=f"cannot be read: {error.message}")
    if expectation.kind == "duration" and expectation.latency is not None:
        return _judge_latency(expectation, *expectation.latency, figures)
    return _judge_number(expectation, figures)


def _judge_latency(expectation: Expectation, kind: str, statistic: str, figures: Figures) -> Judged:
    found = _percentiles(kind, figures)
    if not found.n:
        return Judged(text=expectation.text, ok=None, measured="nothing was measured")
    if statistic in found.needed:
        return _judge_by_lower(expectation, kind, statistic, found, figures)
    value_ms = latency_of(found, statistic)
    if value_ms is None:
        return Judged(text=expectation.text, ok=None, measured="nothing was measured")
    measured = _latency_text(value_ms, found)
    value = None if math.isinf(value_ms) else value_ms
    holds = expectation.holds(value_ms * MILLISECOND_NS)
    own_ms = _TICKS_WITHIN.get(kind, 0) * figures.tick_ms
    if own_ms and holds != expectation.holds(max(0.0, value_ms - own_ms) * MILLISECOND_NS):
        measured += f", up to {format_duration(own_ms * MILLISECOND_NS)} of it our own ticks"
        return Judged(text=expectation.text, ok=None, measured=measured, value=value)
    return Judged(text=expectation.text, ok=holds, measured=measured, value=value)


def _judge_by_lower(
    expectation: Expectation, kind: str, statistic: str, found: Percentiles, figures: Figures
) -> Judged:
    """A percentile with too few samples; it is at least as high as a lower one, and that may already decide."""
    names = list(LEVELS)
    lower = [name for name in names[: names.index(statistic)] if latency_of(found, name) is not None]
    needs = (
        f"{format_count(found.n)} samples, and {_level_name(statistic)} needs {format_count(found.needed[statistic])}"
    )
    if lower and expectation.op in ("<", "<=", ">", ">="):
        value_ms = latency_of(found, lower[-1]) or 0.0
        least_ms = max(0.0, value_ms - _TICKS_WITHIN.get(kind, 0) * figures.tick_ms)
        holds = expectation.holds(least_ms * MILLISECOND_NS)
        if holds is (expectation.op in (">", ">=")):
            measured = f"{needs}, but {_level_name(lower[-1])} is already {_latency_text(value_ms, found)}"
            return Judged(text=expectation.text, ok=holds, measured=measured)
    return Judged(text=expectation.text, ok=None, measured=needs)


def _latency_text(value_ms: float, found: Percentiles) -> str:
    text = format_duration(value_ms * MILLISECOND_NS)
    return f"{text} ({format_percent(found.lost / found.n)} never arrived)" if math.isinf(value_ms) else text


def _level_name(level: str) -> str:
    return "p99.9" if level == "p999" else level


_TICKS_WITHIN = {"response": 2, "last": 2, "service": 1, "lag": 1, "held": 1}
"""How many ticks of our own a latency may contain: sends wait for one, and so do arrivals."""


def _percentiles(kind: str, figures: Figures) -> Percentiles:
    if kind in ("connect", "subscribe"):
        return figures.actions[kind].latency_ms if kind in figures.actions else Percentiles()
    found: Percentiles = getattr(figures.latencies, kind)
    return found


def _judge_number(expectation: Expectation, figures: Figures) -> Judged:
    value = _number(expectation.metric, figures)
    rate = expectation.metric.endswith("_rate")
    measured = format_rate(value) if rate else format_count(value)
    base: float | None = None
    if expectation.relative_to is not None:
        base = _base(expectation.relative_to, figures, rate=rate)
        if not base:
            return Judged(
                text=expectation.text, ok=None, measured=f"{measured}, but nothing was {expectation.relative_to}"
            )
        measured += f", {format_percent(value / base)} of {expectation.relative_to}"
    elif expectation.metric in _OF_EXPECTED and figures.messages.expected:
        measured += f" of {format_count(figures.messages.expected)}"
    if not value and (why := _nothing_to_count(expectation.metric, figures)):
        return Judged(text=expectation.text, ok=None, measured=why)
    return Judged(text=expectation.text, ok=expectation.holds(value, base), measured=measured, value=value)


def _nothing_to_count(metric: str, figures: Figures) -> str:
    """Why a count is zero whatever the broker does: that nothing was lost where nothing was owed is no result."""
    publishing = figures.publishing
    if metric in _OF_EXPECTED | {"duplicates"} and not figures.messages.expected:
        return "no client was owed any message"
    answers = figures.messages.acked + publishing.unacked + publishing.refused + publishing.failed
    if metric in ("unacked", "refused", "retries") and not answers:
        return "no publish was to be answered"
    if metric.endswith("_failures") and metric.removesuffix("_failures") not in figures.actions:
        return "nothing of the kind was tried"
    return ""


_OF_EXPECTED = frozenset({"delivered", "lost", "overdue", "indeterminate", "late", "reordered"})


def _number(metric: str, figures: Figures) -> float:
    if metric.endswith("_failures"):
        action = figures.actions.get(metric.removesuffix("_failures"))
        return float(action.failed) if action else 0.0
    if metric.endswith("_rate"):
        return float(getattr(figures.rates, metric.removesuffix("_rate")))
    owner = figures.messages if hasattr(figures.messages, metric) else figures.publishing
    return float(getattr(owner, metric))


def _base(name: str, figures: Figures, *, rate: bool) -> float:
    """The value a share is a share of; for a rate the same count per second."""
    count = float(getattr(figures.messages, name))
    sent, sent_rate = figures.messages.sent, figures.rates.sent
    return count * sent_rate / sent if rate and sent else count
