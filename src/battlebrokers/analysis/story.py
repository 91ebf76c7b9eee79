"""A battle's outcome in sentences, each with its uncertainty, and the notes a reader must know. Pure."""

from __future__ import annotations

import math

from battlebrokers.analysis.interval import FEWEST_REPEATS
from battlebrokers.analysis.ranking import MARGIN, Ranking, Ratio, Standing
from battlebrokers.units import format_count, format_percent

_HUGE = 1e6
"""Ratios beyond this come from infinite values: messages that never arrived."""


def tell(ranking: Ranking) -> list[str]:
    """What is VOID and why, then the leader against each other contender."""
    standings = ranking.standings
    said = _voids(ranking)
    if not any(standing.trusted for standing in standings):
        return ["No contender can be ranked: every run is VOID.", *said]
    if len(standings) == 1:
        return [*said, f"Only {standings[0].contender} took part."]
    leader = standings[0]
    if not any(other.trusted for other in standings[1:]):
        return [*said, f"Nothing can be ranked: only {leader.contender} has a run that is not VOID."]
    if ranking.disturbed:
        said.append(f"Nobody is ranked on latency: {ranking.disturbed}.")
    elif short := [standing for standing in standings if ranking.decided_by.name in standing.needed]:
        names = ", ".join(f"{one.contender} {format_count(one.samples)}" for one in short)
        needed = format_count(short[0].needed[ranking.decided_by.name])
        said.append(
            f"Not ranked on {ranking.decided_by.label}, which needs {needed} messages in a run; the most were: {names}."
        )
    for other in standings[1:]:
        if other.trusted:
            said += _against(ranking, leader, other)
    return said


def _voids(ranking: Ranking) -> list[str]:
    """Whose runs are VOID, and why."""
    found = []
    for standing in ranking.standings:
        void = standing.verdicts.get("VOID", 0)
        if void and not standing.trusted:
            found.append(f"{standing.contender} cannot be ranked: every run of it is VOID: {standing.void_reason}.")
        elif void:
            runs = f"{void} of {standing.runs} runs of {standing.contender}"
            found.append(f"{runs} {'is' if void == 1 else 'are'} VOID and left out: {standing.void_reason}.")
    return found


def _against(ranking: Ranking, leader: Standing, other: Standing) -> list[str]:
    said = []
    losses = leader.values.get("lost", 0.0), other.values.get("lost", 0.0)
    if losses[1] > losses[0]:
        lost = tuple(format_percent(share) for share in losses)
        said.append(f"{other.contender} lost {lost[1]} of the deliveries, {leader.contender} {lost[0]}.")
    missing = leader.values.get("undelivered", 0.0), other.values.get("undelivered", 0.0)
    if missing[1] > missing[0] and missing[1] > losses[1]:
        shares = tuple(format_percent(share) for share in missing)
        said.append(
            f"Of {other.contender} {shares[1]} of the deliveries never arrived, of {leader.contender} {shares[0]}."
        )
    # Where latency is not ranked, expectations of it show nothing; they may be all that was missed.
    if leader.verdicts.get("PASS") and not other.verdicts.get("PASS") and not ranking.disturbed:
        said.append(f"{leader.contender} met the expectations, {other.contender} did not.")
    return said + [
        tell_ratio(found)
        for found in ranking.ratios
        if found.metric is ranking.decided_by and found.to == other.contender
    ]


def tell_ratio(found: Ratio) -> str:
    """One comparison in words."""
    name = found.metric.label
    if found.answer == "same":
        spread = _spread(found, found.low, found.high)
        return f"{found.of} and {found.to} are the same in {name}: within ±{format_percent(MARGIN)} {spread}."
    if found.answer == "unclear":
        spread = _spread(found, found.low, found.high)
        return f"No difference shown between {found.of} and {found.to} in {name}: ratio {found.ratio:.2f} {spread}."
    winner, loser = (found.of, found.to) if found.answer == "better" else (found.to, found.of)
    ratio, low, high = found.ratio, found.low, found.high
    if ratio < 1:  # say how many times, so that the number is above 1
        ratio, low, high = _inverse(ratio), _inverse(high), _inverse(low)
    if ratio > _HUGE:
        return f"{loser} has no finite {name}, because too many messages never arrived; {winner} has."
    spread = _spread(found, low, high)
    if found.metric.lower_is_better:
        word = "faster" if found.metric.unit == "ms" else "lower"
        return f"{winner} was {format_count(ratio)}× {spread} {word} than {loser} in {name}."
    return f"{winner} {name} {format_count(ratio)}× {spread} as many messages as {loser}."


def tell_notes(ranking: Ranking) -> list[str]:
    """What limits the comparison."""
    notes, standings, summaries = [], ranking.standings, ranking.summaries
    void = sum(standing.verdicts.get("VOID", 0) for standing in standings)
    if void:
        notes.append(f"{void} of {len(summaries)} runs are VOID and were left out of the comparison.")
    fewest = min((standing.trusted for standing in standings), default=0)
    if len(standings) > 1 and fewest < FEWEST_REPEATS:
        notes.append(
            f"A confidence interval needs {FEWEST_REPEATS} trusted repeats of each contender; "
            f"the fewest here are {fewest}, so ranges are shown."
        )
    if len(summaries) > 1 and any(summary.battle is None for summary in summaries):
        notes.append("Some runs are not part of a battle: they were paired in the order given, not run side by side.")
    if len({(summary.plan_sha256, summary.seed) for summary in summaries}) > 1:
        notes.append("The runs follow different plans or seeds: their figures do not compare strictly.")
    return notes


def _spread(found: Ratio, low: float, high: float) -> str:
    def said(value: float) -> str:
        return "∞" if value > _HUGE else format_count(value)

    if found.confident:
        return f"({said(low)}–{said(high)})"
    return "(one repeat)" if found.blocks == 1 else f"(range {said(low)}–{said(high)} over {found.blocks} repeats)"


def _inverse(value: float) -> float:
    return math.inf if value == 0 else 1 / value
