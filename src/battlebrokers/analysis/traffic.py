"""Bytes per second on the wires: by protocol, by service, and those that are neither request nor response.

Read from `traffic`. A long capture is told in columns of several seconds, so that what comes out stays small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from battlebrokers.analysis.columns import group_codes, numbers_of
from battlebrokers.analysis.stored import pieces
from battlebrokers.tables import TRAFFIC
from battlebrokers.tables.run_folder import RunFolder

OTHERS = "others"
"""Under this name go all beyond the largest few."""
_UNASKED = ("other",)
_KEY = ("sender", "receiver", "protocol", "part")
_MOST_COLUMNS = 600
_MOST_LINES = 6


@dataclass(frozen=True, slots=True)
class Line:
    """Bytes per second of one protocol or service."""

    name: str
    bytes_per_s: tuple[float, ...]
    unasked: bool = False
    """Only what is neither request nor response."""

    @property
    def peak(self) -> float:
        """The busiest column."""
        return max(self.bytes_per_s, default=0.0)


@dataclass(frozen=True, slots=True)
class Flow:
    """What was said from one peer to another in one protocol, over the whole capture."""

    sender: str
    receiver: str
    protocol: str
    requests: int
    responses: int
    others: int
    """Messages that are neither."""
    bytes: int
    first_second: int | None = None
    """The whole second of its first message, and of its last; None if it is not known."""
    last_second: int | None = None

    @property
    def messages(self) -> int:
        """All of them."""
        return self.requests + self.responses + self.others


def active_s(flows: Iterable[Flow], span_s: float) -> float:
    """What rates are counted over: from the first of these messages to the last, in whole seconds, but not longer than
    the capture."""
    flows = list(flows)
    first = [flow.first_second for flow in flows if flow.first_second is not None]
    last = [flow.last_second for flow in flows if flow.last_second is not None]
    return min(span_s, float(max(last) - min(first) + 1)) if first and last else span_s


@dataclass(frozen=True, slots=True)
class Traffic:
    """The time axis, and what was said along it."""

    first_second: int
    seconds_per_column: int
    columns: int
    protocols: tuple[Line, ...]
    bands: tuple[Line, ...]
    """The same protocols, each in up to two parts: requests with responses, and what is neither."""
    services: tuple[Line, ...]
    """By sender."""
    flows: tuple[Flow, ...]
    """The one with most bytes first."""

    @property
    def seconds(self) -> int:
        """How long it lasted."""
        return self.columns * self.seconds_per_column


def read_traffic(folder: RunFolder) -> Traffic:
    """Add up the table, in two turns: what there is at all, then the columns of those that are shown."""
    flows: dict[tuple[str, str, str], _Sum] = {}
    for piece in pieces(folder, TRAFFIC):
        _add_up(piece, flows)
    told = sorted(
        (Flow(*key, *_by_part(one.messages), one.bytes, one.first, one.last) for key, one in flows.items()),
        key=lambda flow: (-flow.bytes, flow.sender, flow.receiver, flow.protocol),
    )
    if not flows:
        return Traffic(0, 1, 0, (), (), (), ())
    first, last = min(one.first for one in flows.values()), max(one.last for one in flows.values())
    width = -(-(last - first + 1) // _MOST_COLUMNS)
    axis = _Axis(first, width, (last - first) // width + 1)
    spoken, spoke = _shown(flows, 2), _shown(flows, 0)
    asked, unasked, services = (_Lines(axis, shown) for shown in (spoken, spoken, spoke))
    for piece in pieces(folder, TRAFFIC, (*_KEY, "second", "bytes")):
        places, size = (numbers_of(piece["second"]) - first) // width, numbers_of(piece["bytes"])
        for (sender, _, protocol, part), mine in _parted(piece):
            sums = np.bincount(places[mine], size[mine], axis.columns).astype(np.float64)
            (unasked if part in _UNASKED else asked).add(protocol, sums)
            services.add(sender, sums)
    names = [*spoken, OTHERS] if OTHERS in (asked.sums.keys() | unasked.sums.keys()) else spoken
    protocols = tuple(Line(name, axis.per_s(asked.of(name) + unasked.of(name))) for name in names)
    bands = [
        Line(name, axis.per_s(lines.of(name)), unasked=lines is unasked)
        for name in names
        for lines in (asked, unasked)
        if name in lines.sums
    ]
    others = [OTHERS] if OTHERS in services.sums else []
    senders = tuple(Line(name, axis.per_s(services.of(name))) for name in [*spoke, *others])
    return Traffic(first, width, axis.columns, protocols, tuple(bands), senders, tuple(told))


@dataclass(slots=True)
class _Sum:
    """One flow, added up."""

    messages: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    first: int = 1 << 62
    last: int = -(1 << 62)


def _by_part(messages: Mapping[str, int]) -> tuple[int, int, int]:
    return messages.get("request", 0), messages.get("response", 0), messages.get("other", 0)


def _add_up(piece: pa.Table, flows: dict[tuple[str, str, str], _Sum]) -> None:
    second, messages, size = (numbers_of(piece[name]) for name in ("second", "messages", "bytes"))
    for (sender, receiver, protocol, part), mine in _parted(piece):
        flow = flows.setdefault((sender, receiver, protocol), _Sum())
        flow.messages[part] = flow.messages.get(part, 0) + int(messages[mine].sum())
        flow.bytes += int(size[mine].sum())
        flow.first = min(flow.first, int(second[mine].min()))
        flow.last = max(flow.last, int(second[mine].max()))


def _parted(piece: pa.Table) -> Iterator[tuple[tuple[str, ...], npt.NDArray[np.int64]]]:
    """Whoever spoke to whom in which protocol and part, and the rows of that."""
    groups, keys = group_codes(piece, _KEY)
    order = np.argsort(groups, kind="stable")
    ends = np.cumsum(np.bincount(groups, minlength=len(keys)))[:-1]
    return zip(keys, np.split(order, ends) if keys else [], strict=True)


@dataclass(frozen=True, slots=True)
class _Axis:
    first: int
    width: int
    columns: int

    def per_s(self, values: npt.NDArray[np.float64]) -> tuple[float, ...]:
        return tuple((values / self.width).tolist())


@dataclass(frozen=True, slots=True)
class _Lines:
    """Bytes per column of those that are shown, and of all others together."""

    axis: _Axis
    shown: Sequence[str]
    sums: dict[str, npt.NDArray[np.float64]] = field(default_factory=dict)

    def add(self, name: str, sums: npt.NDArray[np.float64]) -> None:
        line = name if name in self.shown else OTHERS
        self.sums[line] = self.of(line) + sums

    def of(self, name: str) -> npt.NDArray[np.float64]:
        return self.sums.get(name, np.zeros(self.axis.columns))


def _shown(flows: Mapping[tuple[str, str, str], _Sum], name_at: int) -> list[str]:
    """Those with a line of their own, the largest first."""
    sizes: dict[str, int] = {}
    for key, one in flows.items():
        sizes[key[name_at]] = sizes.get(key[name_at], 0) + one.bytes
    return sorted(sizes, key=lambda name: (-sizes[name], name))[:_MOST_LINES]
