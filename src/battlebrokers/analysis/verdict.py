"""PASS, FAIL or VOID, with reasons in words; and the exit code a shell sees. Pure.

Strongest first: interrupted, broker failed, VOID (a trust check or an expectation that cannot be judged), FAIL, PASS.
"""

from __future__ import annotations

from battlebrokers.analysis.admission import SUBSCRIBED
from battlebrokers.analysis.model import Judged, Summary, Trust, Verdict
from battlebrokers.errors import ExitCode


def judge(state: str, detail: str, trust: Trust, judged: list[Judged]) -> tuple[Verdict, list[str]]:
    """The verdict and its reasons."""
    if state == "broker-failed":
        return "FAIL", [f"the broker failed: {detail}" if detail else "the broker failed during the run"]
    void = [check.sentence for check in trust.checks if check.level == "void"]
    if state != "interrupted":
        void += [f"{one.text} cannot be judged: {one.measured}" for one in judged if one.ok is None]
    if void:
        # A subscription that was never granted explains what the machine would be blamed for.
        denied = [_failure(one) for one in judged if one.ok is False and one.text == SUBSCRIBED]
        return "VOID", denied + void
    failed = [_failure(one) for one in judged if one.ok is False]
    return ("FAIL", failed) if failed else ("PASS", [])


def void_words(summary: Summary) -> str:
    """Why a run is VOID; empty if it is not."""
    return "; ".join(summary.reasons) if summary.verdict == "VOID" else ""


def exit_code(summary: Summary) -> ExitCode:
    """What `bb run` tells the shell for this run."""
    if summary.state == "interrupted":
        return ExitCode.INTERRUPTED
    if summary.state == "broker-failed":
        return ExitCode.BROKER_FAILED
    return {"PASS": ExitCode.PASS, "FAIL": ExitCode.EXPECTATION_FAILED, "VOID": ExitCode.VOID}[summary.verdict]


def _failure(one: Judged) -> str:
    if one.source == "promise":
        return f"a promise was broken: {one.text}; {one.measured}"
    return f"{one.text} does not hold: {one.measured}"
