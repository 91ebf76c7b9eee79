"""Bytes per second on the wires: by protocol, by service, and those that are neither request nor response.

Read from `traffic`. A long capture is told in columns of several seconds, so that what comes out stays small.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from battlebrokers.analysis.stored import pieces
from battlebrokers.tables import TRAFFIC
from battlebrokers.tables.run_folder import RunFolder

OTHERS = "others"
"""Under this name go all beyond the largest few."""
_ASKED, _UNASKED = ("request", "response"), ("other",)
_PARTS = (*_ASKED, *_UNASKED)
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
    """Add up the table; bounded whatever its length."""
    seconds: dict[tuple[str, str, str, str], dict[int, int]] = {}
    flows: dict[tuple[str, str, str], dict[str, int]] = {}
    for piece in pieces(folder, TRAFFIC):
        for row in piece.to_pylist():
            key = (row["sender"], row["receiver"], row["protocol"])
            flow = flows.setdefault(key, {"request": 0, "response": 0, "other": 0, "bytes": 0})
            flow[row["part"]] = flow.get(row["part"], 0) + row["messages"]
            flow["bytes"] += row["bytes"]
            line = seconds.setdefault((*key, row["part"]), {})
            line[row["second"]] = line.get(row["second"], 0) + row["bytes"]
    told = sorted(
        (
            Flow(*key, f["request"], f["response"], f["other"], f["bytes"], *_ends(key, seconds))
            for key, f in flows.items()
        ),
        key=lambda flow: (-flow.bytes, flow.sender, flow.receiver, flow.protocol),
    )
    if not seconds:
        return Traffic(0, 1, 0, (), (), (), tuple(told))
    first = min(min(line) for line in seconds.values())
    last = max(max(line) for line in seconds.values())
    width = -(-(last - first + 1) // _MOST_COLUMNS)
    columns = (last - first) // width + 1

    def sums(name_at: int, parts: Collection[str]) -> dict[str, npt.NDArray[np.float64]]:
        found: dict[str, npt.NDArray[np.float64]] = {}
        for key, line in seconds.items():
            if key[3] in parts:
                values = found.setdefault(key[name_at], np.zeros(columns))
                np.add.at(values, (np.fromiter(line, np.int64) - first) // width, list(line.values()))
        return found

    protocols = _largest(sums(2, _PARTS), width)
    shown = [line.name for line in protocols]
    bands = [
        Line(name, tuple((values / width).tolist()), unasked)
        for unasked, found in ((False, sums(2, _ASKED)), (True, sums(2, _UNASKED)))
        for name, values in _folded(found, shown).items()
    ]
    bands.sort(key=lambda line: (shown.index(line.name), line.unasked))
    return Traffic(first, width, columns, protocols, tuple(bands), _largest(sums(0, _PARTS), width), tuple(told))


def _ends(
    key: tuple[str, str, str], seconds: Mapping[tuple[str, str, str, str], Mapping[int, int]]
) -> tuple[int | None, int | None]:
    spoken = [second for part in _PARTS for second in seconds.get((*key, part), ())]
    return (min(spoken), max(spoken)) if spoken else (None, None)


def _folded(sums: dict[str, npt.NDArray[np.float64]], shown: Sequence[str]) -> dict[str, npt.NDArray[np.float64]]:
    """Those with a line of their own, and all others together."""
    found: dict[str, npt.NDArray[np.float64]] = {}
    for name, values in sums.items():
        line = name if name in shown else OTHERS
        found[line] = found[line] + values if line in found else values
    return found


def _largest(sums: dict[str, npt.NDArray[np.float64]], width: int) -> tuple[Line, ...]:
    order = sorted(sums, key=lambda name: (-sums[name].sum(), name))
    lines = [(name, sums[name]) for name in order[:_MOST_LINES]]
    if order[_MOST_LINES:]:
        lines.append((OTHERS, np.sum([sums[name] for name in order[_MOST_LINES:]], axis=0)))
    return tuple(Line(name, tuple((values / width).tolist())) for name, values in lines)
