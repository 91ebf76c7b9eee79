"""What a watching user sees of a run while it goes on. Made by the orchestrator, shown by `cli.progress`."""

from __future__ import annotations

from dataclasses import dataclass

from battlebrokers.run.messages import Progress


@dataclass(frozen=True, slots=True)
class Glimpse:
    """The phase, how much of it is over, and the counts so far."""

    phase: str
    share: float
    nodes: int
    progress: Progress
    longest_s: float = 0.0
    """The most the phase may take, where that is not its planned length: the drain, while messages keep arriving."""
