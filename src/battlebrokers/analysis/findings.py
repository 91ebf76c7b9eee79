"""What a reader should know about a run: sentences with the rows they rest on. Writes `findings.json`.

A finding states what was seen, never a cause that was not measured. The looking is done in `finders`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from battlebrokers.tables.run_folder import RunFolder, write_atomically

Severity = Literal["critical", "warning", "notice", "info"]
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "notice", "info")


class Evidence(msgspec.Struct, frozen=True):
    """Rows a finding rests on: a table, the filter that selects them, what they say."""

    table: str
    filter: str
    value: Any


class Finding(msgspec.Struct, frozen=True):
    """One sentence with its evidence."""

    id: Annotated[str, Meta(description="Stable name of the kind of finding.")]
    severity: Severity
    sentence: str
    evidence: list[Evidence]


def write_findings(folder: RunFolder, findings: list[Finding]) -> None:
    """Put them into the run folder, in one step."""
    write_atomically(folder.findings_path, msgspec.json.format(msgspec.json.encode(findings), indent=2) + b"\n")
