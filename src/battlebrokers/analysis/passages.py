"""How followed messages went from service to service, added up per kind: how many, and how long the sender kept them.

Read from `passages` and `endings`; this is what nobody has to read message by message.
"""

from __future__ import annotations

from dataclasses import dataclass

from battlebrokers.analysis.stored import is_stored, whole
from battlebrokers.tables import ENDINGS, PASSAGES
from battlebrokers.tables.run_folder import RunFolder

MOST = 60
"""Passages worth showing."""


@dataclass(frozen=True, slots=True)
class Passage:
    """One kind of message on its way between two services."""

    sender: str
    receiver: str
    protocol: str
    kind: str
    n: int
    inside_p50_ns: int | None
    """How long the sender kept half of them at most; None where they were first seen."""
    inside_p95_ns: int | None


@dataclass(frozen=True, slots=True)
class LastSeen:
    """Where followed messages ended that never left again."""

    service: str
    n: int


def read_passages(folder: RunFolder) -> list[Passage]:
    """All of them, the most frequent first."""
    rows = whole(folder, PASSAGES).to_pylist() if is_stored(folder, PASSAGES) else []
    found = [Passage(**row) for row in rows]
    return sorted(found, key=lambda one: (-one.n, one.sender, one.receiver, one.protocol, one.kind))


def read_last_seen(folder: RunFolder) -> list[LastSeen]:
    """Of the messages that came from outside and never went out again: which service had them last."""
    rows = whole(folder, ENDINGS).to_pylist() if is_stored(folder, ENDINGS) else []
    return sorted((LastSeen(**row) for row in rows), key=lambda one: (-one.n, one.service))
