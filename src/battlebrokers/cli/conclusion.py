"""From complete evidence to a told verdict: what `run`, `battle` and `analyze` do after the last message."""

from __future__ import annotations

from battlebrokers.analysis.model import Summary
from battlebrokers.analysis.summary import write_summary
from battlebrokers.cli.progress import RunProgress
from battlebrokers.errors import ExitCode
from battlebrokers.pipeline.client import Analyst
from battlebrokers.report.html import write_report
from battlebrokers.tables.run_folder import RunFolder

_VERDICT_CODES = {"PASS": ExitCode.PASS, "FAIL": ExitCode.EXPECTATION_FAILED, "VOID": ExitCode.VOID}
_STATE_CODES = {
    "broker-failed": ExitCode.BROKER_FAILED,
    "interrupted": ExitCode.INTERRUPTED,
    "failed": ExitCode.BUG,
}


def conclude(folder: RunFolder, analyst: Analyst, progress: RunProgress, *, html: bool) -> Summary:
    """Analyse the evidence, judge it, and write summary, findings and report into the run folder."""
    analyst.analyze(str(folder.path), on_progress=progress.step)
    summary = write_summary(folder)
    if html:
        write_report([folder], folder.report_path)
    return summary


def exit_code(folder: RunFolder, summary: Summary) -> ExitCode:
    """What the shell is told: how the run ended comes before how it was judged."""
    state = folder.read_manifest().state
    return _STATE_CODES.get(state, _VERDICT_CODES[summary.verdict])
