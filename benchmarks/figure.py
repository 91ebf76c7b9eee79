"""A figure: one measured number of ours beside a peer's, and whether it is good enough.

Made by each group, printed and written by `__main__`, told in the docs from `latest.json`. Pure data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

AT_LEAST: Literal[">="] = ">="
AT_MOST: Literal["<="] = "<="


class Figure(msgspec.Struct, frozen=True):
    """One line of the table; `ratio` is ours ÷ peer, and `bound` says on which side of `target` it must lie."""

    name: str
    """Group and figure, as `engine.qos0_vs_c`."""
    ours: float
    peer: float
    ratio: float
    target: float
    met: bool
    unit: str
    """Of `ours` and `peer`."""
    note: str
    """What was compared with what, in words."""
    bound: Literal[">=", "<="] = AT_LEAST


def judged(
    name: str,
    ours: float,
    peer: float,
    *,
    target: float,
    unit: str,
    note: str,
    bound: Literal[">=", "<="] = AT_LEAST,
    provided: bool = True,
) -> Figure:
    """The figure of two numbers; not met if the peer is zero or a condition besides the ratio is not `provided`."""
    ratio = ours / peer if peer > 0 else 0.0
    met = provided and peer > 0 and (ratio >= target if bound == AT_LEAST else ratio <= target)
    return Figure(name, _rounded(ours), _rounded(peer), round(ratio, 3), target, met, unit, note, bound)


def compared(
    name: str,
    ours: Sequence[float],
    peer: Sequence[float],
    *,
    target: float,
    unit: str,
    note: str,
    bound: Literal[">=", "<="] = AT_LEAST,
) -> Figure:
    """The figure of interleaved rounds: both numbers are those of the round whose ratio is the median.

    Neighbours share whatever else the machine was doing, so their ratio says more than the ratio of two medians.
    """
    if len(ours) != len(peer) or not ours:
        raise ValueError(f"{name}: {len(ours)} rounds of ours, {len(peer)} of the peer")
    rounds = sorted(zip(ours, peer, strict=True), key=lambda pair: pair[0] / pair[1] if pair[1] > 0 else 0.0)
    # With an even number of rounds, the one that is worse for us.
    place = (len(rounds) - 1) // 2 if bound == AT_LEAST else len(rounds) // 2
    return judged(name, *rounds[place], target=target, unit=unit, note=note, bound=bound)


def _rounded(value: float) -> float:
    """Four figures are more than any benchmark here is worth."""
    return float(f"{value:.4g}")


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _cells(figure: Figure) -> tuple[str, str, str, str, str, str]:
    sign = "≥" if figure.bound == AT_LEAST else "≤"
    return (
        figure.name,
        f"{_amount(figure.ours)} {figure.unit}",
        f"{_amount(figure.peer)} {figure.unit}",
        f"{figure.ratio:.2f}",
        f"{sign} {figure.target:g}",
        "yes" if figure.met else "NO",
    )


def table(figures: Iterable[Figure]) -> str:
    """For a terminal."""
    head = ("figure", "ours", "peer", "ratio", "target", "met")
    rows = [head, *map(_cells, figures)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines)


def markdown(figures: Iterable[Figure]) -> str:
    """For the docs: the same with what each figure means."""
    lines = ["| figure | what | ours | peer | ratio | target | met |", "|---|---|---|---|---|---|---|"]
    for figure in figures:
        name, ours, peer, ratio, target, met = _cells(figure)
        lines.append(f"| `{name}` | {figure.note} | {ours} | {peer} | {ratio} | {target} | {met} |")
    return "\n".join(lines) + "\n"


def write(path: Path, figures: Sequence[Figure]) -> None:
    """All figures as a JSON list, and beside it as the table the docs show."""
    beside = path.with_name(f".{path.name}.tmp")
    beside.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=2) + b"\n")
    beside.replace(path)
    path.with_suffix(".md").write_text(markdown(figures), encoding="utf-8")


def read(path: Path) -> list[Figure]:
    """What `write` wrote; an absent file holds no figures."""
    return msgspec.json.decode(path.read_bytes(), type=list[Figure]) if path.exists() else []


def merged(old: Iterable[Figure], new: Sequence[Figure]) -> list[Figure]:
    """The new figures, and the old ones that were not measured again, by name."""
    return sorted({figure.name: figure for figure in (*old, *new)}.values(), key=lambda figure: figure.name)
