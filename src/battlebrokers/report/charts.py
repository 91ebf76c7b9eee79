"""What each chart shows, as plain data: the page draws it, a table stands behind it. Pure: pools in, dicts out.

`slot` picks a colour of the palette, `dash` a line style; series of one contender share the slot.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from battlebrokers.analysis.latency import LEVELS, needed_samples
from battlebrokers.analysis.quantiles import Distribution, highest_carried
from battlebrokers.clock import MILLISECOND_NS
from battlebrokers.report.pool import Pool, Series, add_series, highest
from battlebrokers.report.wording import KIND_NAMES
from battlebrokers.tables.measures import BUCKET_LOST, bucket_value_ns

Chart = dict[str, Any]

_BINS_PER_DECADE = 12
_MOST_HEAT_COLUMNS = 240


def all_charts(pools: Sequence[Pool]) -> dict[str, Chart]:
    """Every chart that has something to show, by id."""
    timed = time_charts(pools)
    axis = timed[0]["seconds"] if timed else []
    charts = [spectrum(pools), *timed, *(heat(pool, index, axis) for index, pool in enumerate(pools))]
    return {chart["id"]: chart for chart in charts if chart.get("series") or chart.get("cells")}


def spectrum(pools: Sequence[Pool]) -> Chart:
    """Latency by nines: x is 1/(1-p). One pool shows its kinds of latency, several show their headline kind."""
    series = []
    if len(pools) == 1:
        kinds = [("response", 0, "solid"), ("service", 1, "dashed"), ("publish", 2, "dotted"), ("held", 4, "dashed")]
        kinds.append(("lag", 3, "dotted"))
        for kind, slot, dash in kinds:
            series.append(_curve(KIND_NAMES[kind], pools[0].latency(kind), slot, dash))
    else:
        kind = "response" if any(pool.latency("response").total for pool in pools) else "publish"
        for slot, pool in enumerate(pools):
            series.append(_curve(pool.label, pool.latency(kind), slot, "solid"))
    return {
        "id": "spectrum",
        "kind": "spectrum",
        "unit": "ms",
        "series": [curve for curve in series if curve["points"]],
    }


def _curve(name: str, found: Distribution, slot: int, dash: str) -> dict[str, Any]:
    # The curve ends at the highest percentile that so many messages carry.
    end = round(1 / (1 - highest_carried(found.total)), 4)
    points: list[list[float]] = []
    for p, value_ns in found.spectrum():
        if value_ns > 0 and (not points or points[-1][0] < end):
            points.append([min(round(1 / (1 - p) if p < 1 else math.inf, 4), end), _ms(value_ns)])
    if points:
        points.insert(0, [1.0, points[0][1]])
    lost = found.lost / found.total if found.total else 0.0
    shown = {"name": name, "slot": slot, "dash": dash, "points": points}
    return {**shown, "lost": round(lost, 6), "n": found.total, "end": end}


def time_charts(pools: Sequence[Pool]) -> list[Chart]:
    """The charts that share one time axis and one cursor."""
    charts = [_rates(pools), _latency(pools), _in_flight(pools), _cpu(pools), _memory(pools)]
    seconds = {second for chart in charts for line in chart["series"] for second in line["data"]}
    if not seconds:
        return []
    first = max(min(seconds), min(pool.first_second for pool in pools))
    axis = list(range(first, max(seconds) + 1))
    for chart in charts:
        chart["seconds"] = axis
        for line in chart["series"]:
            values = [line["data"].get(second) for second in axis]
            line["infinite"] = [index for index, value in enumerate(values) if value == math.inf]
            line["data"] = [_rounded(value) for value in values]
    return [chart for chart in charts if chart["series"]]


def _time_chart(name: str, unit: str, series: list[dict[str, Any]], *, log: bool = False) -> Chart:
    return {"id": name, "kind": "time", "unit": unit, "log": log, "series": [line for line in series if line["data"]]}


def _line(name: str, data: Series, slot: int, dash: str = "solid", *, area: bool = False) -> dict[str, Any]:
    return {"name": name, "slot": slot, "dash": dash, "area": area, "data": data}


def _rates(pools: Sequence[Pool]) -> Chart:
    if len(pools) == 1:
        pool = pools[0]
        series = [
            _line("delivered", pool.timeline("deliver", "messages"), 0, area=True),
            _line("sent", pool.timeline("publish", "messages"), 1),
            _line("planned", pool.timeline("publish", "planned"), 6, "dotted"),
        ]
    else:
        series = [
            _line(f"{pool.label} delivered", pool.timeline("deliver", "messages"), i) for i, pool in enumerate(pools)
        ]
        series = [line for line in series if sum(line["data"].values())] or [
            _line(f"{pool.label} sent", pool.timeline("publish", "messages"), i) for i, pool in enumerate(pools)
        ]
        series.append(_line("planned to send", pools[0].timeline("publish", "planned"), 6, "dotted"))
    return _time_chart("rates", "per_s", series)


def _latency(pools: Sequence[Pool]) -> Chart:
    found = [pool.latency_per_second("response") or pool.latency_per_second("publish") for pool in pools]
    high = min((_high_level(seconds) for seconds in found if seconds), key=_HIGH.index, default=SLOWEST)
    series = []
    for slot, (pool, seconds) in enumerate(zip(pools, found, strict=True)):
        name = f"{pool.label} " if len(pools) > 1 else ""
        for level, dash, own_slot in (("p50", "dotted", 0), (high, "solid", 1)):
            data = {second: _level_ms(part, level) for second, part in seconds.items()}
            line_slot = slot if len(pools) > 1 else own_slot
            series.append(_line(name + level, {s: v for s, v in data.items() if v is not None}, line_slot, dash))
    return _time_chart("latency", "ms", series, log=True)


SLOWEST = "slowest"
"""What is drawn where a second has too few messages for any high percentile."""
_HIGH: tuple[str, ...] = (SLOWEST, "p90", "p95", "p99")
_LEAST_OF_SECONDS = 0.5
"""A percentile is drawn if so many of the seconds carry it."""


def _high_level(seconds: dict[int, Distribution]) -> str:
    """The highest percentile that most seconds have the messages for."""
    for level in reversed(_HIGH[1:]):
        carried = sum(part.total >= needed_samples(level) for part in seconds.values())
        if carried >= _LEAST_OF_SECONDS * len(seconds):
            return str(level)
    return SLOWEST


def _level_ms(found: Distribution, level: str) -> float | None:
    """None where a second has too few messages for it."""
    if level == SLOWEST:
        value = math.inf if found.lost else found.max_arrived_ns
    else:
        value = found.quantile_ns(LEVELS[level]) if found.total >= needed_samples(level) else None
    return None if value is None or value <= 0 else value / MILLISECOND_NS


def _in_flight(pools: Sequence[Pool]) -> Chart:
    name = "deliveries owed"
    series = [
        _line(pool.label if len(pools) > 1 else name, pool.timeline("deliver", "in_flight"), slot, area=len(pools) == 1)
        for slot, pool in enumerate(pools)
    ]
    return _time_chart("in-flight", "count", series)


def _cpu(pools: Sequence[Pool]) -> Chart:
    series = []
    if len(pools) == 1:
        pool, slot = pools[0], 0
        for role in ("contender", "generator", "observed"):
            for service in pool.services(role):
                series.append(_line(service, pool.resource(service, "cpu_percent"), slot))
                if thread := pool.resource(service, "busiest_thread_percent"):
                    series.append(_line(f"{service}, busiest thread", thread, slot, "dotted"))
                slot += 1
    else:
        for slot, pool in enumerate(pools):
            names = pool.services("contender")
            series.append(_line(pool.label, add_series([pool.resource(n, "cpu_percent") for n in names]), slot))
            threads = highest([pool.resource(n, "busiest_thread_percent") for n in names])
            series.append(_line(f"{pool.label}, busiest thread", threads, slot, "dotted"))
    return _time_chart("cpu", "percent", series)


def _memory(pools: Sequence[Pool]) -> Chart:
    if len(pools) == 1:
        names = [name for role in ("contender", "generator", "observed") for name in pools[0].services(role)]
        series = [_line(name, pools[0].resource(name, "rss_bytes"), slot) for slot, name in enumerate(names)]
    else:
        series = [
            _line(pool.label, add_series([pool.resource(n, "rss_bytes") for n in pool.services("contender")]), slot)
            for slot, pool in enumerate(pools)
        ]
    return _time_chart("memory", "bytes", series)


def heat(pool: Pool, slot: int, axis: Sequence[int]) -> Chart:
    """How many messages of each second fell into each band of latency: stalls show as slopes, queues as ramps.

    Its columns stand under those of the time charts: `axis` is their seconds.
    """
    seconds = pool.latency_per_second("response") or pool.latency_per_second("publish")
    if not seconds:
        return {"id": f"heat-{slot}"}
    first, last = min([*axis, *seconds]), max([*axis, *seconds])
    width = -(-(last - first + 1) // _MOST_HEAT_COLUMNS)
    cells: dict[tuple[int, int], int] = {}
    lost: dict[int, int] = {}
    for second, found in seconds.items():
        column = (second - first) // width
        for bucket, n in zip(found.bucket.tolist(), found.n.tolist(), strict=True):
            if bucket == BUCKET_LOST:
                lost[column] = lost.get(column, 0) + n
                continue
            value_ms = max(bucket_value_ns(bucket) / MILLISECOND_NS, 1e-3)
            key = (column, math.floor(math.log10(value_ms) * _BINS_PER_DECADE))
            cells[key] = cells.get(key, 0) + n
    if not cells:
        return {"id": f"heat-{slot}"}
    low, high = min(bin_ for _, bin_ in cells), max(bin_ for _, bin_ in cells)
    return {
        "id": f"heat-{slot}",
        "kind": "heat",
        "unit": "ms",
        "name": pool.label,
        "slot": slot,
        "first_second": first,
        "seconds_per_column": width,
        "columns": (last - first) // width + 1,
        "bins": [round(10 ** (bin_ / _BINS_PER_DECADE), 5) for bin_ in range(low, high + 2)],
        "cells": [[column, bin_ - low, n] for (column, bin_), n in sorted(cells.items())],
        "lost": sorted([column, n] for column, n in lost.items()),
    }


def _ms(value_ns: float) -> float:
    return round(value_ns / MILLISECOND_NS, 5)


def _rounded(value: float | None) -> float | None:
    """Five significant digits: more would only make the page larger."""
    return None if value is None or math.isinf(value) else float(f"{value:.5g}")
