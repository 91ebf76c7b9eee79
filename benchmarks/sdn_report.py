"""What the group `sdn` measured, for people: one page without anything from elsewhere, and tables for the docs.

Called by `sdn.py`; both are made from the story alone. Charts are drawn here, in the report's colours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from html import escape
from importlib.resources import files
from pathlib import Path

import msgspec

from benchmarks.sdn_search import Line, fitted
from benchmarks.sdn_story import Story

_COLOURED = ("tree", "group", "reactive", "os-ken framework", "direct", "peer-to-peer", "mosquitto")
_ORDER = (
    "tree", "group", "direct", "reactive", "os-ken framework", "os-ken framework, direct", "peer-to-peer", "mosquitto",
)  # fmt: skip
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 760, 380, 70, 44

Table = tuple[str, str, list[str], list[list[str]]]
"""Title, a sentence, head, rows."""


@contextmanager
def kept(output: Path | None) -> Iterator[Story]:
    """The story so far; afterwards, also after an interruption, what is new is written beside the figures."""
    path = output.with_name("sdn.json") if output else None
    story = Story()
    if path and path.exists():
        # One of an older form cannot be gone on with: it is measured anew.
        with suppress(msgspec.MsgspecError):
            story = msgspec.json.decode(path.read_bytes(), type=Story)
    try:
        yield story
    finally:
        if path is not None:
            path.write_bytes(msgspec.json.format(msgspec.json.encode(story), indent=2) + b"\n")
            path.with_suffix(".md").write_text(markdown(story), encoding="utf-8")
            path.with_suffix(".html").write_text(page(story), encoding="utf-8")


def tables(story: Story) -> Iterator[Table]:
    """Everything that was measured, in the order of the questions."""
    for subscribers, rates in sorted(story.rates.items(), key=lambda item: int(item[0])):
        head = ["", "copies/s", "messages/s", "rounds (copies/s)"]
        rows = [
            [one.name, f"{one.copies_s:,.0f}", f"{one.copies_s / int(subscribers):,.0f}",
             " · ".join(f"{each:,.0f}" for each in one.rounds)]
            for one in sorted(rates, key=lambda one: _place(one.name))
        ]  # fmt: skip
        yield (
            f"Without loss, {subscribers} subscribers",
            "The highest rate of which every copy came in time; medians. Ratios are taken round by round.",
            head,
            rows,
        )
    if story.latency:
        rows = [
            [one.name, *(f"{value:,.0f}" for value in (one.p50_us, one.p90_us, one.p99_us, one.max_us)), str(one.lost)]
            for one in sorted(story.latency, key=lambda one: _place(one.name))
        ]
        yield ("Latency", "500 messages a second to 7 subscribers, each copy from sending to arrival, in µs.",
               ["", "p50", "p90", "p99", "max", "lost"], rows)  # fmt: skip
    if story.changes:
        rows = [
            [name, str(one.trials), *(f"{ms:.1f}" for ms in (one.answer_p50_ms, one.answer_p99_ms, one.join_p50_ms,
             one.join_p99_ms)), _some(one.subscribed), _some(one.unsubscribed)]
            for name, one in sorted(story.changes.items(), key=lambda item: _place(item[0]))
        ]  # fmt: skip
        yield ("Joining and leaving", ("Under 2000 messages a second; ms. Less than 0: the first copy came before "
               "the answer. Kept: trials in which all, or nothing, came that was sent after the answer."),
               ["", "trials", "asked → answered, p50", "p99", "answered → first copy, p50", "p99", "subscribe kept",
                "unsubscribe kept"], rows)  # fmt: skip
    if story.uplink:
        rows = [
            [one.name, f"{one.uplink:,}", f"{one.uplink_formula:,}", f"{one.link:,}", f"{one.link_formula:,}"]
            for one in sorted(story.uplink, key=lambda one: _place(one.name))
        ]
        yield ("Packets where the network is narrow", ("Two sensors at one uplink, 200 readings each, 7 subscribers of "
               "which 6 are beyond the first link. TCP's acknowledgements count for Mosquitto, "
               "the controller's beacons (one a second) for ours."),
               ["", "publisher's uplink", "formula", "first link", "formula"], rows)  # fmt: skip
    lines = _lines(story)
    if lines:
        rows = [
            [name, f"{line.a_us:,.1f}", f"{line.b_us:,.2f}", f"{line.r2:.3f}",
             " · ".join(f"{count}: {rate:,.0f}" for count, rate in story.sweep[name])]
            for name, line in lines.items()
        ]  # fmt: skip
        yield ("What one more subscriber costs", "1/rate = a + b·k by least squares.",
               ["", "a (µs)", "b (µs per copy)", "r²", "messages/s by subscribers"], rows)  # fmt: skip
    if story.busy:
        rows = [
            [name, f"{one.copies:,}", str(one.load_ticks), str(one.rest_ticks),
             f"{1e4 * max(0, one.extra_ticks) / one.copies:,.2f}" if one.copies else "–",
             f"{one.load_packet_ins / one.seconds:,.0f}", f"{one.rest_packet_ins / one.seconds:,.0f}"]
            for name, one in sorted(story.busy.items(), key=lambda item: _place(item[0]))
        ]  # fmt: skip
        yield ("The controller's part", "CPU time in clock ticks of 10 ms, under load and for as long at rest.",
               ["", "copies", "ticks under load", "ticks at rest", "µs per copy", "packet-ins/s", "at rest"],
               rows)  # fmt: skip
    if story.killed:
        rows = [
            [mode, f"{one.rate:g}", f"{one.expected:,}", f"{one.received:,}", f"{one.without_s:.1f}"]
            for mode, one in sorted(story.killed.items())
        ]
        yield ("A controller killed under load", "SIGKILL, a second of nothing, and a new one.",
               ["", "messages/s", "copies sent", "copies that came", "seconds without controller"], rows)  # fmt: skip


def markdown(story: Story) -> str:
    """For the docs."""
    parts = []
    for title, sentence, head, rows in tables(story):
        lines = [f"### {title}", "", sentence, "", f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
        parts.append("\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n")
    return "\n".join(parts) or "Not measured yet: `make bench ONLY=sdn`.\n"


def page(story: Story) -> str:
    """One file."""
    css = files("battlebrokers.report").joinpath("assets/report.css").read_text(encoding="utf-8")
    charts = [_bars(subscribers, story) for subscribers in sorted(story.rates, key=int)]
    charts += [_sweep(story)] if story.sweep else []
    told = "".join(map(_section, tables(story)))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>The network broker, measured</title><style>{css}\n{_STYLE}</style></head>"
        '<body><main class="wrap"><h1>The network broker, measured</h1>'
        "<p>Four switches in a row, one daemon that switches without the kernel’s help; tree, group, direct and "
        "reactive mode beside Mosquitto, peer-to-peer and an application on os-ken’s framework.</p>"
        f"{''.join(charts)}{told}</main></body></html>\n"
    )


_STYLE = (
    "main{padding-bottom:3rem}h1{margin:2rem 0 .5rem}h2{margin:2rem 0 .3rem}figure{margin:1.2rem 0}"
    "svg{width:100%;max-width:760px;height:auto}svg text{font-size:13px;fill:var(--ink)}"
    "svg .soft{fill:var(--soft);font-size:12px}table{border-collapse:collapse;margin:.5rem 0}"
    "th,td{text-align:right;padding:.3rem .8rem;border-bottom:1px solid var(--rule)}"
    "th:first-child,td:first-child{text-align:left}.scroll{overflow-x:auto}"
)


def _section(table: Table) -> str:
    title, sentence, head, rows = table
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f"<h2>{escape(title)}</h2><p>{escape(sentence)}</p>"
        f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _bars(subscribers: str, story: Story) -> str:
    rates = sorted(story.rates[subscribers], key=lambda one: _place(one.name))
    most = max((one.copies_s for one in rates), default=0) or 1
    parts, y = [], 8
    for one in rates:
        width = 480 * one.copies_s / most
        parts.append(
            f'<text x="170" y="{y + 17}" text-anchor="end">{escape(one.name)}</text>'
            f'<rect x="180" y="{y}" width="{max(width, 1):.1f}" height="24" rx="3" fill="{_colour(one.name)}"/>'
            f'<text x="{188 + width:.1f}" y="{y + 17}">{one.copies_s:,.0f}</text>'
        )
        y += 34
    label = f"Copies a second without loss, {subscribers} subscribers"
    return _figure(label, f'<svg viewBox="0 0 760 {y}" role="img" aria-label="{label}">{"".join(parts)}</svg>')


def _sweep(story: Story) -> str:
    """Both axes logarithmic; dots are measured, lines fitted."""
    points = [point for listed in story.sweep.values() for point in listed if point[1] > 0]
    if not points:
        return ""
    low, high = math.log10(min(rate for _, rate in points)), math.log10(max(rate for _, rate in points))
    low, high = math.floor(low * 2) / 2, math.ceil(high * 2) / 2
    widest = max(2, *(count for count, _ in points))

    def x(count: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 150) * math.log2(count) / math.log2(widest)

    def y(rate: float) -> float:
        return 10 + (_HEIGHT - _BOTTOM - 10) * (high - math.log10(rate)) / (high - low or 1)

    parts = []
    for tenth in range(math.ceil(low), math.floor(high) + 1):
        at = y(10**tenth)
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - 150}" y1="{at:.1f}" y2="{at:.1f}" stroke="var(--rule)"/>'
            f'<text class="soft" x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{10**tenth:,}</text>'
        )
    parts += [
        f'<text class="soft" x="{x(count):.1f}" y="{_HEIGHT - 22}" text-anchor="middle">{count}</text>'
        for count in sorted({count for count, _ in points})
    ]
    parts.append(f'<text class="soft" x="{_LEFT}" y="{_HEIGHT - 4}">subscribers; messages a second upwards</text>')
    lines = _lines(story)
    for place, name in enumerate(sorted(story.sweep, key=_place)):
        colour = _colour(name)
        dots = [(count, rate) for count, rate in story.sweep[name] if rate > 0]
        parts += [f'<circle cx="{x(count):.1f}" cy="{y(rate):.1f}" r="4" fill="{colour}"/>' for count, rate in dots]
        if name in lines:
            curve = _curve(lines[name], widest, 10**low, 10**high)
            way = " ".join(f"{x(count):.1f},{y(rate):.1f}" for count, rate in curve)
            parts.append(f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        at = 24 + 22 * place
        parts.append(
            f'<circle cx="{_WIDTH - 130}" cy="{at - 4}" r="5" fill="{colour}"/>'
            f'<text x="{_WIDTH - 118}" y="{at}">{escape(name)}</text>'
        )
    label = "Messages a second by subscribers, with the fitted lines"
    drawn = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
    return _figure(label, drawn)


def _curve(line: Line, widest: int, lowest: float, highest: float) -> list[tuple[float, float]]:
    counts = [2 ** (step / 8) for step in range(int(8 * math.log2(widest)) + 1)]
    return [(count, line.rate(count)) for count in counts if lowest <= line.rate(count) <= highest]


def _figure(label: str, drawn: str) -> str:
    return f"<figure><figcaption><h2>{escape(label)}</h2></figcaption>{drawn}</figure>"


def _lines(story: Story) -> dict[str, Line]:
    found = {name: fitted(story.sweep[name]) for name in sorted(story.sweep, key=_place)}
    return {name: line for name, line in found.items() if line is not None}


def _place(name: str) -> int:
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)


def _colour(name: str) -> str:
    """Two ways of one framework share theirs."""
    plain = name.partition(",")[0]
    return f"var(--series-{_COLOURED.index(plain) if plain in _COLOURED else len(_COLOURED)})"


def _some(value: int | None) -> str:
    return "–" if value is None else str(value)
