"""`bb compare`: two runs side by side, with better, worse or noise as the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from battlebrokers.analysis.comparison import compare as compare_runs
from battlebrokers.analysis.facts import Facts, read_facts
from battlebrokers.analysis.model import Summary
from battlebrokers.analysis.summary import summarize
from battlebrokers.catalog.entries import runs_directory
from battlebrokers.catalog.references import resolve_run
from battlebrokers.output import PlainConsole, echo_json
from battlebrokers.report.battle import print_comparison


def compare(
    baseline: Annotated[str, typer.Argument(metavar="A", help="The run to compare with: id, folder, LAST, LAST~1.")],
    contender: Annotated[str, typer.Argument(metavar="B", help="The run to judge.")],
    anyway: Annotated[bool, typer.Option("--anyway", help="Compare even if plan, seed or machine differ.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
    runs: Annotated[Path | None, typer.Option(help="Directory of the runs; $BB_RUNS or ./runs if absent.")] = None,
) -> None:
    """Compare two runs figure by figure; refuse if they were not made alike."""
    directory = runs_directory(runs)
    found = compare_runs(_read(baseline, directory), _read(contender, directory), anyway=anyway)
    if json:
        echo_json(msgspec.json.format(msgspec.json.encode(found.to_dict()), indent=2).decode())
        return
    print_comparison(PlainConsole(), found)


def _read(reference: str, directory: Path) -> tuple[Facts, Summary]:
    facts = read_facts(resolve_run(reference, directory))
    return facts, summarize(facts)
