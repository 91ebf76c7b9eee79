"""Legs of followed messages → `examples`: some messages chosen out of all, for reports, however many were followed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from battlebrokers.pipeline.stages.peers import OUTSIDE, Numbers, as_array, codes, distinct, numbers
from battlebrokers.pipeline.stages.responses import Took
from battlebrokers.tables import ENDINGS, EXAMPLES

_EVENLY, _LEAST_SLOW, _MOST_SLOW = 500, 20, 2000
"""Candidates of a task: so many from the quickest to the slowest, and its slowest hundredth."""
_MOST_LEGS = 200_000
"""Legs of candidates of all tasks together; beyond it only so many messages are kept:"""
_MOST_EVENLY, _SLOW_OF_ALL = 10_000, 20_000
_TOLD = 2000
_SLOWEST = 10
_STUCK = 5
_SLOW, _HALF = 0.99, 0.5
_MOST_PEERS = 62
"""Receivers told apart in the trail of a message; all others are one."""

Trail = tuple[str, tuple[str, ...]]
"""Whoever received a message last, and everybody who did."""


@dataclass(frozen=True, slots=True)
class _Messages:
    """Legs of whole messages, and where each message's begin."""

    legs: pa.Table
    starts: Numbers

    @property
    def took_ns(self) -> Numbers:
        """From the first byte of a message on any wire to its last."""
        sent, received = numbers(self.legs["sent_ns"]), numbers(self.legs["received_ns"])
        found: Numbers = np.maximum.reduceat(received, self.starts) - np.minimum.reduceat(sent, self.starts)
        return found

    def some(self, places: Numbers) -> pa.Table:
        """The legs of the messages at these places."""
        ends = np.append(self.starts[1:], self.legs.num_rows)
        sizes = (ends - self.starts)[places]
        first = np.repeat(self.starts[places] - np.append(0, np.cumsum(sizes)[:-1]), sizes)
        return self.legs.take(as_array(first + np.arange(int(sizes.sum())))).combine_chunks()


class ExampleSum:
    """Candidates of a task, and how long all its messages took."""

    def __init__(self) -> None:
        self._took = Took()
        self._candidates: list[pa.Table] = []
        self._slow: int | None = None
        """So many of the slowest are still candidates; None: all of each task's."""
        self._trails: Counter[Trail] = Counter()
        self._stuck: dict[Trail, list[pa.Table]] = {}

    def add(self, legs: pa.Table) -> None:
        """All legs of some messages, each message's together and in their order."""
        if not legs.num_rows:
            return
        messages = _messages(legs)
        took_ns = messages.took_ns
        count = len(took_ns)
        order = np.argsort(took_ns, kind="stable")
        slow = min(_MOST_SLOW, max(_LEAST_SLOW, math.ceil(count * (1 - _SLOW))))
        evenly = order[np.linspace(0, count - 1, min(_EVENLY, count)).astype(np.int64)]
        self._candidates.append(messages.some(np.unique(np.concatenate((evenly, order[-slow:])))))
        self._took.n += count
        self._took.time(took_ns)
        for trail, places in _trails(messages):
            self._trails[trail] += len(places)
            if len(self._stuck.setdefault(trail, [])) < _STUCK:
                self._stuck[trail].append(messages.some(places[:_STUCK]))

    def thin(self) -> None:
        """Before it travels."""
        if self._took.n:
            self._took.thin()

    def merge(self, other: ExampleSum) -> None:
        """That of another task."""
        self._took.merge(other._took)
        self._candidates += other._candidates
        self._trails += other._trails
        for trail, legs in other._stuck.items():
            known = self._stuck.setdefault(trail, [])
            known += legs[: _STUCK - len(known)]
        if sum(legs.num_rows for legs in self._candidates) > _MOST_LEGS:
            self._bound()

    def _bound(self) -> None:
        """However many tasks are merged, no more than this is held."""
        messages = self._sorted()
        order = np.argsort(messages.took_ns, kind="stable")
        self._slow = _SLOW_OF_ALL
        kept = np.concatenate((_picked(order[:-_SLOW_OF_ALL], _MOST_EVENLY), order[-_SLOW_OF_ALL:]))
        self._candidates = [messages.some(np.sort(kept))]

    def _sorted(self) -> _Messages:
        return _messages(pa.concat_tables(self._candidates).sort_by([("trace", "ascending"), ("leg", "ascending")]))

    def table(self, senders: Iterable[str]) -> pa.Table:
        """The rows of `examples`; `senders` are those who send anything on."""
        schema = EXAMPLES.arrow_schema()
        if not self._candidates:
            return schema.empty_table()
        messages = self._sorted()
        took_ns = messages.took_ns
        half_ns = self._took.quantiles({"half": _HALF})["half"]
        order = np.argsort(took_ns, kind="stable")
        # Each task gave its slowest hundredth, so that of all is among them.
        hundredth = max(1, round(self._took.n * (1 - _SLOW)))
        slow = order[-min(hundredth, self._slow or hundredth) :]
        ordinary = order[took_ns[order] <= half_ns]
        chosen = {
            "slow": messages.some(_picked(slow, _TOLD)),
            "ordinary": messages.some(_picked(ordinary, _TOLD)),
            "slowest": messages.some(order[::-1][:_SLOWEST]),
            "median": messages.some(order[np.searchsorted(took_ns[order], half_ns)][None]),
        }
        stuck = [legs for trail in self._stayed(senders) for legs in self._stuck[trail]]
        if stuck:
            lost = _messages(pa.concat_tables(stuck))
            chosen["stuck"] = lost.some(np.arange(min(_STUCK, len(lost.starts))))
        return pa.concat_tables(_tagged(legs, tag, self._took.n, schema) for tag, legs in chosen.items())

    def endings(self, senders: Iterable[str]) -> pa.Table:
        """The rows of `endings`, the most frequent first."""
        found: Counter[str] = Counter()
        for trail in self._stayed(senders):
            found[trail[0]] += self._trails[trail]
        order = sorted(found.items(), key=lambda one: (-one[1], one[0]))
        return pa.Table.from_pylist([{"service": name, "n": n} for name, n in order], schema=ENDINGS.arrow_schema())

    def _stayed(self, senders: Iterable[str]) -> list[Trail]:
        """Trails that ended within; who sends nothing on is where messages are meant to end."""
        onward = set(senders)
        return [trail for trail in self._trails if OUTSIDE not in trail[1] and onward.issuperset(trail[1])]


def _messages(legs: pa.Table) -> _Messages:
    trace = numbers(legs["trace"])
    return _Messages(legs, np.flatnonzero(np.append(True, trace[1:] != trace[:-1])))


def _trails(messages: _Messages) -> Iterator[tuple[Trail, Numbers]]:
    """The different trails of messages, and which messages have each."""
    legs, starts = messages.legs, messages.starts
    receiver, names = codes([legs["receiver"]])
    few = np.minimum(receiver, _MOST_PEERS)
    everybody: npt.NDArray[np.int64] = np.bitwise_or.reduceat(np.left_shift(1, few), starts)
    received = numbers(legs["received_ns"])
    message = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, legs.num_rows)))
    latest = np.flatnonzero(received == np.maximum.reduceat(received, starts)[message])
    last = np.zeros(len(starts), dtype=np.int64)
    last[message[latest]] = few[latest]
    trail, trails = distinct(everybody)
    place, different = distinct(trail * (_MOST_PEERS + 1) + last)
    words = [name for (name,) in names[:_MOST_PEERS]] + ["others"]
    for number, code in enumerate(different.tolist()):
        which, final = divmod(code, _MOST_PEERS + 1)
        mask = int(trails[which])
        heard = tuple(word for bit, word in enumerate(words) if mask >> bit & 1)
        yield (words[final], heard), np.flatnonzero(place == number)


def _picked(places: Numbers, most: int) -> Numbers:
    return places[np.linspace(0, len(places) - 1, min(most, len(places))).astype(np.int64)] if len(places) else places


def _tagged(legs: pa.Table, tag: str, count: int, schema: pa.Schema) -> pa.Table:
    tags = pa.array([tag], pa.string()).take(as_array(np.zeros(legs.num_rows, dtype=np.int64)))
    counts = as_array(np.full(legs.num_rows, count, dtype=np.int64))
    return pa.table([tags, counts, *(legs[name] for name in schema.names[2:])], schema=schema)
