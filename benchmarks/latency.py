"""What our generator adds to the latency it reports, seen by an independent probe. Part of `engine`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.bench import Bench, Broker
from benchmarks.figure import AT_MOST, Figure, judged
from benchmarks.ours import Evidence, Load, plain_load, run_ours
from benchmarks.probe import Probe, running_probe

_LIMIT_MS = 1.0


def added_latency(bench: Bench, broker: Broker) -> Figure:
    """Our p99 at half of the broker's capacity beside the probe's p99 at the same time."""
    load = plain_load(bench)
    capacity = run_ours(load, broker, bench.folder, lambda told: told.delivered_per_s)
    half = replace(load, per_s=float(round(capacity / 2)))
    added = []
    for number in range(bench.rounds):
        ours_ms, probe_ms = _side_by_side(bench, broker, half)
        added.append((max(0.0, ours_ms - probe_ms), ours_ms, probe_ms))
        bench.say(
            f"latency at {half.per_s:,.0f}/s, round {number + 1} of {bench.rounds}: "
            f"ours p99 {ours_ms:.3f} ms, probe {probe_ms:.3f} ms"
        )
    added_ms, ours_ms, probe_ms = sorted(added)[len(added) // 2]
    return judged(
        "engine.added_latency", added_ms, _LIMIT_MS, target=1.0, unit="ms", bound=AT_MOST,
        note=f"at {half.per_s:,.0f} msg/s, half of the broker's capacity: our p99 of {ours_ms:.2f} ms less the "
        f"{probe_ms:.2f} ms of an independent probe, stamped by the kernel, through the same broker at the same time "
        "÷ the most we allow ourselves",
    )  # fmt: skip


def _side_by_side(bench: Bench, broker: Broker, load: Load) -> tuple[float, float]:
    with running_probe(broker.host, broker.port) as probe:
        return run_ours(load, broker, bench.folder, lambda told: _p99_ms(told, probe))


def _p99_ms(told: Evidence, probe: Probe) -> tuple[float, float]:
    window = told.window
    delays_ns = [delay_ns for sent_ns, delay_ns in probe.finish() if window.start_ns <= sent_ns < window.end_ns]
    return float(np.percentile(told.response_ms(), 99)), float(np.percentile(delays_ns, 99)) / 1e6
