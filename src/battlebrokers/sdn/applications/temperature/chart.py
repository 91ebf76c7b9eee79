"""The lower half of the picture: readings, both averages, triggers and actuators over time. Pure; used by `picture`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from battlebrokers.sdn.applications.temperature.application import ACTUATORS, MAIN_MONITOR, WINDOWS, Event, Kind

_LEFT: Final = 92
_RIGHT: Final = 976
_TOP: Final = 316
_BOTTOM: Final = 536
_ROW: Final = 18
_LINES: Final = {MAIN_MONITOR: "short", "monitor2": "long"}
_FEWEST_TICKS: Final = 4


def chart(events: Sequence[Event], threshold_c: float, seconds: float) -> Iterator[str]:
    """Everything below the heading."""
    last_s = max([seconds, *(event.at_s for event in events)], default=1.0) or 1.0
    values = [event.value for event in events if event.value is not None] + [threshold_c]
    low, high = math.floor(min(values) - 0.2), math.ceil(max(values) + 0.2)

    def x(at_s: float) -> float:
        return round(_LEFT + (_RIGHT - _LEFT) * at_s / last_s, 1)

    def y(value: float) -> float:
        return round(_BOTTOM - (_BOTTOM - _TOP) * (value - low) / (high - low), 1)

    for value in ticks(low, high):
        yield f'<path class="grid" d="M{_LEFT} {y(value)}H{_RIGHT}"/>'
        yield f'<text x="{_LEFT - 8}" y="{y(value) + 4}" text-anchor="end">{value:g} °C</text>'
    yield f'<path class="axis" d="M{_LEFT} {_BOTTOM}H{_RIGHT}"/>'
    yield f'<path class="threshold" d="M{_LEFT} {y(threshold_c)}H{_RIGHT}"/>'
    readings = [(x(event.at_s), y(event.value or 0)) for event in events if event.kind is Kind.PUBLISHED]
    yield _line("reading", readings)
    yield from (f'<circle class="dot" cx="{at}" cy="{value}" r="2.2"/>' for at, value in readings)
    for host, style in _LINES.items():
        averages = [(event.at_s, event.average) for event in events if event.host == host and event.kind is Kind.HEARD]
        yield _line(style, [(x(at_s), y(average)) for at_s, average in averages if average is not None])
    for event in events:
        if event.kind is Kind.FIRED:
            at, value = x(event.at_s), y(event.value or 0)
            yield f'<path class="fall" d="M{at} {value}V{_BOTTOM + 78}"/>'
            yield f'<path class="fired" d="M{at} {value - 3}l-5 -9h10z"/>'
    # After the lines of triggers, which would run through a number.
    for at_s in ticks(0, last_s):
        yield f'<path class="axis" d="M{x(at_s)} {_BOTTOM}v5"/>'
        yield f'<text class="halo" x="{x(at_s)}" y="{_BOTTOM + 20}" text-anchor="middle">{at_s:g} s</text>'
    for row, host in enumerate(ACTUATORS):
        top = _BOTTOM + 34 + row * (_ROW + 8)
        yield f'<text x="{_LEFT - 8}" y="{top + 13}" text-anchor="end">{host}</text>'
        yield f'<rect class="rest" x="{_LEFT}" y="{top}" width="{_RIGHT - _LEFT}" height="{_ROW}" rx="3"/>'
        for begin_s, end_s in at_work(events, host, last_s):
            wide = max(x(end_s) - x(begin_s), 1.0)
            yield f'<rect class="work" x="{x(begin_s)}" y="{top}" width="{wide:g}" height="{_ROW}" rx="3"/>'
    yield from _legend(threshold_c)


def at_work(events: Sequence[Event], host: str, last_s: float) -> list[tuple[float, float]]:
    """From when until when an actuator cooled."""
    spans: list[tuple[float, float]] = []
    begin_s: float | None = None
    for event in events:
        if event.host != host:
            continue
        if event.kind is Kind.TRIGGERED and begin_s is None:
            begin_s = event.at_s
        elif event.kind is Kind.RESTS and begin_s is not None:
            spans.append((begin_s, event.at_s))
            begin_s = None
    return spans if begin_s is None else [*spans, (begin_s, last_s)]


def ticks(low: float, high: float) -> list[float]:
    """Round numbers from low to high, between four and ten of them."""
    span = high - low
    step = 10.0 ** math.floor(math.log10(span / _FEWEST_TICKS))
    for factor in (5, 2):
        if span / (step * factor) >= _FEWEST_TICKS:
            step *= factor
            break
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 9) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _line(style: str, points: Sequence[tuple[float, float]]) -> str:
    return f'<polyline class="{style}" points="{" ".join(f"{at},{value}" for at, value in points)}"/>'


def _legend(threshold_c: float) -> Iterator[str]:
    entries = [
        ('<path class="reading" d="M{0} {1}h18"/><circle class="dot" cx="{2}" cy="{1}" r="2.2"/>', "reading"),
        *(
            (f'<path class="{style}" d="M{{0}} {{1}}h18"/>', f"average of {WINDOWS[host]} ({host})")
            for host, style in _LINES.items()
        ),
        ('<path class="threshold" d="M{0} {1}h18"/>', f"threshold {threshold_c:g} °C"),
        ('<path class="fired" d="M{2} {3}l-5 -9h10z"/>', "trigger"),
        ('<rect class="work" x="{0}" y="{4}" width="18" height="10" rx="3"/>', "cooling"),
    ]
    at, level = 92, 296
    for mark, words in entries:
        yield mark.format(at, level, at + 9, level + 5, level - 5)
        yield f'<text x="{at + 24}" y="{level + 4}">{words}</text>'
        at += 44 + 7 * len(words)
