"""The ladder in a terminal, and as JSON. Pure: gives lines and values, prints nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from rich.text import Text

from battlebrokers.sdn.ladder.steps import Ladder, Step

_TIME_COLUMNS: Final = 11
_GAP: Final = 3
STYLES: Final = {"udp": "green", "arp": "cyan", "packet_in": "yellow", "packet_out": "magenta"}


def heading(ladder: Ladder) -> str:
    """What the ladder is of."""
    facts = ladder.facts
    copies = len(facts.subscribers) - len(ladder.missing)
    return (
        f"one message from {facts.publisher} on {facts.resource}, mode {facts.mode}: {len(ladder.steps)} steps, "
        f"{copies} of {len(facts.subscribers)} copies arrived"
    )


def remarks(ladder: Ladder) -> Iterator[str]:
    """What a reader must know about what is not shown."""
    facts, unread = ladder.facts, ladder.unread
    if not ladder.steps:
        yield "the message is not in these captures"
    if facts.publisher in facts.subscribers and ladder.steps:
        yield f"{facts.publisher} subscribes to {facts.resource} itself, and a subscriber may not publish there"
    elif ladder.missing and ladder.steps:
        yield f"no copy was seen for {', '.join(ladder.missing)}"
    if unread.files:
        yield f"not read, for they are missing or no captures: {', '.join(unread.files)}"
    if unread.damages:
        yield f"{_count(unread.damages, 'stretch', 'stretches')} of the captures could not be read"
    if unread.cut_frames:
        yield f"{_count(unread.cut_frames, 'frame was', 'frames were')} not captured whole"
    if unread.nowhere:
        yield f"{_count(unread.nowhere, 'frame is', 'frames are')} of an interface nobody named"
    if unread.gap_bytes:
        yield f"{unread.gap_bytes} bytes of OpenFlow are not in the captures"


def lines(ladder: Ladder, columns: int) -> Iterator[Text]:
    """The ladder for a terminal that wide; where it is too narrow, words stand above their arrow."""
    if not ladder.steps:
        return
    names = [line.name for line in ladder.lifelines]
    widths = [len(name) + _GAP for name in names]
    centres = [_TIME_COLUMNS + sum(widths[:number]) + len(name) // 2 for number, name in enumerate(names)]
    total = _TIME_COLUMNS + sum(widths)
    longest = max(len(_label(step)) for step in ladder.steps)
    beside = total + longest <= columns
    head = " " * _TIME_COLUMNS + "".join(name.ljust(width) for name, width in zip(names, widths, strict=True))
    yield Text(head.rstrip(), style="bold")
    where = dict(zip(names, centres, strict=True))
    for step in ladder.steps:
        time = f"{step.time_ns / 1000:8.0f} µs"
        if not beside:
            yield Text(_rungs(centres, total), style="dim") + Text(_label(step), style=STYLES[step.kind])
        row = _arrow(centres, total, where[step.sender], where[step.receiver])
        shown = Text(time, style="dim") + Text(row[_TIME_COLUMNS:])
        low, high = sorted((where[step.sender], where[step.receiver]))
        shown.stylize(STYLES[step.kind], low, high + 1)
        yield shown + Text(_label(step), style=STYLES[step.kind]) if beside else shown


def as_json(ladder: Ladder) -> dict[str, Any]:
    """Everything, for programs."""
    facts = ladder.facts
    return {
        "resource": facts.resource, "mode": facts.mode, "source": facts.source, "publisher": facts.publisher,
        "mark": facts.mark, "subscribers": facts.subscribers, "missing": list(ladder.missing),
        "lifelines": [asdict(line) for line in ladder.lifelines],
        "steps": [
            {
                "time_ns": step.time_ns, "from": step.sender, "to": step.receiver, "kind": step.kind,
                "what": step.what, "note": step.note,
                "addresses": step.addresses._asdict() if step.addresses else None,
            }
            for step in ladder.steps
        ],
        "unread": asdict(ladder.unread), "remarks": list(remarks(ladder)),
    }  # fmt: skip


def _label(step: Step) -> str:
    return f"{step.what}   {step.note}" if step.note else step.what


def _rungs(centres: list[int], total: int) -> str:
    row = [" "] * total
    for centre in centres:
        row[centre] = "│"
    return "".join(row)


def _arrow(centres: list[int], total: int, start: int, end: int) -> str:
    row = list(_rungs(centres, total))
    low, high = sorted((start, end))
    for place in range(low + 1, high):
        row[place] = "┼" if row[place] == "│" else "─"
    row[start] = "├" if start < end else "┤"
    row[end] = "▶" if start < end else "◀"
    return "".join(row)


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"
