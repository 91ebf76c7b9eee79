"""`bb analyze`: rebuild everything after `recorded/` from the evidence of finished, interrupted or killed runs."""

from __future__ import annotations

import os
from typing import Annotated

import typer

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
            with Analyst.start(spark_master, idle=False) as analyst:
                analyst.analyze(place, on_progress=progress.step, out=out)
            echo(out or place)
            return 0
        folder = resolve_run(reference, runs)
        _refuse_what_cannot_be_replaced(folder)
        events = _recorded_events(folder.read_manifest())
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


def _recorded_events(manifest: Manifest) -> int:
    """How many messages and deliveries the workers counted; 0 if a run was killed before they could say."""
    return sum(worker.counters.get(name, 0) for worker in manifest.workers for name in ("sent", "received"))
