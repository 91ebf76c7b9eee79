"""The group `analyze`: `bb analyze` as a user types it, and whether ten times as many events cost ten times more."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from battlebrokers.errors import ExitCode
from battlebrokers.tables import LEDGER
from battlebrokers.tables.run_folder import RunFolder
from benchmarks.bench import Bench
from benchmarks.figure import AT_MOST, Figure, judged
from benchmarks.synthetic import Shape, Truth, write_run

_SIZES = (1_000_000, 5_000_000, 10_000_000)
_NOISE = 1.15
"""How much dearer an event may seem at ten times the size before we call it worse than linear."""
_MARGINAL_NOISE = 1.3
"""The same for one more event: the difference of two measurements is less sure than either."""
_TRIES = 2
_VERDICTS = (ExitCode.PASS, ExitCode.VOID, ExitCode.EXPECTATION_FAILED)


@dataclass(frozen=True, slots=True)
class Timed:
    """How long the command took for so many deliveries."""

    deliveries: int
    seconds: float

    @property
    def each_s(self) -> float:
        """Seconds per delivery, starting Spark included."""
        return self.seconds / self.deliveries

    def each_more_s(self, smaller: Timed) -> float:
        """Seconds for each delivery beyond those of a smaller run: starting costs both the same."""
        return (self.seconds - smaller.seconds) / (self.deliveries - smaller.deliveries)


def figures(bench: Bench) -> Iterator[Figure]:
    """All figures of the group."""
    yield from told([_timed(bench, size // 100 if bench.quick else size) for size in _SIZES])


def told(timed: Sequence[Timed]) -> Iterator[Figure]:
    """What three sizes, the smallest first, say about the cost of an event."""
    small, middle, large = timed
    sizes = f"{large.deliveries:,} deliveries ÷ of {small.deliveries:,}"
    yield judged(
        "analyze.cost_per_event", 1e9 * large.each_s, 1e9 * small.each_s, target=_NOISE, unit="ns/event", bound=AT_MOST,
        note=f"`bb analyze RUN --spark-master 'local[2]'`, from typing it to its report: of {sizes}",
    )  # fmt: skip
    upper_s, lower_s = large.each_more_s(middle), middle.each_more_s(small)
    yield judged(
        "analyze.marginal_cost", 1e9 * upper_s, 1e9 * lower_s, target=_MARGINAL_NOISE, unit="ns/event", bound=AT_MOST,
        provided=upper_s > 0,  # less than nothing is noise, not an answer
        note=f"each more delivery from {middle.deliveries:,} to {large.deliveries:,} ÷ from {small.deliveries:,} to "
        f"{middle.deliveries:,}: what starting costs is in neither",
    )  # fmt: skip
    yield judged(
        "analyze.events_per_s", 1 / large.each_s, 1 / small.each_s, target=1 / _NOISE, unit="events/s",
        note=f"deliveries analysed per second by the same command: of {sizes}",
    )  # fmt: skip


def _timed(bench: Bench, deliveries: int) -> Timed:
    """The quicker of two tries, each with a Spark of its own; what it found must be true."""
    bench.say(f"making up {deliveries:,} deliveries")
    folder = bench.folder / f"synthetic-{deliveries}"
    truth = write_run(folder, Shape(deliveries))
    tries = []
    for _ in range(1 if bench.quick else _TRIES):
        tries.append(_seconds(folder))
        _check(folder, truth)
        bench.say(f"bb analyze of {truth.delivered:,} deliveries: {tries[-1]:.1f} s")
    return Timed(truth.delivered, min(tries))


def _seconds(folder: Path) -> float:
    bb = Path(sys.executable).with_name("bb")
    command = [str(bb), "analyze", str(folder), "--spark-master", "local[2]", "--quiet"]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    if done.returncode not in _VERDICTS:
        raise RuntimeError(f"bb analyze came to no verdict:\n{done.stderr[-2000:]}")
    return seconds


def _check(folder: Path, truth: Truth) -> None:
    ledger = pq.read_table(RunFolder(folder).table(LEDGER), columns=["expected", "delivered", "lost", "duplicates"])
    found = [sum(ledger[name].to_pylist()) for name in ledger.column_names]
    if found != [truth.expected, truth.delivered, truth.lost, truth.duplicates]:
        raise RuntimeError(f"the analysis found {found}, true is {truth}")
