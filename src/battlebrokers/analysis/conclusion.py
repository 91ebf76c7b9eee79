"""The last step of a run: facts → summary and findings, written into the run folder. Called after the pipeline."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from battlebrokers.analysis.facts import Facts, read_facts
from battlebrokers.analysis.finders import find
from battlebrokers.analysis.findings import Finding, write_findings
from battlebrokers.analysis.model import Summary
from battlebrokers.analysis.summary import summarize, write_summary
from battlebrokers.tables.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A run with everything concluded from it; reports tell it."""

    facts: Facts
    summary: Summary
    findings: list[Finding]

    @property
    def folder(self) -> RunFolder:
        """Where the run lies."""
        return self.facts.folder


def draw_conclusion(folder: RunFolder) -> Conclusion:
    """Read a run's measures and conclude; writes nothing."""
    facts = read_facts(folder)
    summary = summarize(facts)
    findings = find(facts, summary)
    return Conclusion(facts, msgspec.structs.replace(summary, findings=findings), findings)


def conclude(folder: RunFolder) -> Conclusion:
    """Draw the conclusion and write `summary.json` and `findings.json`."""
    conclusion = draw_conclusion(folder)
    write_summary(folder, conclusion.summary)
    write_findings(folder, conclusion.findings)
    return conclusion
