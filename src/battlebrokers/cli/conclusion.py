"""From complete evidence to a told verdict: what `run`, `battle` and `analyze` do after the last message."""

from __future__ import annotations

from collections.abc import Iterable

import typer
from rich.console import Console

from battlebrokers.analysis.conclusion import Conclusion
from battlebrokers.analysis.conclusion import conclude as draw
from battlebrokers.analysis.verdict import exit_code, void_words
from battlebrokers.analysis.wire import read_wire
from battlebrokers.cli.progress import RunProgress
from battlebrokers.errors import ExitCode, Interrupted, PipelineError
from battlebrokers.pipeline.client import Analyst
from battlebrokers.report.html import write_report
from battlebrokers.report.service_text import write_service_texts
from battlebrokers.report.terminal import print_run
from battlebrokers.tables.run_folder import RunFolder

_SEVERITY = (
    ExitCode.PASS,
    ExitCode.EXPECTATION_FAILED,
    ExitCode.VOID,
    ExitCode.BROKER_FAILED,
    ExitCode.BUG,
    ExitCode.INTERRUPTED,
)


def conclude(folder: RunFolder, analyst: Analyst, progress: RunProgress, *, html: bool) -> Conclusion:
    """Analyse the evidence, judge it, and write summary, findings and report into the run folder."""
    try:
        analyst.analyze(str(folder.path), on_progress=progress.step)
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted while analysing; what was recorded is complete", hint=f"`bb analyze {folder.path}` does it."
        ) from None
    except PipelineError as error:
        again = f"What was recorded is complete: `bb analyze {folder.path}` does it again. {error.hint}"
        raise PipelineError(error.message, hint=again.strip()) from error
    conclusion = draw(folder)
    wire = read_wire(folder, void_words(conclusion.summary))
    if wire is not None:
        write_service_texts(wire, folder.path)
    if html:
        write_report([folder], folder.report_path)
    return conclusion


def tell(conclusion: Conclusion, *, as_json: bool, one_of_several: bool = False) -> ExitCode:
    """Print the summary, for people or for programs (one of several as a line); returns what the shell is told."""
    summary = conclusion.summary
    if as_json:
        typer.echo(summary.to_json_line() if one_of_several else summary.to_json(), nl=False)
    else:
        print_run(Console(highlight=False), conclusion)
    return exit_code(conclusion.summary)


def worst(codes: Iterable[ExitCode]) -> ExitCode:
    """The code that tells most against several runs."""
    return max(codes, key=_SEVERITY.index, default=ExitCode.PASS)
