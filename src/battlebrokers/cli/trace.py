"""`bb trace` and `bb explain`: follow single messages through the services, and name what holds slow ones back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from battlebrokers.analysis.examples import read_examples
from battlebrokers.analysis.explanation import explain as explain_traces
from battlebrokers.analysis.stored import is_run
from battlebrokers.analysis.summary import build_summary
from battlebrokers.analysis.traces import Trace, Traces
from battlebrokers.analysis.verdict import void_words
from battlebrokers.catalog.references import resolve_run
from battlebrokers.cli.options import RUNS_DEFAULT, AsJson, Runs
from battlebrokers.errors import InputError, RunFolderError, UsageError
from battlebrokers.output import PlainConsole, echo_json
from battlebrokers.report.traces import print_explanation, print_lost, print_slowest, print_traces
from battlebrokers.tables import HOPS
from battlebrokers.tables.run_folder import RunFolder

_SLOWEST, _MOST_LOST = 10, 20

Reference = Annotated[str, typer.Argument(metavar="RUN", help="A captured run, or the folder `bb pcap` wrote to.")]


def trace(
    reference: Reference,
    slowest: Annotated[
        int | None,
        typer.Option("--slowest", metavar="N", min=1, help="The N that took longest; 10 of them if absent."),
    ] = None,
    lost: Annotated[bool, typer.Option("--lost", help="Messages that never arrived, as far as they got.")] = False,
    name: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="One message: DEVICE:SEQ, or the id that --slowest shows.")
    ] = None,
    runs: Runs = RUNS_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Follow messages from service to service, as the captures saw them.

    A line is a leg: from whom to whom, when, what was said, and how long the sender had kept it.
    The bar is the message's whole time; pale legs did not decide when it arrived last.
    """
    if sum((slowest is not None, lost, name is not None)) > 1:
        raise UsageError("--slowest, --lost and --id exclude each other", hint="Ask for one of them at a time.")
    traces = Traces(_folder(reference, runs))
    console = PlainConsole()
    if name is not None:
        found: Sequence[Trace] = _named(traces, name)
    elif lost:
        gone = traces.lost(None if as_json else _MOST_LOST)
        found = gone.traces
    else:
        found = traces.slowest(slowest or _SLOWEST)
    if as_json:
        echo_json(json.dumps([_plain(one) for one in found], indent=2))
    elif name is not None:
        print_traces(console, found)
    elif lost:
        print_lost(console, gone, len(traces))
    else:
        print_slowest(console, found, len(traces))
    return 0


def _named(traces: Traces, name: str) -> list[Trace]:
    found = traces.named(name)
    if not found:
        known = traces.slowest(1)
        hint = f"{len(traces)} messages were followed, for example {known[0].title}." if known else "None was followed."
        raise InputError(f"no followed message is {name}", hint=hint)
    return found


def explain(reference: Reference, runs: Runs = RUNS_DEFAULT, as_json: AsJson = False) -> int:
    """Say which service holds the slow messages back, and on what evidence.

    Compares the slowest hundredth of the followed messages with the faster half: where do they spend the difference?
    Of a run that is VOID it says why, and names nobody.
    `bb trace` shows single messages.
    """
    folder = _folder(reference, runs)
    explanation = explain_traces(read_examples(folder), _void_reason(folder))
    if as_json:
        culprit = explanation.culprit.service if explanation.culprit else None
        document = asdict(explanation) | {"culprit": culprit, "sentences": explanation.sentences()}
        echo_json(json.dumps(document, indent=2))
    else:
        print_explanation(PlainConsole(), explanation, reference)
    return 0


def _void_reason(folder: RunFolder) -> str:
    """Why the run is VOID; empty for captures that are of no run, or of one whose messages were not analysed."""
    try:
        return void_words(build_summary(folder)) if is_run(folder) else ""
    except RunFolderError:
        return ""


def _folder(reference: str, runs: Path) -> RunFolder:
    place = Path(reference)
    decoded = RunFolder(place)
    if decoded.table(HOPS).is_dir():
        return _whole(decoded, "bb analyze" if decoded.manifest_path.exists() else "bb pcap")
    if "/" in reference and place.is_dir() and not (place / "manifest.json").exists():
        raise InputError(
            f"{reference} holds no decoded captures",
            hint="Give a captured run (`bb list` shows the runs here), or the folder that `bb pcap … --out` wrote to.",
        )
    return _whole(resolve_run(reference, runs), "bb analyze")


def _whole(folder: RunFolder, verb: str) -> RunFolder:
    """The folder, unless its captures were decoded only in part: that is said in the file written last."""
    if folder.table(HOPS).is_dir() and not folder.decoded_summary_path.exists():
        raise InputError(
            f"the captures in {folder.path} were not decoded to the end", hint=f"Run `{verb}` on them again."
        )
    return folder


def _plain(trace: Trace) -> dict[str, object]:
    return {"id": trace.title, "took_ns": trace.took_ns, **asdict(trace)}
