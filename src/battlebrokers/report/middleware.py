"""What publishing costs, contender by contender: the table and the sentence that explains it. Pure.

Called by the page and by the terminal's battle. Every figure comes from the summaries: medians over a contender's
runs, `ok` and `failed` in all of them. VOID runs are left out; who has no other is named with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from battlebrokers.analysis.metrics import latency_of
from battlebrokers.analysis.model import Middleware, Percentiles, Summary
from battlebrokers.report.wording import NOTHING, duration_ms, duration_s, too_few
from battlebrokers.units import format_count, format_size

HEAD = (
    "publishes → listens", "publish p50", "publish p99", "subscribe p50", "total publish time", "ok",
    "failed", "structure", "address", "on the wire", "per useful byte", "generated", "traffic",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cost:
    """One contender's row; sizes are of one publish."""

    label: str
    protocols: dict[str, str]
    payload_bytes: float
    structure_bytes: float
    url_bytes: float
    wire_bytes: float
    overhead: float
    traffic_bytes: float
    cells: tuple[str, ...]
    void: str = ""
    """Why it has no figures: every run of it is VOID."""

    @property
    def parts(self) -> dict[str, float]:
        """What the bytes of one publish are made of."""
        payload, structure = self.payload_bytes, self.structure_bytes
        # The address is not taken apart here: what of a URL goes out, and where, is the protocol's affair.
        return {
            "structure": max(0.0, structure - payload),
            "address, headers and framing": max(0.0, self.wire_bytes - max(structure, payload)),
        }


def costs(runs_of: Sequence[tuple[str, Sequence[Summary]]]) -> list[Cost]:
    """A row for every contender that published anything, in the order given, but those that are VOID first."""
    found, void = [], []
    for label, runs in runs_of:
        published = [run for run in runs if run.middleware is not None and run.middleware.overhead]
        trusted = [run for run in published if run.verdict != "VOID"]
        known = [run.middleware for run in trusted if run.middleware is not None]
        if known:
            found.append(_cost(label, trusted, known))
        elif published:
            void.append(_without_figures(label, published[0]))
    return void + found


def _without_figures(label: str, run: Summary) -> Cost:
    protocols = run.middleware.protocols if run.middleware is not None else {}
    cells = ("VOID", *[NOTHING] * (len(HEAD) - 1))
    return Cost(label, protocols, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, cells, "; ".join(run.reasons))


def _cost(label: str, runs: Sequence[Summary], known: Sequence[Middleware]) -> Cost:
    publishing = {group.fleet for run in runs for group in run.groups}
    listening = {group.client_fleet for run in runs for group in run.groups}
    protocols = {name: protocol for one in known for name, protocol in one.protocols.items()}
    spoken = _spoken(protocols, publishing) or _spoken(protocols, set(protocols))

    def middle(value_of: Callable[[Middleware], float | None]) -> float | None:
        values = [value for one in known if (value := value_of(one)) is not None]
        return median(values) if values else None

    def level(spread_of: Callable[[Middleware], Percentiles], name: str) -> str:
        value = middle(lambda one: latency_of(spread_of(one), name))
        needed = max((spread_of(one).needed.get(name, 0) for one in known), default=0)
        return too_few(needed) if value is None and needed else duration_ms(value)

    structure, url = middle(lambda one: one.structure_bytes) or 0.0, middle(lambda one: one.url_bytes) or 0.0
    wire, overhead = middle(lambda one: one.wire_bytes) or 0.0, middle(lambda one: one.overhead) or 0.0
    traffic, generated = median(one.traffic_bytes for one in known), middle(lambda one: one.generated_bytes_per_s)
    cells = (
        f"{spoken} → {_spoken(protocols, listening) or NOTHING}",
        level(lambda one: one.publish_ms, "p50"),
        level(lambda one: one.publish_ms, "p99"),
        level(lambda one: one.subscribe_ms, "p50"),
        duration_s(middle(lambda one: one.total_publish_s)),
        format_count(sum(one.successful for one in known)),
        format_count(sum(one.failed for one in known)),
        format_size(structure),
        format_size(url),
        format_size(wire),
        f"{format_count(overhead)} B",
        NOTHING if generated is None else f"{format_size(generated)}/s",
        format_size(traffic),
    )
    payload = middle(lambda one: one.payload_bytes) or 0.0
    return Cost(label, protocols, payload, structure, url, wire, overhead, traffic, cells)


def _spoken(protocols: Mapping[str, str], names: set[str]) -> str:
    return ", ".join(sorted({protocols[name] for name in names if name in protocols}))


def explain(found: Sequence[Cost]) -> str:
    """Who is VOID and why; then one sentence: where the bytes go, and what makes the difference."""
    void = [f"{cost.label} is VOID, so nothing is said of its cost: {cost.void}." for cost in found if cost.void]
    return " ".join([*void, *filter(None, [_explain([cost for cost in found if not cost.void])])])


def _explain(found: Sequence[Cost]) -> str:
    if not found:
        return ""
    least, most = min(found, key=lambda cost: cost.overhead), max(found, key=lambda cost: cost.overhead)
    if len(found) == 1:
        made_of = ", ".join(f"{format_size(size)} of {name}" for name, size in least.parts.items() if size >= 1)
        rest = f": {made_of} on top of it" if made_of else ""
        return f"A payload of {format_size(least.payload_bytes)} goes out as {format_size(least.wire_bytes)}{rest}."
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
        f"{format_size(most.structure_bytes)} against {format_size(least.structure_bytes)}, its address "
        f"{format_size(most.url_bytes)} against {format_size(least.url_bytes)}, and in all it moved "
        f"{format_size(most.traffic_bytes)} against {format_size(least.traffic_bytes)}."
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
        "pairs": [] if first.void else list(zip(HEAD, first.cells, strict=True)),
        "sentence": explain(found),
        "several": len(runs_of) > 1,
    }
