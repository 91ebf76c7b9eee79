"""Some messages out of all that were followed, chosen by the pipeline: the slowest, slow and ordinary ones, stuck ones.

Called by the report and `bb explain`. Reads `examples`, which is small however much was captured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from battlebrokers.analysis.stored import is_stored, whole
from battlebrokers.analysis.traces import Trace, traces_of
from battlebrokers.errors import InputError
from battlebrokers.tables import EXAMPLES
from battlebrokers.tables.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class Examples:
    """Each in the order of the time they took, the slowest first; all of the slow ones if they are not very many."""

    followed: int
    slowest: tuple[Trace, ...] = ()
    slow: tuple[Trace, ...] = ()
    """Of the slowest hundredth."""
    ordinary: tuple[Trace, ...] = ()
    """Of the faster half."""
    median: Trace | None = None
    stuck: tuple[Trace, ...] = ()
    """A few that never arrived."""


def read_examples(folder: RunFolder) -> Examples:
    """Those of a run or of decoded captures."""
    if not is_stored(folder, EXAMPLES):
        raise InputError(
            f"{folder.path} has no followed messages", hint="Run with --capture, or look into captures with `bb pcap`."
        )
    tagged: dict[str, list[dict[str, Any]]] = {}
    followed = 0
    for row in whole(folder, EXAMPLES).to_pylist():
        tagged.setdefault(row["chosen"], []).append(row)
        followed = row["chosen_from"]
    found = {tag: _by_time(rows) for tag, rows in tagged.items()}
    return Examples(
        followed,
        found.get("slowest", ()),
        found.get("slow", ()),
        found.get("ordinary", ()),
        next(iter(found.get("median", ())), None),
        found.get("stuck", ()),
    )


def _by_time(rows: list[dict[str, Any]]) -> tuple[Trace, ...]:
    return tuple(sorted(traces_of(rows), key=lambda trace: (-trace.took_ns, trace.id)))
