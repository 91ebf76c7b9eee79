"""`bb trace` and `bb explain`: follow single messages through the services, and name what holds slow ones back."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from battlebrokers.analysis.explanation import explain as explain_traces
from battlebrokers.analysis.traces import Trace, Traces
from battlebrokers.catalog.references import resolve_run
from battlebrokers.cli.options import RUNS_DEFAULT, AsJson, Runs
from battlebrokers.errors import UsageError
from battlebrokers.report.traces import print_explanation, print_traces
from battlebrokers.tables import HOPS
from battlebrokers.tables.run_folder import RunFolder

Reference = Annotated[str, typer.Argument(metavar="RUN", help="A captured run, or the folder `bb pcap` wrote to.")]


def trace(
    reference: Reference,
    slowest: Annotated[int | None, typer.Option("--slowest", min=1, help="The messages that took longest.")] = None,
    lost: Annotated[bool, typer.Option("--lost", help="Messages that never arrived, as far as they got.")] = False,
    name: Annotated[str | None, typer.Option("--id", metavar="DEVICE:SEQ", help="One message.")] = None,
    runs: Runs = RUNS_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Follow messages from service to service, as the captures saw them."""
    if sum((slowest is not None, lost, name is not None)) > 1:
        raise UsageError("--slowest, --lost and --id exclude each other")
    traces = Traces(_folder(reference, runs))
    found = traces.named(name) if name is not None else traces.lost(20) if lost else traces.slowest(slowest or 10)
    if as_json:
        typer.echo(json.dumps([_plain(one) for one in found], indent=2))
    elif found:
        print_traces(Console(highlight=False), found)
    else:
        typer.echo("no such message was followed" if not lost else "no message was lost on its way")
    return 0


def explain(reference: Reference, runs: Runs = RUNS_DEFAULT, as_json: AsJson = False) -> int:
    """Say which service holds the slow messages back, and on what evidence."""
    explanation = explain_traces(Traces(_folder(reference, runs)))
    if as_json:
        culprit = explanation.culprit.service if explanation.culprit else None
        document = asdict(explanation) | {"culprit": culprit, "sentences": explanation.sentences()}
        typer.echo(json.dumps(document, indent=2))
    else:
        print_explanation(Console(highlight=False), explanation)
    return 0


def _folder(reference: str, runs: Path) -> RunFolder:
    decoded = RunFolder(Path(reference))
    return decoded if decoded.table(HOPS).is_dir() else resolve_run(reference, runs)


def _plain(trace: Trace) -> dict[str, object]:
    return {"id": trace.title, "took_ns": trace.took_ns, **asdict(trace)}
