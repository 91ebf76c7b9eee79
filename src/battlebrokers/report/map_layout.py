"""Where the service map's boxes, arrows and labels stand: layer after layer, the same map for the same data.

Pure geometry: a map in, coordinates out. The page's template draws them; colours come from the page's style sheet.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from battlebrokers.analysis.service_map import Arrow, Node, ServiceMap
from battlebrokers.report.wording import point_text, some
from battlebrokers.units import format_count, format_rate, format_size

_WIDTH = 1080.0
_BOX_WIDTH, _BOX_HEIGHT = 156.0, 50.0
_ROW = 138.0
_WIDEST_STEP = 430.0
_STEP_DOWN = 150.0
_MOST_LAYERS_ACROSS = 3
"""More layers go from top to bottom: labels need room between the boxes."""
_FAN = 46.0
"""Distance between arrows that join the same two boxes."""
_LETTER = 6.7
_LABEL_HEIGHT = 19.0
_HEAD = 9.0
_LONGEST_NAME = 21
_BOW = 62.0
"""How far an arrow between neighbours of one layer gives way when its label is wider than the room between them."""
_DETOURS = (0.0, 80.0, -80.0, 150.0, -150.0, 220.0, -220.0)
_PLACES = (0.5, 0.4, 0.6, 0.3, 0.7, 0.22, 0.78)

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Area:
    """A rectangle by its centre."""

    x: float
    y: float
    width: float
    height: float

    def turned(self) -> Area:
        """The same with both axes exchanged."""
        return Area(self.y, self.x, self.height, self.width)

    def overlap(self, other: Area) -> float:
        """How much of both lies over each other."""
        wide = (self.width + other.width) / 2 - abs(self.x - other.x)
        high = (self.height + other.height) / 2 - abs(self.y - other.y)
        return wide * high if wide > 0 and high > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Box:
    """A service on the map."""

    area: Area
    name: str
    about: str
    whole_name: str

    @property
    def left(self) -> float:
        """Its left edge."""
        return round(self.area.x - self.area.width / 2, 1)

    @property
    def top(self) -> float:
        """Its upper edge."""
        return round(self.area.y - self.area.height / 2, 1)


@dataclass(frozen=True, slots=True)
class Curve:
    """An arrow on the map."""

    path: str
    head: str
    """Corners of its head."""
    stroke: float
    slot: int
    label: Area
    text: str
    failures: str
    """Said in the label with a warning; empty if all went well."""
    title: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """All of it, and the part of the plane it takes."""

    boxes: tuple[Box, ...]
    curves: tuple[Curve, ...]
    left: float
    top: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class _Ends:
    """The two boxes an arrow joins, and how far from the middle of their sides it leaves and arrives."""

    start: Area
    end: Area
    leaves: float
    arrives: float
    down: bool
    """Whether the drawing is turned."""


def lay_out(map_: ServiceMap, slots: Mapping[str, int], about: Mapping[str, str]) -> Drawing:
    """Place everything; `slots` are the protocols' colours, `about` a line under a service's name."""
    down = len({node.layer for node in map_.nodes}) > _MOST_LAYERS_ACROSS
    flat = _areas(map_, down=down)
    # All is reckoned as if layers went from left to right, and turned at the end.
    areas = {name: area.turned() if down else area for name, area in flat.items()}
    boxes = tuple(
        Box(areas[one.name], _short(one.name), about.get(one.name) or f"{format_size(one.sent_bytes)} sent", one.name)
        for one in map_.nodes
    )
    taken = list(areas.values())
    curves = []
    fanned = list(_fanned(map_.arrows, flat))
    docks = _docks(fanned, flat)
    for place, (arrow, offset) in enumerate(fanned):
        ends = _Ends(flat[arrow.sender], flat[arrow.receiver], docks[place, True], docks[place, False], down)
        others = [area for name, area in areas.items() if name not in (arrow.sender, arrow.receiver)]
        if _is_crowded(ends, _label_width(arrow)):
            offset += math.copysign(_BOW, offset)
        curves.append(_curve(arrow, _bent(ends, others, offset), slots.get(arrow.protocol, 6), taken))
    found = [*taken, *(curve.label for curve in curves)]
    left = min((area.x - area.width / 2 for area in found), default=0.0) - 12
    right = max((area.x + area.width / 2 for area in found), default=_WIDTH) + 12
    top = min((area.y - area.height / 2 for area in found), default=0.0) - 12
    bottom = max((area.y + area.height / 2 for area in found), default=100.0) + 12
    return Drawing(boxes, tuple(curves), round(left), round(top), round(right - left), round(bottom - top))


def arrow_words(arrow: Arrow) -> str:
    """Protocol, rate while it spoke (or how many messages, if that was within a second) and median delay."""
    rate = format_rate(float(f"{arrow.per_s:.2g}") if arrow.per_s < 1 else arrow.per_s)
    rate = rate if arrow.active_s > 1 else some(arrow.messages, "message")
    answers = arrow.asked.delay.n if arrow.asked and arrow.asked.delay else 0
    delay = f" · {point_text(arrow.p50_ns, answers, 0.5)}" if arrow.p50_ns is not None else ""
    return f"{arrow.protocol} · {rate}{delay}"


def _failure_words(arrow: Arrow) -> str:
    if arrow.asked is None:
        return ""
    counts = (("failed", arrow.asked.failed), ("unanswered", arrow.asked.unanswered))
    return ", ".join(f"{format_count(count)} {word}" for word, count in counts if count)


def _label_width(arrow: Arrow) -> float:
    failures = _failure_words(arrow)
    return _LETTER * (len(arrow_words(arrow)) + (len(failures) + 3 if failures else 0)) + 10


def _is_crowded(ends: _Ends, label_width: float) -> bool:
    """Whether a label does not fit between two boxes that stand side by side."""
    room = abs(ends.end.y - ends.start.y) - (ends.start.height + ends.end.height) / 2
    return ends.down and ends.start.x == ends.end.x and label_width > room


def _areas(map_: ServiceMap, *, down: bool) -> dict[str, Area]:
    """The boxes, layers along x."""
    layers: dict[int, list[Node]] = {}
    for node in map_.nodes:
        layers.setdefault(node.layer, []).append(node)
    tallest = max((len(nodes) for nodes in layers.values()), default=1)
    step, row_step = min(_WIDEST_STEP, (_WIDTH - _BOX_WIDTH) / max(1, len(layers) - 1)), _ROW
    width, height = _BOX_WIDTH, _BOX_HEIGHT
    if down:
        step, row_step = _STEP_DOWN, max(_BOX_WIDTH + 24, min(330.0, (_WIDTH - _BOX_WIDTH) / max(1, tallest - 1)))
        width, height = height, width
    neighbours: dict[str, list[str]] = {}
    for arrow in map_.arrows:
        neighbours.setdefault(arrow.sender, []).append(arrow.receiver)
        neighbours.setdefault(arrow.receiver, []).append(arrow.sender)
    placed: dict[str, Area] = {}
    for column, (_, nodes) in enumerate(sorted(layers.items())):

        def height_of_friends(node: Node) -> tuple[float, str]:
            known = [placed[name].y for name in neighbours.get(node.name, ()) if name in placed]
            return (sum(known) / len(known) if known else math.inf, node.name)

        for row, node in enumerate(sorted(nodes, key=height_of_friends)):
            y = (tallest - len(nodes)) * row_step / 2 + row * row_step
            placed[node.name] = Area(column * step, y, width, height)
    return placed


def _fanned(arrows: Sequence[Arrow], areas: Mapping[str, Area]) -> Iterator[tuple[Arrow, float]]:
    """Arrows between the same two boxes side by side, those to the right above."""
    pairs: dict[tuple[str, ...], list[Arrow]] = {}
    for arrow in arrows:
        pairs.setdefault(tuple(sorted((arrow.sender, arrow.receiver))), []).append(arrow)
    for pair in pairs.values():
        pair.sort(key=lambda one: (areas[one.sender].x > areas[one.receiver].x, one.sender, one.protocol))
        for place, arrow in enumerate(pair):
            yield arrow, (place - (len(pair) - 1) / 2) * _FAN


def _docks(fanned: Sequence[tuple[Arrow, float]], areas: Mapping[str, Area]) -> dict[tuple[int, bool], float]:
    """Where along a box's side each arrow begins (True) or ends (False): in the order of where they come from."""
    sides: dict[tuple[str, str], list[tuple[float, float, int, bool]]] = {}
    for place, (arrow, offset) in enumerate(fanned):
        for begins, own, far in ((True, arrow.sender, arrow.receiver), (False, arrow.receiver, arrow.sender)):
            here, there = areas[own], areas[far]
            if here.x == there.x:
                key = (own, "below" if there.y > here.y else "above")
                sides.setdefault(key, []).append((there.x, offset, place, begins))
            else:
                key = (own, "right" if there.x > here.x else "left")
                sides.setdefault(key, []).append((there.y, offset, place, begins))
    found = {}
    for (own, _), ends in sides.items():
        side = areas[own].height
        gap = min(0.3 * side, 0.72 * side / len(ends))
        for row, (_, _, place, begins) in enumerate(sorted(ends)):
            found[place, begins] = (row - (len(ends) - 1) / 2) * gap
    return found


def _bent(ends: _Ends, others: Sequence[Area], offset: float) -> tuple[Point, Point, Point]:
    """Start, control point and end of a curve that crosses no other box, if there is one."""
    best, least = _turned(_quadratic(ends, offset), ends), math.inf
    for detour in _DETOURS:
        curve = _turned(_quadratic(ends, offset + detour * (1.6 if ends.down else 1.0)), ends)
        crossed = sum(Area(*_at(curve, step / 24), 8, 8).overlap(other) > 0 for other in others for step in range(25))
        if crossed < least:
            best, least = curve, crossed
        if not crossed:
            break
    return best


def _quadratic(ends: _Ends, offset: float) -> tuple[Point, Point, Point]:
    """`offset` moves the middle of the curve: downwards, or to the right between boxes of one layer."""
    start, end = ends.start, ends.end
    if start.x == end.x:
        side = 1 if end.y > start.y else -1
        a = (start.x + ends.leaves, start.y + side * start.height / 2)
        b = (end.x + ends.arrives, end.y - side * end.height / 2)
        return a, ((a[0] + b[0]) / 2 + 1.5 * offset, (a[1] + b[1]) / 2), b
    side = 1 if end.x > start.x else -1
    a = (start.x + side * start.width / 2, start.y + ends.leaves)
    b = (end.x - side * end.width / 2, end.y + ends.arrives)
    return a, ((a[0] + b[0]) / 2, (a[1] + b[1]) / 2 + 1.5 * offset), b


def _turned(curve: tuple[Point, Point, Point], ends: _Ends) -> tuple[Point, Point, Point]:
    (ax, ay), (mx, my), (bx, by) = curve
    return ((ay, ax), (my, mx), (by, bx)) if ends.down else curve


def _at(curve: tuple[Point, Point, Point], t: float) -> Point:
    (ax, ay), (mx, my), (bx, by) = curve
    u = 1 - t
    return u * u * ax + 2 * u * t * mx + t * t * bx, u * u * ay + 2 * u * t * my + t * t * by


def _curve(arrow: Arrow, curve: tuple[Point, Point, Point], slot: int, taken: list[Area]) -> Curve:
    text, failures = arrow_words(arrow), _failure_words(arrow)
    spots = [Area(*_at(curve, t), _label_width(arrow), _LABEL_HEIGHT) for t in _PLACES]
    label = min(spots, key=lambda spot: sum(spot.overlap(area) for area in taken))
    taken.append(label)
    a, middle, b = curve
    length = math.hypot(b[0] - middle[0], b[1] - middle[1]) or 1.0
    dx, dy = (b[0] - middle[0]) / length, (b[1] - middle[1]) / length
    stop = (b[0] - dx * _HEAD * 0.8, b[1] - dy * _HEAD * 0.8)
    corners = [
        b,
        *((b[0] - dx * _HEAD + s * dy * _HEAD * 0.55, b[1] - dy * _HEAD - s * dx * _HEAD * 0.55) for s in (1, -1)),
    ]
    path = f"M{a[0]:.1f} {a[1]:.1f}Q{middle[0]:.1f} {middle[1]:.1f} {stop[0]:.1f} {stop[1]:.1f}"
    stroke = round(min(4.5, 1.4 + 0.7 * math.log10(1 + arrow.per_s)), 2)
    said = f"{arrow.sender} → {arrow.receiver}: {format_count(arrow.messages)} messages, {format_size(arrow.bytes)}"
    return Curve(path, " ".join(f"{x:.1f},{y:.1f}" for x, y in corners), stroke, slot, label, text, failures, said)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
