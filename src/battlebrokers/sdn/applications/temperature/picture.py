"""The picture of the temperature application as SVG: who sent to whom through which resource, and what came of it.

Called by `bb sdn demo temperature`. Pure: events in, text out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from battlebrokers.sdn.applications.temperature.application import (
    ACTUATORS,
    MAIN_MONITOR,
    SENSOR,
    SUBSCRIBERS,
    WINDOWS,
    Event,
    Kind,
    Topic,
)
from battlebrokers.sdn.applications.temperature.chart import chart

_WIDTH: Final = 1000
_HEIGHT: Final = 640
_BOX: Final = (140, 54)
_LEFT: Final = 24
_STEP: Final = 203
_ROWS: Final = (62, 146)
_MIDDLE: Final = 104
_STYLE: Final = """
  .card{fill:#fff} .box{stroke-width:1.5} .host{fill:#e8f1fb;stroke:#3b73af} .resource{fill:#fdeee3;stroke:#c4621b}
  text{font-size:12px;fill:#51606d} .name{font-size:14px}
  .name,.count{font-weight:600;fill:#1c2733}
  .side{font-weight:600;letter-spacing:.06em} .line{fill:none;stroke:#51606d;stroke-width:1.6;marker-end:url(#a)}
  .halo{stroke:#fff;stroke-width:4;paint-order:stroke} .grid{stroke:#e3e7ea} .axis{stroke:#9aa5ae}
  .reading{fill:none;stroke:#9aa5ae} .dot{fill:#6b7680} .short{fill:none;stroke:#c4621b;stroke-width:2.2}
  .long{fill:none;stroke:#3b73af;stroke-width:2.2} .threshold{stroke:#c0392b;stroke-dasharray:6 4} .fired{fill:#c0392b}
  .fall{stroke:#c0392b;stroke-dasharray:2 3} .work{fill:#2f8a4c} .rest{fill:#eef1f3}
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a host is."""

    ipv4: str
    switch: str


@dataclass(frozen=True, slots=True)
class Counted:
    """A resource, and what the switches counted of it."""

    address: str
    mode: str
    published: int
    delivered: int


def picture(
    events: Sequence[Event],
    hosts: Mapping[str, Place],
    resources: Mapping[Topic, Counted],
    threshold_c: float,
    seconds: float,
) -> str:
    """The whole SVG."""
    counts = Counter((event.host, event.kind) for event in events)
    parts = [
        *_flow(counts, hosts, resources),
        f'<text class="side" x="{_LEFT}" y="276">WHAT CAME OF IT</text>',
        *chart(events, threshold_c, seconds),
    ]
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" \
font-family="system-ui, sans-serif" role="img" aria-labelledby="t">
<title id="t">The temperature application: who sent to whom, and what came of it over time</title>
<style>{_STYLE}</style>
<defs><marker id="a" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">\
<path d="M0 0 10 5 0 10z" fill="#51606d"/></marker></defs>
<rect class="card" width="{_WIDTH}" height="{_HEIGHT}" rx="10"/>
{chr(10).join(parts)}
</svg>
"""


def _flow(
    counts: Counter[tuple[str, Kind]], hosts: Mapping[str, Place], resources: Mapping[Topic, Counted]
) -> Iterator[str]:
    yield f'<text class="side" x="{_LEFT}" y="34">WHO SENT TO WHOM, THROUGH WHICH ADDRESS</text>'
    at = {
        SENSOR: (0, _MIDDLE),
        Topic.MONITORING: (1, _MIDDLE),
        **{host: (2, y) for host, y in zip(WINDOWS, _ROWS, strict=True)},
        Topic.ACTUATORS: (3, _MIDDLE),
        **{host: (4, y) for host, y in zip(ACTUATORS, _ROWS, strict=True)},
    }
    heard = {Topic.MONITORING: Kind.HEARD, Topic.ACTUATORS: Kind.TRIGGERED}
    arrows: list[tuple[str, str, int]] = [
        (SENSOR, Topic.MONITORING, counts[SENSOR, Kind.PUBLISHED]),
        (MAIN_MONITOR, Topic.ACTUATORS, counts[MAIN_MONITOR, Kind.FIRED]),
        *((topic, host, counts[host, heard[topic]]) for topic, those in SUBSCRIBERS.items() for host in those),
    ]
    for one, other, count in arrows:
        yield from _arrow(at[one], at[other], count)
    for host, place in hosts.items():
        size = WINDOWS.get(host)
        says = f"average of {size}{', triggers' if host == MAIN_MONITOR else ''}" if size else ""
        yield from _box("host", at[host], host, f"{place.ipv4} at {place.switch}", says)
    for topic, told in resources.items():
        numbers = f"{told.published} in, {told.delivered} copies out"
        yield from _box("resource", at[topic], told.address, f"{topic}, {told.mode}", numbers)
    published = counts[SENSOR, Kind.PUBLISHED]
    astray = sum(count for (_, kind), count in counts.items() if kind is Kind.UNEXPECTED)
    yield (
        f'<text x="{_LEFT}" y="232">The sensor sent {published} packets; to each monitor by itself they would be '
        f"{published * len(WINDOWS)}. Datagrams that reached anybody else: {astray}.</text>"
    )


def _box(kind: str, at: tuple[int, int], name: str, *below: str) -> Iterator[str]:
    width, height = _BOX
    x, y = _LEFT + at[0] * _STEP, at[1]
    yield f'<rect class="box {kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>'
    middle = x + width / 2
    lines = [line for line in below if line]
    top = y + (24 if len(lines) == 1 else 18)
    yield f'<text class="name" x="{middle:g}" y="{top}" text-anchor="middle">{escape(name)}</text>'
    for row, line in enumerate(lines, 1):
        yield f'<text x="{middle:g}" y="{top + row * 15}" text-anchor="middle">{escape(line)}</text>'


def _arrow(one: tuple[int, int], other: tuple[int, int], count: int) -> Iterator[str]:
    width, height = _BOX
    x1, y1 = _LEFT + one[0] * _STEP + width, one[1] + height / 2
    x2, y2 = _LEFT + other[0] * _STEP - 2, other[1] + height / 2
    yield f'<path class="line" d="M{x1} {y1:g}L{x2} {y2:g}"/>'
    yield (
        f'<text class="count halo" x="{(x1 + x2) / 2:g}" y="{(y1 + y2) / 2 - 4:g}" text-anchor="middle">{count}</text>'
    )
