"""Exchanges between named services → `responses`: one row per pair of peers and kind of request, added up anywhere.

Times are kept sorted, all of them up to a number, evenly spaced ones beyond: quantiles are exact, or nearly so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from battlebrokers.pipeline.stages.peers import Numbers, Peers, as_array, codes, numbers
from battlebrokers.tables import RESPONSES

_QUANTILES = {"p25_ns": 0.25, "p50_ns": 0.5, "p75_ns": 0.75, "p95_ns": 0.95, "p99_ns": 0.99}
_MOST = 8192
"""Times kept of one kind of exchange by one task: the rank of a quantile is off by less than one in so many."""
_MEANWHILE = 4 * _MOST
"""More are kept while others are still added, so that being thinned several times does not add up."""

_KEY = ("asker", "answerer", "protocol", "kind")
Key = tuple[str, ...]
"""Asker, answerer, protocol, kind."""


@dataclass(slots=True)
class Took:
    """How long the exchanges of one kind took, and what else is counted."""

    n: int = 0
    failed: int = 0
    unanswered: int = 0
    uncertain: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    total_ns: int = 0
    times_ns: list[Numbers] = field(default_factory=list)
    weights: list[npt.NDArray[np.float64]] = field(default_factory=list)

    def time(self, took_ns: Numbers) -> None:
        """Exchanges that were answered."""
        self.total_ns += int(took_ns.sum())
        self.keep(np.sort(took_ns), np.ones(len(took_ns)))
        self._bound()

    def keep(self, times_ns: Numbers, weights: npt.NDArray[np.float64]) -> None:
        """Sorted times, and how many exchanges each stands for."""
        self.times_ns.append(times_ns)
        self.weights.append(weights)

    def thin(self, most: int = _MOST) -> None:
        """Keep no more times than are needed."""
        times, weights = self.sorted()
        if len(times) > most:
            # The first and the last stay, and in between each stands for as many.
            ends = np.cumsum(weights)
            wanted = np.linspace(0, ends[-1], most + 1)
            places = np.minimum(np.searchsorted(ends, (wanted[1:] + wanted[:-1]) / 2), len(times) - 1)
            places[0], places[-1] = 0, len(times) - 1
            times, weights = times[places], np.full(most, ends[-1] / most)
        self.times_ns, self.weights = [times], [weights]

    def _bound(self) -> None:
        """However many are added, no more than this is held."""
        if sum(map(len, self.times_ns)) > 4 * _MEANWHILE:
            self.thin(_MEANWHILE)

    def sorted(self) -> tuple[Numbers, npt.NDArray[np.float64]]:
        """All times kept, with their weights."""
        times, weights = np.concatenate(self.times_ns), np.concatenate(self.weights)
        order = np.argsort(times, kind="stable")
        return times[order], weights[order]

    def merge(self, other: Took) -> None:
        """Those of another task."""
        for name in ("n", "failed", "unanswered", "uncertain", "request_bytes", "response_bytes", "total_ns"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.times_ns += other.times_ns
        self.weights += other.weights
        self._bound()

    def row(self, key: Key) -> dict[str, str | int | float | None]:
        """A row of `responses`."""
        answered = self.n - self.unanswered
        row: dict[str, str | int | float | None] = dict(
            zip(("asker", "answerer", "protocol", "kind"), key, strict=True)
        )
        row |= {"n": self.n, "answered": answered, "failed": self.failed, "unanswered": self.unanswered}
        row |= {"uncertain": self.uncertain, "request_bytes": self.request_bytes}
        row |= {"response_bytes": self.response_bytes}
        if not answered:
            return row
        times = np.concatenate(self.times_ns)
        row |= {"min_ns": int(times.min()), "max_ns": int(times.max()), "mean_ns": self.total_ns / answered}
        return row | self.quantiles(_QUANTILES)

    def quantiles(self, shares: Mapping[str, float]) -> dict[str, int]:
        """The smallest times that so many did not exceed; none if nothing was timed."""
        if not self.times_ns or not sum(map(len, self.times_ns)):
            return {}
        times, weights = self.sorted()
        ends = np.cumsum(weights)
        places = np.searchsorted(ends, np.array([*shares.values()]) * ends[-1] * (1 - 1e-12))
        return dict(zip(shares, times[np.minimum(places, len(times) - 1)].tolist(), strict=True))


class Answers:
    """All kinds of exchanges a task saw."""

    def __init__(self) -> None:
        self._kinds: dict[Key, Took] = {}

    def add(self, batch: pa.RecordBatch, rows: Numbers, by_client: npt.NDArray[np.bool_], peers: Peers) -> None:
        """Exchanges of conversations in these rows of the peers."""
        asker, answerer = peers.names(rows, by_client)
        table = pa.table(
            [
                asker, answerer, batch["protocol"], batch["kind"], batch["outcome"], batch["certain"],
                batch["request_bytes"], pc.fill_null(batch["response_bytes"], 0),
                pc.subtract(pc.fill_null(batch["answered_ns"], batch["asked_ns"]), batch["asked_ns"]),
            ],
            names=["asker", "answerer", "protocol", "kind", "outcome", "certain", "asked", "answered", "took"],
        )  # fmt: skip
        counted = peers.counted[rows]
        if not counted.all():
            table = table.filter(pa.array(counted))
        code, keys = codes([table[name] for name in _KEY])
        order = np.argsort(code, kind="stable")
        code = code[order]
        cuts = [0, *(np.flatnonzero(code[1:] != code[:-1]) + 1).tolist(), len(code)] if len(code) else [0]
        table = table.take(as_array(order)).combine_chunks()
        for start, end in pairwise(cuts):
            some = table.slice(start, end - start)
            key = keys[int(code[start])]
            self._count(self._kinds.setdefault(key, Took()), some)

    @staticmethod
    def _count(took: Took, some: pa.Table) -> None:
        outcome = some["outcome"]
        unanswered = pc.equal(outcome, "unanswered").to_numpy()
        took.n += some.num_rows
        took.unanswered += int(np.count_nonzero(unanswered))
        took.failed += pc.sum(pc.equal(outcome, "failed")).as_py()
        took.uncertain += int(np.count_nonzero(~some["certain"].to_numpy() & ~unanswered))
        took.request_bytes += pc.sum(some["asked"]).as_py()
        took.response_bytes += pc.sum(some["answered"]).as_py()
        took.time(numbers(some["took"])[~unanswered])

    def thin(self) -> None:
        """Before they travel."""
        for took in self._kinds.values():
            took.thin()

    def merge(self, other: Answers) -> None:
        """Those of another task."""
        for key, took in other._kinds.items():
            self._kinds.setdefault(key, Took()).merge(took)

    def kinds(self) -> Iterable[tuple[Key, Took]]:
        """All of them."""
        return self._kinds.items()

    def table(self) -> pa.Table:
        """The rows of `responses`."""
        rows = [took.row(key) for key, took in sorted(self._kinds.items())]
        return pa.Table.from_pylist(rows, schema=RESPONSES.arrow_schema())
