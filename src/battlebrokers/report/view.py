"""What the page shows beside charts: tables and facts, in words. Pure: conclusions in, plain rows out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from battlebrokers.analysis.attempts import failed_attempts, summed_attempts
from battlebrokers.analysis.conclusion import Conclusion
from battlebrokers.analysis.latency import percentiles
from battlebrokers.analysis.metrics import METRICS
from battlebrokers.analysis.model import Percentiles, Summary
from battlebrokers.analysis.ranking import Ranking, Ratio
from battlebrokers.report.pool import Pool
from battlebrokers.report.sentences import only_connected
from battlebrokers.report.wording import (
    KIND_ABOUT,
    KIND_NAMES,
    NOTHING,
    delivered_text,
    duration_s,
    level_text,
    metric_text,
)
from battlebrokers.units import format_count, format_duration, format_percent, format_rate, format_size

LEVELS = ("p50", "p90", "p99", "p999", "max", "mean")


@dataclass(frozen=True, slots=True)
class Tile:
    """One large figure at the top of the page."""

    label: str
    value: str
    about: str
    alarming: bool = False


def tiles(summary: Summary) -> list[Tile]:
    """The six figures a reader looks for first."""
    counts, response = summary.messages, summary.latency_ms.response
    headline, about = (response, "planned send → arrival") if response.n else (summary.latency_ms.publish, "send → ack")
    if only_connected(summary):
        headline, about = summary.actions["connect"].latency_ms, "connect → answer"
    own = [service for service in summary.services if service.role == "contender"]
    thread = max((service.busiest_thread_mean_percent for service in own), default=None)
    found = [
        Tile("median latency", level_text(headline, "p50"), about),
        Tile("p99 latency", level_text(headline, "p99"), f"p99.9 {level_text(headline, 'p999')}"),
    ]
    if counts.expected:
        lost = format_percent(counts.lost / counts.expected)
        found.append(
            Tile("delivered", format_rate(summary.rates.delivered), f"of {format_rate(summary.rates.sent)} sent")
        )
        of_expected = f"{lost} of {format_count(counts.expected)} expected"
        if missing := counts.expected - counts.delivered - counts.lost:
            of_expected += f"; {format_count(missing)} more never arrived"
        found.append(Tile("lost", format_count(counts.lost), of_expected, bool(counts.lost or missing)))
    elif only_connected(summary):
        connects, broken = summary.actions["connect"], summary.actions.get("lost")
        held = f"of {format_count(connects.n)} connects"
        found.append(Tile("connected", format_count(connects.n - connects.failed), held, bool(connects.failed)))
        broke = broken.n if broken else 0
        found.append(Tile("broken", format_count(broke), "connections that broke later", bool(broke)))
    else:
        found.append(Tile("sent", format_rate(summary.rates.sent), f"of {format_rate(summary.rates.planned)} planned"))
        found.append(Tile("acknowledged", format_count(counts.acked), f"of {format_count(counts.sent)} sent"))
    cpu = f"{sum(service.cpu_mean_percent for service in own):.0f} %" if own else "–"
    busiest = f"busiest thread {thread:.0f} %" if thread is not None else "not sampled"
    found.append(Tile("broker CPU", cpu, busiest, thread is not None and thread >= 90))
    memory = format_size(sum(service.rss_max_bytes for service in own)) if own else "–"
    found.append(Tile("broker memory", memory, "highest in the measure phase"))
    return found


def latency_rows(pools: Sequence[Pool]) -> list[dict[str, Any]]:
    """Stated percentiles: by kind for one contender, by contender and kind for several."""
    rows = []
    for slot, pool in enumerate(pools):
        for kind in ("response", "service", "publish", "last", "held", "lag"):
            found = percentiles(pool.latency(kind))
            if kind == "last" and found.n == pool.latency("response").total:
                continue  # one listener each: the last is the only one
            if found.n and (len(pools) == 1 or kind in ("response", "publish")):
                name = KIND_NAMES[kind] if len(pools) == 1 else f"{pool.label}, {KIND_NAMES[kind]}"
                rows.append({"name": name, "about": KIND_ABOUT[kind], "slot": slot, **_levels(found)})
    return rows


def _levels(found: Percentiles) -> dict[str, str]:
    return {
        **{level: level_text(found, level) for level in LEVELS},
        "n": format_count(found.n),
        "of_delivered": delivered_text(found) if found.infinite else "",
    }


def ledger_rows(pool: Pool) -> list[dict[str, Any]]:
    """The ledger of a contender by group, summed over its runs, with a total; VOID runs keep and break no promise."""
    names = (
        "expected", "delivered", "lost", "overdue", "indeterminate", "duplicates", "reordered", "late", "unexpected",
        "wrong_topic",
    )  # fmt: skip
    groups: dict[tuple[str, str, int], dict[str, Any]] = {}
    for conclusion in pool.conclusions:
        for group in conclusion.summary.groups:
            key = (group.fleet, group.client_fleet, group.qos)
            row = groups.setdefault(key, {"kept": None, **dict.fromkeys(names, 0)})
            if conclusion.summary.verdict != "VOID":
                row["kept"] = row["kept"] is not False and group.promise_kept
            for name in names:
                row[name] += getattr(group, name)
    rows = [
        {"name": f"{fleet or 'unknown'} → {client_fleet}", "qos": qos, "total": False, **row}
        for (fleet, client_fleet, qos), row in groups.items()
    ]
    if len(rows) > 1:
        sums = {name: sum(row[name] for row in rows) for name in names}
        judged = [row["kept"] for row in rows if row["kept"] is not None]
        kept = all(judged) if judged else None
        rows.append({"name": "all", "qos": "", "total": True, "kept": kept, **sums})
    return rows


def failure_rows(conclusion: Conclusion) -> list[tuple[str, str, int]]:
    """What went wrong, by kind: (where, what, how often), the most frequent first."""
    summary, facts = conclusion.summary, conclusion.facts
    rows = [
        (f"{role} {fleet}".rstrip(), f"{kind}: {why}", n)
        for (role, fleet, kind, why), n in (failed_attempts(facts) or summed_attempts(facts)).items()
    ]
    rows += [("publish", f"no success: {kind}", n) for kind, n in summary.messages.failures.items()]
    publishing = {
        "unacked": "never acknowledged",
        "unsent": "never left the device",
    }
    rows += [("publish", words, getattr(summary.publishing, name)) for name, words in publishing.items()]
    ledger = {
        "lost": "lost",
        "overdue": "not delivered in time",
        "indeterminate": "indeterminate",
        "unexpected": "asked for by nobody",
        "wrong_topic": "on a wrong topic",
    }
    rows += [("deliver", words, getattr(summary.messages, name)) for name, words in ledger.items()]
    counters = {
        "malformed": "malformed packets",
        "unreadable": "notifications that cannot be read",
        "stray_acknowledgements": "acknowledgements of nothing that was sent",
        "oversized": "messages too large to be expected",
        "arrivals_not_recorded": "arrivals beyond what is recorded",
        "recorder_overflow": "events not recorded",
        "connects_held": "connects that waited for earlier ones",
        "reconnects": "reconnects",
    }
    for worker in facts.manifest.workers:
        rows += [(worker.name, words, worker.counters.get(name, 0)) for name, words in counters.items()]
    return sorted((row for row in rows if row[2]), key=lambda row: -row[2])


def ranking_rows(ranking: Ranking) -> tuple[list[str], list[dict[str, Any]]]:
    """The header and rows of the ranking; each figure also as a share of the largest, for the bar behind it."""
    left_out = {"service_p99"} | ({"sent_rate"} if ranking.decided_by.name == "response_p99" else set())
    shown = [
        metric
        for metric in METRICS
        if metric.name not in left_out and any(metric.name in {*s.values, *s.needed} for s in ranking.standings)
    ]
    rows = []
    for standing in ranking.standings:
        cells = []
        for metric in shown:
            value = standing.values.get(metric.name)
            finite = [
                s.values[metric.name]
                for s in ranking.standings
                if s.values.get(metric.name, 0) not in (0, float("inf"))
            ]
            share = 0.0 if not value or not finite else min(1.0, value / max(finite))
            text = metric_text(metric, value, standing.needed.get(metric.name))
            cells.append({"text": text, "share": round(share, 4)})
        rows.append({"standing": standing, "cells": cells})
    return [metric.label for metric in shown], rows


def ratio_rows(ranking: Ranking) -> list[dict[str, Any]]:
    """The leader against the others, metric by metric."""
    return [
        {"ratio": found, "low": _clipped(found.low), "high": _clipped(found.high)}
        for found in ranking.ratios
        if _telling(found)
    ]


def _telling(found: Ratio) -> bool:
    return found.metric.unit != "share"


def _clipped(value: float) -> str:
    return "∞" if value > 1e6 else f"{value:.2f}"


def environment(pools: Sequence[Pool]) -> list[tuple[str, str]]:
    """The machine, the contenders, the versions and settings, as plain pairs."""
    rows = of_each(pools, _machine)
    for pool in pools:
        contender = pool.conclusions[0].facts.manifest.contender
        rows.append(("contender", f"{contender.name} {contender.version}, {contender.profile}"))
        if len(pools) == 1:
            rows += [(f"endpoint {name}", url) for name, url in contender.endpoints.items()]
        rows.append(
            ("its configuration", f"sha256 {contender.config_sha256[:16]}" if contender.config_sha256 else NOTHING)
        )
    return rows + of_each(pools, _settings)


def of_each(pools: Sequence[Pool], rows_of: Callable[[Conclusion], list[tuple[str, str]]]) -> list[tuple[str, str]]:
    """What holds for every contender, said once; where they differ, each with its contender's name."""
    found = {pool.label: dict(rows_of(pool.conclusions[0])) for pool in pools}
    keys = dict.fromkeys(key for rows in found.values() for key in rows)
    told: list[tuple[str, str]] = []
    for key in keys:
        values = {label: rows.get(key, NOTHING) for label, rows in found.items()}
        if len(set(values.values())) == 1:
            told.append((key, next(iter(values.values()))))
        else:
            told += [(f"{key} ({label})", value) for label, value in values.items()]
    return told


def _machine(conclusion: Conclusion) -> list[tuple[str, str]]:
    return [pair for key, value in conclusion.facts.manifest.host.items() for pair in _pairs(key, value)]


def _settings(conclusion: Conclusion) -> list[tuple[str, str]]:
    manifest = conclusion.facts.manifest
    rows = [(f"version of {name}", version) for name, version in sorted(manifest.versions.items())]
    for worker in manifest.workers:
        processes = "1 process" if worker.processes == 1 else f"{worker.processes} processes"
        ticks = f", in ticks of {format_duration(worker.tick_ns)}" if worker.tick_ns else ""
        rows.append((f"worker {worker.name}", f"{processes} on {worker.host}{ticks}"))
    rows += [("plan", f"sha256 {manifest.plan_sha256[:16]}"), ("seed", str(manifest.seed))]
    if manifest.scenario.scale != 1:
        rows.append(("scale", f"{manifest.scenario.scale:g}"))
    if manifest.scenario.overrides:
        rows.append(("overrides", ", ".join(manifest.scenario.overrides)))
    for name, value in sorted(manifest.settings.items()):
        rows += _pairs(f"setting {name}", value)
    return rows


def _pairs(key: str, value: object) -> list[tuple[str, str]]:
    if isinstance(value, dict):
        return [pair for inner, found in value.items() for pair in _pairs(f"{key} {inner}", found)]
    if isinstance(value, list):
        return [(key.replace("_", " "), ", ".join(str(item) for item in value))]
    if key.endswith("_bytes") and isinstance(value, int):
        return [(key.removesuffix("_bytes").replace("_", " "), format_size(value))]
    if key.endswith("_s") and isinstance(value, int | float):
        return [(key.removesuffix("_s").replace("_", " "), duration_s(value))]
    return [(key.replace("_", " "), _plain(value))]


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format_count(value) if isinstance(value, int) else str(value)


def traffic(summary: Summary) -> list[tuple[str, str]]:
    """Rates, volumes and times as plain pairs."""
    volumes, rates, times = summary.bytes, summary.rates, summary.times_s
    useful = format_percent(volumes.useful_share) if volumes.useful_share is not None else NOTHING
    rows = [
        ("planned, sent, delivered", " · ".join(format_rate(r) for r in (rates.planned, rates.sent, rates.delivered))),
        ("goodput", f"{format_size(rates.goodput_bytes)}/s of payload that arrived for the first time"),
        ("payload", format_size(volumes.payload)),
        ("marshalled", f"{format_size(volumes.marshalled)}, with address {format_size(volumes.publication)}"),
        ("on the wire", f"{format_size(volumes.wire_sent)} sent, {format_size(volumes.wire_received)} received"),
        ("useful share", f"{useful} of {format_size(volumes.total)} is payload"),
        (
            "total time",
            f"{duration_s(times.total)} from first send to last arrival; publishing {duration_s(times.publish)}",
        ),
    ]
    for kind in ("connect", "subscribe"):
        if kind in summary.actions:
            action = summary.actions[kind]
            spread = f"p50 {level_text(action.latency_ms, 'p50')}, p99 {level_text(action.latency_ms, 'p99')}"
            rows.append((kind, f"{format_count(action.n)} in {duration_s(getattr(times, kind))}, {spread}"))
    held = summary.publishing
    rows.append(("held back", f"window {held.held_window}, socket {held.held_socket}, connection {held.held_offline}"))
    rows.append(("sent again", format_count(held.retries)))
    return rows
