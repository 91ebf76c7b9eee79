"""From complete evidence to a told verdict: what `run`, `battle` and `analyze` do after the last message."""

from __future__ import annotations

from collections.abc import Iterable

from battlebrokers import signals
from battlebrokers.analysis.conclusion import Conclusion
from battlebrokers.analysis.conclusion import conclude as draw
from battlebrokers.analysis.verdict import exit_code, void_words
from battlebrokers.analysis.wire import read_wire
from battlebrokers.catalog.analysis_lock import analysis_lock
from battlebrokers.cli.conduct import kept_in
from battlebrokers.cli.progress import RunProgress
from battlebrokers.errors import EnvironmentNotReady, ExitCode, Interrupted, PipelineError
from battlebrokers.output import PlainConsole, echo_json
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
    with analysis_lock(folder.path):
        return _conclude(folder, analyst, progress, html=html)


def _conclude(folder: RunFolder, analyst: Analyst, progress: RunProgress, *, html: bool) -> Conclusion:
    again = f"`bb analyze {folder.path}` does it again."
    with signals.keeping(kept_in(folder)):
        try:
            analyst.analyze(str(folder.path), on_progress=progress.step)
            conclusion = draw(folder)
            wire = read_wire(folder, void_words(conclusion.summary))
            if wire is not None:
                write_service_texts(wire, folder.path)
            if html:
                write_report([folder], folder.report_path)
        except KeyboardInterrupt:
            raise Interrupted(
                f"interrupted while analysing; what was recorded is complete in {folder.path}", hint=again
            ) from None
        except (PipelineError, EnvironmentNotReady) as error:
            hint = f"What was recorded is complete: {again} {error.hint}"
            raise type(error)(error.message, hint=hint.strip()) from error
    return conclusion


def tell(conclusion: Conclusion, *, as_json: bool, one_of_several: bool = False) -> ExitCode:
    """Print the summary, for people or for programs (one of several as a line); returns what the shell is told."""
    summary = conclusion.summary
    if as_json:
        echo_json(summary.to_json_line() if one_of_several else summary.to_json(), nl=False)
    else:
        print_run(PlainConsole(), conclusion)
    return exit_code(conclusion.summary)


def worst(codes: Iterable[ExitCode]) -> ExitCode:
    """The code that tells most against several runs."""
    return max(codes, key=_SEVERITY.index, default=ExitCode.PASS)
