"""The group `verdict`: how long a user waits after the last message until the verdict is written."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from battlebrokers.tables import DELIVERIES
from battlebrokers.tables.run_folder import RunFolder
from benchmarks.bench import Bench
from benchmarks.figure import AT_MOST, Figure, compared

_LIMIT_S = 10.0


def figures(bench: Bench) -> Iterator[Figure]:
    """All figures of the group."""
    (seconds,) = bench.interleaved("verdict of thesis-baseline", lambda: _seconds_to_verdict(bench))
    yield compared(
        "verdict.thesis_baseline", seconds, [_LIMIT_S] * len(seconds), target=1.0, unit="s", bound=AT_MOST,
        note="`bb run thesis-baseline --broker mosquitto`: last message to summary.json ÷ the most we allow ourselves",
    )  # fmt: skip


def _seconds_to_verdict(bench: Bench) -> float:
    runs = bench.folder / "verdict"
    bb = Path(sys.executable).with_name("bb")
    command = [str(bb), "run", "thesis-baseline", "--broker", "mosquitto", "--runs", str(runs), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    folders = sorted(runs.glob("*/summary.json"), key=lambda path: path.stat().st_mtime_ns)
    if not folders:
        raise RuntimeError(f"bb run came to no verdict:\n{done.stderr[-2000:]}")
    summary = folders[-1]
    received_ns = pq.read_table(RunFolder(summary.parent).table(DELIVERIES), columns=["received_ns"])["received_ns"]
    return (summary.stat().st_mtime_ns - int(pc.max(received_ns).as_py())) / 1e9
