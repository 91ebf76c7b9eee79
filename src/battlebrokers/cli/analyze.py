"""`bb analyze`: rebuild everything after `recorded/` from the evidence of finished, interrupted or killed runs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Annotated

import typer

from battlebrokers.catalog.analysis_lock import analysis_lock
from battlebrokers.catalog.entries import is_under_way, settled
from battlebrokers.catalog.references import resolve_run
from battlebrokers.cli.conclusion import conclude, tell
from battlebrokers.cli.interruption import interruptible
from battlebrokers.cli.options import RUNS_DEFAULT, AsJson, Quiet, Runs, SparkMaster
from battlebrokers.cli.progress import RunProgress
from battlebrokers.errors import EnvironmentNotReady
from battlebrokers.output import echo
from battlebrokers.pipeline.client import Analyst
from battlebrokers.tables.manifest import Manifest
from battlebrokers.tables.run_folder import RunFolder


def analyze(
    reference: Annotated[str, typer.Argument(metavar="RUN", help="A run: its id, its folder, LAST or LAST~1.")],
    out: Annotated[
        str | None, typer.Option("--out", help="Write the tables there instead (any Hadoop-style path).")
    ] = None,
    runs: Runs = RUNS_DEFAULT,
    spark_master: SparkMaster = "local[*]",
    html: Annotated[bool, typer.Option("--html/--no-html", help="Write report.html into the run folder.")] = True,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Analyse a run again from its recorded evidence; also what rescues a run that was killed."""
    unfinished = f"the tables of {out or reference} are not whole", "What was recorded is untouched: analyse it again."
    with RunProgress(quiet=quiet or as_json) as progress, interruptible(*unfinished):
        progress.begin(f"analyse {reference}")
        if "://" in reference or out is not None:
            # Somewhere only Spark can reach: the tables are the result, nobody here can read them for a report.
            place = reference if "://" in reference else str(resolve_run(reference, runs).path)
            locked = contextlib.nullcontext() if "://" in (out or place) else analysis_lock(Path(out or place))
            with locked, Analyst.start(spark_master, idle=False) as analyst:
                analyst.analyze(place, on_progress=progress.step, out=out)
            echo(out or place)
            return 0
        folder = resolve_run(reference, runs)
        _refuse_what_cannot_be_replaced(folder)
        _refuse_what_is_under_way(folder)
        with analysis_lock(folder.path):  # before Spark starts: whoever comes second need not wait for it
            events = _recorded_events(settled(folder))
        with Analyst.start(spark_master, events, idle=False) as analyst:
            conclusion = conclude(folder, analyst, progress, html=html)
    return tell(conclusion, as_json=as_json)


def _refuse_what_cannot_be_replaced(folder: RunFolder) -> None:
    """Say so before Spark starts, and before half of the old tables are gone."""
    for pattern in (".", "measures", "journeys", "decoded", "measures/*/", "journeys/*/", "decoded/*/"):
        for place in folder.path.glob(pattern) if pattern != "." else [folder.path]:
            if not os.access(place, os.W_OK):
                raise EnvironmentNotReady(
                    f"the tables cannot be written: {place} is not yours to change",
                    hint="Choose another place for them: --out DIR.",
                )


def _refuse_what_is_under_way(folder: RunFolder) -> None:
    """The evidence of a run is whole when it has ended."""
    manifest = folder.read_manifest()
    if manifest.process is not None and is_under_way(manifest):
        raise EnvironmentNotReady(
            f"the run {manifest.run} is still under way: process {manifest.process.pid} on {manifest.process.host}",
            hint="Wait until it has ended; it is then analysed without being asked.",
        )


def _recorded_events(manifest: Manifest) -> int:
    """How many messages and deliveries the workers recorded; 0 if a run was killed before they could say."""
    counted = [worker.counters for worker in manifest.workers]
    unrecorded = sum(counters.get("arrivals_not_recorded", 0) for counters in counted)
    return max(0, sum(counters.get(name, 0) for counters in counted for name in ("sent", "received")) - unrecorded)
