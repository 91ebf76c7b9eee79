"""The ladder as a picture: SVG, or a page with the picture and a table of its steps. Pure; one file, nothing loaded."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from battlebrokers.sdn.ladder.steps import Ladder, Lifeline, Step
from battlebrokers.sdn.ladder.words import heading, remarks

_LEFT: Final = 92
_COLUMN: Final = 148
_MARGIN: Final = 150
"""Room for words that are wider than their arrow."""
_TOP: Final = 104
_ROW: Final = 46
_BOX: Final = (92, 40)
_KINDS: Final = {"udp": "the message", "arp": "ARP", "packet_in": "PACKET_IN", "packet_out": "PACKET_OUT"}

_STYLE: Final = """
.ladder { --ink: #1d2430; --dim: #5f6978; --ground: #fbfbf9; --line: #c3c9d3; --host: #3f7a3e; --switch: #2f5d8a;
  --controller: #8a4b12; --udp: #2c7a3f; --arp: #0b7285; --packet_in: #b35900; --packet_out: #8a3ba0;
  font-family: system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { .ladder { --ink: #e6e8ec; --dim: #9aa4b5; --ground: #14171c; --line: #4a5261;
  --host: #8fc08d; --switch: #79a8d8; --controller: #eaa15c; --udp: #7fd08f; --arp: #66d0e0; --packet_in: #f0a050;
  --packet_out: #d79be8; } }
.ladder .ground { fill: var(--ground); } .ladder text { fill: var(--ink); font-size: 13px; text-anchor: middle; }
.ladder .title { font-size: 15px; font-weight: 600; text-anchor: start; } .ladder .legend { text-anchor: start; }
.ladder .time { fill: var(--dim); text-anchor: end; font-size: 12px; font-variant-numeric: tabular-nums; }
.ladder .detail { fill: var(--dim); font-size: 11px; } .ladder .life { stroke: var(--line); stroke-dasharray: 2 4; }
.ladder .what, .ladder .note { paint-order: stroke; stroke: var(--ground); stroke-width: 5px; stroke-linejoin: round; }
.ladder .note { fill: var(--dim); font-size: 11px; } .ladder .box { fill: var(--ground); stroke-width: 1.6; }
.ladder .arrow { stroke-width: 1.8; fill: none; }
"""
_COLOURS: Final = "\n".join(
    [f".ladder .box.{kind} {{ stroke: var(--{kind}); }}" for kind in ("host", "switch", "controller")]
    + [f".ladder .arrow.{kind} {{ stroke: var(--{kind}); }} .ladder .head.{kind} {{ fill: var(--{kind}); }}"
       for kind in _KINDS]
)  # fmt: skip
_PAGE_STYLE: Final = """
:root { color-scheme: light dark; } body { margin: 1.2rem; font: 15px/1.5 system-ui, sans-serif; background: #fbfbf9;
  color: #1d2430; } .scroll { overflow-x: auto; } h1 { font-size: 1.2rem; } h2 { font-size: 1rem; }
table { border-collapse: collapse; }
td, th { padding: .25rem .8rem .25rem 0; text-align: left; border-bottom: 1px solid #d9dce2; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; } svg { max-width: none; }
@media (prefers-color-scheme: dark) { body { background: #14171c; color: #e6e8ec; } td, th { border-color: #363c47; } }
"""


def svg(ladder: Ladder) -> str:
    """The picture: lifelines from left to right, time downwards, each step as far from the next."""
    notes = [*remarks(ladder)]
    width = _LEFT + max(len(ladder.lifelines), 4) * _COLUMN + _MARGIN
    bottom = _TOP + 20 + len(ladder.steps) * _ROW
    height = bottom + 30 + 20 * len(notes)
    places = {line.name: _LEFT + _COLUMN // 2 + number * _COLUMN for number, line in enumerate(ladder.lifelines)}
    said = escape(heading(ladder), quote=True)
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="ladder" role="img" aria-label="{said}" {size}>',
        f"<style>{_STYLE}{_COLOURS}</style>",
        f'<rect class="ground" width="{width}" height="{height}"/>',
        f'<text class="title" x="16" y="26">{said}</text>',
        *_legend(ladder),
    ]
    for line in ladder.lifelines:
        parts += _lifeline(line, places[line.name], bottom)
    for number, step in enumerate(ladder.steps):
        parts += _step(step, places, _TOP + 40 + number * _ROW)
    parts += [
        f'<text class="legend" x="16" y="{bottom + 22 + 20 * number}">{escape(note)}</text>'
        for number, note in enumerate(notes)
    ]
    return "\n".join([*parts, "</svg>", ""])


def page(ladder: Ladder) -> str:
    """The picture with its steps as a table below, for whoever cannot see it or wants to copy from it."""
    rows = "\n".join(
        f'<tr><td class="n">{step.time_ns / 1000:.1f}</td><td>{escape(step.sender)}</td><td>{escape(step.receiver)}'
        f"</td><td>{escape(step.what)}</td><td>{escape(step.note)}</td></tr>"
        for step in ladder.steps
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(heading(ladder))}</title>
<style>{_PAGE_STYLE}</style>
</head>
<body>
<h1>The way of one message through the network</h1>
<div class="scroll">
{svg(ladder)}</div>
<h2>Step by step</h2>
<div class="scroll"><table>
<thead><tr><th class="n">µs</th><th>from</th><th>to</th><th>what</th><th>changed</th></tr></thead>
<tbody>
{rows}
</tbody></table></div>
</body>
</html>
"""


def _legend(ladder: Ladder) -> Iterator[str]:
    used = [kind for kind in _KINDS if any(step.kind == kind for step in ladder.steps)]
    for number, kind in enumerate(used):
        x = 16 + number * 130
        yield f'<path class="arrow {kind}" d="M{x} 44h24"/><path class="head {kind}" d="M{x + 32} 44l-9 -4v8z"/>'
        yield f'<text class="legend" x="{x + 38}" y="48">{_KINDS[kind]}</text>'


def _lifeline(line: Lifeline, x: int, bottom: int) -> Iterator[str]:
    wide, high = _BOX
    top = _TOP - high
    yield f'<path class="life" d="M{x} {_TOP}V{bottom}"/>'
    corner = 14 if line.kind == "host" else 4
    yield (
        f'<rect class="box {line.kind}" x="{x - wide // 2}" y="{top}" width="{wide}" height="{high}" rx="{corner}"/>'
    )
    middle = top + (18 if line.detail else 25)
    yield f'<text x="{x}" y="{middle}">{escape(line.name)}</text>'
    if line.detail:
        yield f'<text class="detail" x="{x}" y="{top + 32}">{escape(line.detail)}</text>'


def _step(step: Step, places: dict[str, int], y: int) -> Iterator[str]:
    start, end = places[step.sender], places[step.receiver]
    back = 9 if end > start else -9
    yield f'<text class="time" x="{_LEFT - 8}" y="{y + 4}">{step.time_ns / 1000:.0f} µs</text>'
    middle = (start + end) // 2
    yield f'<text class="what" x="{middle}" y="{y - 6}">{escape(step.what)}</text>'
    if step.note:
        yield f'<text class="note" x="{middle}" y="{y + 14}">{escape(step.note)}</text>'
    # Over the words, whose rims would eat into it.
    yield f'<path class="arrow {step.kind}" d="M{start} {y}H{end - back}"/>'
    yield f'<path class="head {step.kind}" d="M{end} {y}l{-back} -4v8z"/>'
