"""What page and Markdown say in words: the verdict as a sentence, and each chart described for who cannot see it."""

from __future__ import annotations

from collections.abc import Sequence

from battlebrokers.analysis.model import Percentiles, Summary
from battlebrokers.report.pool import Pool
from battlebrokers.report.wording import level_text
from battlebrokers.units import format_count, format_rate


def verdict_sentence(summary: Summary) -> str:
    """A run's verdict in one sentence."""
    name = f"{summary.contender.name} {summary.contender.version}".strip()
    if summary.verdict == "VOID":
        return f"This measurement cannot be trusted: {summary.reasons[0]}."
    if summary.state == "broker-failed":
        return f"{name} did not survive: {summary.reasons[0]}."
    if summary.verdict == "FAIL":
        failed = [one for one in summary.expectations if one.ok is False]
        missed = f"missed {len(failed)} of {len(summary.expectations)} expectations"
        if not failed:
            return f"{name} failed: {summary.reasons[0]}."
        if failed[0].source == "promise":
            return f"{name} {missed} and broke a promise. {failed[0].text}, but it was {failed[0].measured}."
        return f"{name} {missed}: {failed[0].text}, but it was {failed[0].measured}."
    return f"{name} {outcome(summary)}."


def outcome(summary: Summary) -> str:
    """What a trusted run showed, without its subject."""
    counts, latencies = summary.messages, summary.latency_ms
    if counts.expected:
        arrived = "all" if counts.delivered == counts.expected else f"{format_count(counts.delivered)} of"
        share = f"delivered {arrived} {format_count(counts.expected)} messages"
        return f"{share}, {_within(latencies.response)} of their planned send time"
    if latencies.publish.n:
        acked = f"acknowledged {format_count(counts.acked)} of {format_count(counts.sent)} messages"
        return f"{acked}, {_within(latencies.publish)}"
    if only_connected(summary):
        connects = summary.actions["connect"]
        held = f"answered {format_count(connects.n - connects.failed)} of {format_count(connects.n)} connects"
        return f"{held}, {_within(connects.latency_ms)}"
    return f"took {format_rate(summary.rates.sent)}; nobody listened and nothing was acknowledged"


def _within(found: Percentiles) -> str:
    """How fast, by the highest percentile up to p99 that the samples carry."""
    for level, words in (("p99", "99 of 100"), ("p90", "9 of 10"), ("p50", "half of them")):
        if level not in found.needed:
            return f"{words} within {level_text(found, level)}"
    return f"the slowest within {level_text(found, 'max')}"


def only_connected(summary: Summary) -> bool:
    """Whether the run had nothing to send: then its connects are what there is to tell."""
    return not summary.messages.planned and not summary.messages.expected and "connect" in summary.actions


def describe_charts(pools: Sequence[Pool]) -> dict[str, str]:
    """A text for every chart, by id."""
    names = ", ".join(pool.label for pool in pools)
    figures = "; ".join(_figures(pool) for pool in pools)
    found = {
        "spectrum": f"Latency by percentile on a scale of nines. {figures}.",
        "rates": f"Messages planned, sent and delivered in each second, for {names}.",
        "latency": "Median of latency in each second of planned send time, and the highest percentile that most "
        f"seconds have messages enough for, for {names}.",
        "in-flight": f"Deliveries still owed at the end of each second, for {names}.",
        "cpu": f"CPU use in each second, whole service and busiest thread, for {names}; 100 percent is one core.",
        "memory": f"Resident memory in each second, for {names}.",
    }
    for slot, pool in enumerate(pools):
        found[f"heat-{slot}"] = f"How many messages of each second fell into each band of latency, for {pool.label}."
    return found


def _figures(pool: Pool) -> str:
    response = pool.conclusions[0].summary.latency_ms.response
    levels = ", ".join(f"{name} {level_text(response, level)}" for name, level in (("median", "p50"), ("p99", "p99")))
    return f"{pool.label}: {levels}"
