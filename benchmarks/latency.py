"""What our generator adds to the latency it reports, seen by an independent probe. Part of `engine`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from battlebrokers.run.tick import FINE_UP_TO_PER_S
from benchmarks.bench import Bench, Broker
from benchmarks.figure import AT_MOST, Figure, judged
from benchmarks.ours import Evidence, Load, plain_load, run_ours
from benchmarks.probe import Probe, running_probe

Numbers = npt.NDArray[np.float64]

_LIMIT_MS = 1.0
_SLICE_NS = 100_000_000


def added_latency(bench: Bench, broker: Broker) -> Figure:
    """Our p99 at half of the broker's capacity beside the probe's p99, tenth of a second by tenth of a second.

    Where half of the capacity would be handled in ticks, the highest rate without them is taken instead.
    A virtual machine loses its processors for some milliseconds now and then; whoever speaks in that tenth of a
    second pays, so tenths are compared with each other, and the median tells what we add in an ordinary one.
    """
    load = plain_load(bench)
    capacity = run_ours(load, broker, bench.folder, lambda told: told.delivered_per_s)
    half = replace(load, per_s=rate_without_ticks(capacity / 2))
    rounds = []
    for number in range(bench.rounds):
        ours_ms, probe_ms, busy = _side_by_side(bench, broker, half)
        added_ms = float(np.median(ours_ms - probe_ms))
        rounds.append((max(0.0, added_ms), float(np.median(ours_ms)), float(np.median(probe_ms)), busy))
        bench.say(
            f"latency at {half.per_s:,.0f}/s, round {number + 1} of {bench.rounds}: median of {len(ours_ms)} slices: "
            f"ours p99 {rounds[-1][1]:.3f} ms, probe {rounds[-1][2]:.3f} ms, added {added_ms:.3f} ms, "
            f"{busy:.0%} of a core"
        )
    added_ms, ours, probe, busy = sorted(rounds)[len(rounds) // 2]
    return judged(
        "engine.added_latency", added_ms, _LIMIT_MS, target=1.0, unit="ms", bound=AT_MOST,
        note=f"at {share_told(half.per_s, capacity)}, with {busy:.0%} of a core: our p99 of "
        f"{ours:.2f} ms less the {probe:.2f} ms of an independent probe, stamped by the kernel, through the same "
        "broker in the same tenth of a second (median of all tenths) ÷ the most we allow ourselves",
    )  # fmt: skip


def rate_without_ticks(wanted_per_s: float) -> float:
    """The rate, or the highest one that a process still handles message by message: each is sent and received."""
    return float(round(min(wanted_per_s, FINE_UP_TO_PER_S / 2)))


def share_told(per_s: float, capacity_per_s: float) -> str:
    """The rate and what it is of the broker's capacity: half, or less where ticks would begin before that."""
    capped = per_s < 0.99 * capacity_per_s / 2
    why = ", the most that is sent without ticks" if capped else ""
    return f"{per_s:,.0f} msg/s, {per_s / max(1.0, capacity_per_s):.0%} of the broker's capacity{why}"


def _side_by_side(bench: Bench, broker: Broker, load: Load) -> tuple[Numbers, Numbers, float]:
    """(our p99s, the probe's, how much of a core our process used)."""
    with running_probe(broker.host, broker.port) as probe:

        def read(told: Evidence) -> tuple[Numbers, Numbers, float]:
            return *_p99_of_slices_ms(told, probe), told.cpu_us * told.delivered_per_s / 1e6

        return run_ours(load, broker, bench.folder, read)


def _p99_of_slices_ms(told: Evidence, probe: Probe) -> tuple[Numbers, Numbers]:
    """(ours, the probe's) for every slice of the measure phase in which both were heard."""
    ours = told.planned_and_response_ns()
    independent = np.array(probe.finish(), dtype=np.int64).reshape(-1, 2)
    pairs = []
    for start_ns in range(told.window.start_ns, told.window.end_ns - _SLICE_NS + 1, _SLICE_NS):
        both = [_p99_ms(side, start_ns) for side in (ours, independent)]
        if all(np.isfinite(both)):
            pairs.append(both)
    ours_ms, probe_ms = np.array(pairs).reshape(-1, 2).T
    return ours_ms, probe_ms


def _p99_ms(stamped: npt.NDArray[np.int64], start_ns: int) -> float:
    """Of the rows (moment, delay) from `start_ns` on; NaN when there is none."""
    inside = stamped[(stamped[:, 0] >= start_ns) & (stamped[:, 0] < start_ns + _SLICE_NS), 1]
    return float(np.percentile(inside, 99)) / 1e6 if len(inside) else float("nan")
