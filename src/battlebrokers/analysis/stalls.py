"""Seconds in which nothing arrived although messages were due. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from battlebrokers.analysis.facts import LOAD_PHASES, Facts, where

FEWEST_PLANNED = 5
"""A second with fewer planned messages may well pass without an arrival."""


@dataclass(frozen=True, slots=True)
class Stall:
    """From second `first` to second `last`, both included."""

    first: int
    last: int
    planned: int


def stalls(facts: Facts) -> list[Stall]:
    """All stalls of the load phases, in order; none for a run in which nobody listens."""
    planned = _per_second(facts, "publish", "planned")
    arrived = _per_second(facts, "deliver", "messages")
    if not sum(arrived.values()):
        return []
    found: list[Stall] = []
    for second in sorted(planned):
        if planned[second] < FEWEST_PLANNED or arrived.get(second, 0):
            continue
        if found and found[-1].last == second - 1:
            found[-1] = Stall(found[-1].first, second, found[-1].planned + planned[second])
        else:
            found.append(Stall(second, second, planned[second]))
    return found


def _per_second(facts: Facts, side: str, column: str) -> dict[int, int]:
    sums: dict[int, int] = {}
    for row in where(facts.timeline, side=side).select(["second", "phase", column]).to_pylist():
        if row["phase"] in LOAD_PHASES:
            sums[row["second"]] = sums.get(row["second"], 0) + row[column]
    return sums
