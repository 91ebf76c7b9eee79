"""What publishing costs, contender by contender: the table and the sentence that explains it. Pure.

Called by the page and by the terminal's battle. Every figure comes from the summaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from battlebrokers.analysis.model import Middleware, Summary
from battlebrokers.report.wording import NOTHING, duration_s, level_text
from battlebrokers.units import format_count, format_size

HEAD = (
    "publishes → listens", "publish p50", "publish p99", "subscribe p50", "total publish time", "ok",
    "failed", "structure", "address", "on the wire", "per useful byte", "traffic",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cost:
    """One contender's row; sizes are of one publish."""

    label: str
    middleware: Middleware
    """Of its first run; sizes follow from the plan and the dialect and are the same in every run."""
    overhead: float
    traffic_bytes: float
    cells: tuple[str, ...]

    @property
    def parts(self) -> dict[str, float]:
        """What the bytes of one publish are made of."""
        one = self.middleware
        payload, structure = one.payload_bytes or 0.0, one.structure_bytes or 0.0
        url, wire = one.url_bytes or 0.0, one.wire_bytes or 0.0
        return {
            "structure": max(0.0, structure - payload),
            "address": url,
            "headers and framing": max(0.0, wire - max(structure, payload) - url),
        }


def costs(runs_of: Sequence[tuple[str, Sequence[Summary]]]) -> list[Cost]:
    """A row for every contender that published anything, in the order given."""
    found = []
    for label, runs in runs_of:
        known = [(run, run.middleware) for run in runs if run.middleware is not None and run.middleware.overhead]
        if known:
            found.append(_cost(label, known))
    return found


def _cost(label: str, runs: Sequence[tuple[Summary, Middleware]]) -> Cost:
    summary, one = runs[0]
    publishing = {group.fleet for run, _ in runs for group in run.groups}
    listening = {group.client_fleet for run, _ in runs for group in run.groups}
    traffic = median(cost.traffic_bytes for _, cost in runs)
    overhead = median(cost.overhead or 0.0 for _, cost in runs)
    times = [cost.total_publish_s for _, cost in runs if cost.total_publish_s is not None]
    cells = (
        f"{_spoken(one, publishing) or _spoken(one, set(one.protocols))} → {_spoken(one, listening) or NOTHING}",
        _level(summary, "publish", "p50"),
        _level(summary, "publish", "p99"),
        level_text(one.subscribe_ms, "p50") if one.subscribe_ms.n else NOTHING,
        duration_s(median(times)) if times else NOTHING,
        format_count(sum(cost.successful for _, cost in runs)),
        format_count(sum(cost.failed for _, cost in runs)),
        format_size(one.structure_bytes or 0.0),
        format_size(one.url_bytes or 0.0),
        format_size(one.wire_bytes or 0.0),
        f"{format_count(overhead)} B",
        format_size(traffic),
    )
    return Cost(label, one, overhead, traffic, cells)


def _spoken(one: Middleware, names: set[str]) -> str:
    return ", ".join(sorted({one.protocols[name] for name in names if name in one.protocols}))


def _level(summary: Summary, kind: str, level: str) -> str:
    found = getattr(summary.latency_ms, kind)
    return level_text(found, level) if found.n else NOTHING


def explain(found: Sequence[Cost]) -> str:
    """One sentence: where the bytes go, and what makes the difference."""
    if not found:
        return ""
    least, most = min(found, key=lambda cost: cost.overhead), max(found, key=lambda cost: cost.overhead)
    if len(found) == 1:
        one = least.middleware
        made_of = ", ".join(f"{format_size(size)} of {name}" for name, size in least.parts.items() if size >= 1)
        rest = f": {made_of} on top of it" if made_of else ""
        return (
            f"A payload of {format_size(one.payload_bytes or 0.0)} goes out as "
            f"{format_size(one.wire_bytes or 0.0)}{rest}."
        )
    if most.overhead < 1.05 * least.overhead:
        return f"All write about the same, {format_count(least.overhead)} bytes for every byte of payload."
    differences = {name: size - least.parts[name] for name, size in most.parts.items()}
    cause = max(differences, key=lambda name: differences[name])
    # Where the largest part is the same the difference lies in all of them.
    why = (
        f"most of it is {cause} ({format_size(most.parts[cause])} a publish against {format_size(least.parts[cause])})"
    )
    return (
        f"{most.label} writes {format_count(most.overhead)} bytes for every byte of payload and {least.label} "
        f"{format_count(least.overhead)}: {why}; its structure has "
        f"{format_size(most.middleware.structure_bytes or 0.0)} against "
        f"{format_size(least.middleware.structure_bytes or 0.0)}, its address {format_size(most.parts['address'])} "
        f"against {format_size(least.parts['address'])}, and in all it moved {format_size(most.traffic_bytes)} against "
        f"{format_size(least.traffic_bytes)}."
    )


def section(runs_of: Sequence[tuple[str, Sequence[Summary]]]) -> dict[str, Any] | None:
    """What the page shows; None when nobody published."""
    found = costs(runs_of)
    if not found:
        return None
    first = found[0]
    return {
        "head": HEAD,
        "rows": [{"label": cost.label, "cells": cost.cells} for cost in found],
        "pairs": list(zip(HEAD, first.cells, strict=True)),
        "sentence": explain(found),
        "several": len(runs_of) > 1,
    }
