"""What the page of a battle says about captures: the contenders side by side, and the way to each run's own report.

Delays are those of all captured runs of a contender; map and bytes are those of its middle run. Reads, computes little.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from battlebrokers.analysis.conclusion import Conclusion
from battlebrokers.analysis.delays import Asked, pooled
from battlebrokers.analysis.traces import OUTSIDE
from battlebrokers.analysis.verdict import void_words
from battlebrokers.analysis.wire import Wire, read_wire
from battlebrokers.clock import SECOND_NS
from battlebrokers.report.map_layout import lay_out
from battlebrokers.report.pool import Pool, first_second
from battlebrokers.report.wire import Chart, box, box_chart, flow, kept_words, map_words
from battlebrokers.report.wording import point_text, some
from battlebrokers.units import format_size

_REST_SLOT = 6


@dataclass(frozen=True, slots=True)
class _Side:
    """One contender's captured runs."""

    label: str
    slot: int
    runs: tuple[tuple[Conclusion, Wire], ...]

    @property
    def middle(self) -> tuple[Conclusion, Wire]:
        """The run whose delivery p99 is the median."""

        def p99_ms(run: tuple[Conclusion, Wire]) -> float:
            value = run[0].summary.latency_ms.response.p99
            return float("inf") if value is None else value

        return sorted(self.runs, key=p99_ms)[(len(self.runs) - 1) // 2]

    @property
    def origin(self) -> int:
        """Second 0 of the charts: the start of the load."""
        return self.middle[0].facts.load_start_ns // SECOND_NS


def battle_wire(pools: Sequence[Pool], place: Path | None) -> dict[str, Any] | None:
    """All the section needs; None if no run was captured. `place`: the folder the page will lie in."""
    sides = [_side(pool, slot) for slot, pool in enumerate(pools)]
    captured = [side for side in sides if side.runs]
    if not captured:
        return None
    slots = _slots(captured)
    charts = [_delays(captured), *_flows(captured, slots)]
    return {
        "charts": {one["id"]: one for one in charts if one.get("series") or one.get("boxes", {}).get("peer")},
        "descriptions": _descriptions(captured),
        "sides": [_told(side, slots, place) for side in captured],
        "services": [row for side in captured for row in _services(side)],
        "protocols": list(slots.items()),
        "uncaptured": [side.label for side in sides if not side.runs],
    }


def link_to(conclusion: Conclusion, place: Path | None) -> str:
    """The run's own report as a link from a page in `place`; empty if there is none."""
    report = conclusion.folder.report_path
    if place is None or not report.is_file():
        return ""
    return quote(os.path.relpath(report.resolve(), place.resolve()))


def _side(pool: Pool, slot: int) -> _Side:
    found = (
        (conclusion, read_wire(conclusion.folder, void_words(conclusion.summary))) for conclusion in pool.conclusions
    )
    return _Side(pool.label, slot, tuple((conclusion, wire) for conclusion, wire in found if wire is not None))


def _slots(sides: Sequence[_Side]) -> dict[str, int]:
    """A colour for each protocol, the same for all contenders."""
    sums: dict[str, float] = {}
    for side in sides:
        for line in side.middle[1].traffic.protocols:
            sums[line.name] = sums.get(line.name, 0.0) + sum(line.bytes_per_s)
    order = sorted(sums, key=lambda name: (-sums[name], name))
    return {name: min(place, _REST_SLOT) for place, name in enumerate(order)}


def _delays(sides: Sequence[_Side]) -> Chart:
    """Boxes of one direction next to each other, one per contender, in the contenders' colours."""
    boxes: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {"peer": [], "kind": []}
    for side in sides:
        for peer in pooled(wire.asked for _, wire in side.runs):
            for name, found in (("peer", [peer]), ("kind", list(peer.kinds))):
                for one in found:
                    if one.delay is not None:
                        drawn = box(one, one.delay, {}) | {"slot": side.slot}
                        drawn["name"] = f"{side.label}: {drawn['name']}"
                        boxes[name].append((_order(one, side.slot), drawn))
    return box_chart({name: [row for _, row in sorted(found, key=lambda x: x[0])] for name, found in boxes.items()})


def _order(one: Asked, slot: int) -> tuple[Any, ...]:
    direction = 0 if one.asker == OUTSIDE else 1 if one.answerer == OUTSIDE else 2
    return direction, one.protocol, one.kind, slot, -one.n, one.asker, one.answerer


def _flows(sides: Sequence[_Side], slots: Mapping[str, int]) -> list[Chart]:
    """One chart per contender, all on the same scales."""
    charts = []
    for number, side in enumerate(sides):
        conclusion, wire = side.middle
        since = first_second(conclusion.facts)
        found = wire.traffic
        charts.append(flow(f"wire-protocols-{number}", found, found.bands, slots, side.origin, since, stacked=True))
    ends = [chart["first_second"] + chart["columns"] * chart["seconds_per_column"] for chart in charts]
    axis = [min(chart["first_second"] for chart in charts), max(ends)]
    columns = [values for chart in charts for values in zip(*(line["data"] for line in chart["series"]), strict=True)]
    top = max((sum(values) for values in columns), default=0.0)
    return [chart | {"axis": axis, "top": top} for chart in charts]


def _descriptions(sides: Sequence[_Side]) -> dict[str, str]:
    boxes = [
        f"{side.label}, {one.asker} to {one.answerer} in {one.protocol}: "
        f"median {point_text(one.delay.p50_ns, one.delay.n, 0.5)}"
        for side in sides
        for one in pooled(wire.asked for _, wire in side.runs)[:4]
        if one.delay
    ]
    found = {"wire-delays": f"Time from request to response by contender, peer and direction. {'; '.join(boxes)}."}
    for number, side in enumerate(sides):
        protocols = side.middle[1].traffic.protocols
        peaks = "; ".join(f"{line.name} up to {format_size(line.peak)} per second" for line in protocols)
        found[f"wire-protocols-{number}"] = f"{side.label}: bytes per second on the wires, by protocol: {peaks}."
    return found


def _told(side: _Side, slots: Mapping[str, int], place: Path | None) -> dict[str, Any]:
    conclusion, wire = side.middle
    packets = sum(total.packets for total in wire.conversations.totals)
    return {
        "label": side.label,
        "slot": side.slot,
        "run": conclusion.summary.run,
        "link": link_to(conclusion, place),
        "others": [
            (one.summary.run, link_to(one, place)) for one, _ in side.runs if one.summary.run != conclusion.summary.run
        ],
        "seen": f"{some(packets, 'packet')} in {some(wire.conversations.count, 'stream')}",
        "explanation": wire.explanation.sentences() if wire.explanation else [],
        "drawing": lay_out(wire.map, slots, kept_words(wire)),
        "map_words": f"{side.label}. {map_words(wire)}",
    }


def _services(side: _Side) -> list[dict[str, Any]]:
    """What each service used and sent, as means over the captured runs."""
    names = {name: None for _, wire in side.runs for name in wire.services}
    return [_service(side, name) for name in names]


def _service(side: _Side, name: str) -> dict[str, Any]:
    sent, received, used = [], [], []
    for conclusion, wire in side.runs:
        sent.append(sum(flow.bytes for flow in wire.traffic.flows if flow.sender == name) / wire.active_s(sender=name))
        received.append(
            sum(flow.bytes for flow in wire.traffic.flows if flow.receiver == name) / wire.active_s(receiver=name)
        )
        used += [one for one in conclusion.summary.services if one.service == name and one.role == "contender"]

    def mean(column: str) -> float | None:
        values = [getattr(one, column) for one in used if getattr(one, column) is not None]
        return sum(values) / len(values) if values else None

    return {
        "label": side.label,
        "slot": side.slot,
        "name": name,
        "cpu": mean("cpu_mean_percent"),
        "thread": mean("busiest_thread_mean_percent"),
        "memory": mean("rss_max_bytes"),
        "sent_per_s": sum(sent) / len(sent),
        "received_per_s": sum(received) / len(received),
    }
