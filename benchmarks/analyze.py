"""The group `analyze`: events per second of the whole pipeline, and whether ten times as many cost ten times more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

from battlebrokers.pipeline.client import Analyst
from battlebrokers.tables import LEDGER
from battlebrokers.tables.run_folder import RunFolder
from benchmarks.bench import Bench
from benchmarks.figure import AT_MOST, Figure, judged
from benchmarks.synthetic import Shape, Truth, write_run

_FEWER, _MORE = 1_000_000, 10_000_000
_NOISE = 1.15
"""How much dearer an event may seem at ten times the size before we call it worse than linear."""


def figures(bench: Bench) -> Iterator[Figure]:
    """All figures of the group."""
    fewer, more = (_FEWER // 100, _MORE // 100) if bench.quick else (_FEWER, _MORE)
    with Analyst.start("local[2]", expected_events=more, idle=False) as analyst:
        small_truth, large_truth = (_make_up(bench, count) for count in (fewer, more))
        small, large = small_truth.delivered, large_truth.delivered
        small_s = _seconds(bench, analyst, fewer, small_truth)
        again_s = _seconds(bench, analyst, fewer, small_truth)
        large_s = _seconds(bench, analyst, more, large_truth)
    per_small, per_large = min(small_s, again_s) / small, large_s / large
    yield judged(
        "analyze.cost_per_event", 1e9 * per_large, 1e9 * per_small, target=_NOISE, unit="ns/event", bound=AT_MOST,
        note=f"one analysis of {large:,} deliveries ÷ one of {small:,}, both on local[2] in one warm session",
    )  # fmt: skip
    yield judged(
        "analyze.events_per_s", 1 / per_large, 1 / per_small, target=1 / _NOISE, unit="events/s",
        note=f"deliveries analysed per second at {large:,} ÷ at {small:,}",
    )  # fmt: skip


def _make_up(bench: Bench, deliveries: int) -> Truth:
    bench.say(f"making up {deliveries:,} deliveries")
    return write_run(_folder(bench, deliveries), Shape(deliveries))


def _seconds(bench: Bench, analyst: Analyst, deliveries: int, truth: Truth) -> float:
    bench.say(f"analysing {truth.delivered:,} deliveries")
    folder = _folder(bench, deliveries)
    seconds = analyst.analyze(str(folder)).seconds
    ledger = pq.read_table(RunFolder(folder).table(LEDGER), columns=["expected", "delivered", "lost", "duplicates"])
    found = [sum(ledger[name].to_pylist()) for name in ledger.column_names]
    if found != [truth.expected, truth.delivered, truth.lost, truth.duplicates]:
        raise RuntimeError(f"the analysis found {found}, true is {truth}")
    return seconds


def _folder(bench: Bench, deliveries: int) -> Path:
    return bench.folder / f"synthetic-{deliveries}"
