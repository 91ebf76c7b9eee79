"""How long answers took between two peers: read from `responses`, put together over the kinds of requests.

Of each kind seven points of its distribution are known. With one kind a peer's points are exactly those; with several
they are read from the sum of their distributions, each drawn straight between its points.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from battlebrokers.analysis.stored import whole
from battlebrokers.tables import RESPONSES
from battlebrokers.tables.run_folder import RunFolder

LEVELS = (0.0, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
_POINTS = ("min_ns", "p25_ns", "p50_ns", "p75_ns", "p95_ns", "p99_ns", "max_ns")
_COUNTS = ("n", "answered", "failed", "unanswered", "uncertain", "request_bytes", "response_bytes")


@dataclass(frozen=True, slots=True)
class Delay:
    """The distribution of the times to an answer."""

    n: int
    min_ns: int
    p25_ns: int
    p50_ns: int
    p75_ns: int
    p95_ns: int
    p99_ns: int
    max_ns: int
    mean_ns: float

    @property
    def points(self) -> tuple[int, ...]:
        """From the shortest to the longest, at LEVELS."""
        return (self.min_ns, self.p25_ns, self.p50_ns, self.p75_ns, self.p95_ns, self.p99_ns, self.max_ns)


@dataclass(frozen=True, slots=True)
class Asked:
    """Requests of one peer to another, of one kind or of all kinds of a protocol."""

    asker: str
    answerer: str
    protocol: str
    kind: str
    """Empty: all kinds together."""
    n: int
    answered: int
    failed: int
    unanswered: int
    uncertain: int
    request_bytes: int
    response_bytes: int
    delay: Delay | None
    """None: nothing was answered."""
    kinds: tuple[Asked, ...] = ()
    """The kinds it is made of, the most frequent first."""


def read_asked(folder: RunFolder) -> list[Asked]:
    """All peers and directions, one entry per protocol, the busiest first."""
    groups: dict[tuple[str, str, str], list[Asked]] = {}
    for row in whole(folder, RESPONSES).to_pylist():
        groups.setdefault((row["asker"], row["answerer"], row["protocol"]), []).append(_of_row(row))
    return _by_peers(groups.values())


def pooled(runs: Iterable[Sequence[Asked]]) -> list[Asked]:
    """What was asked in several runs, as if it were one."""
    kinds: dict[tuple[str, str, str, str], list[Asked]] = {}
    for peers in runs:
        for one in (kind for peer in peers for kind in peer.kinds):
            kinds.setdefault((one.asker, one.answerer, one.protocol, one.kind), []).append(one)
    groups: dict[tuple[str, ...], list[Asked]] = {}
    for (*peer, kind), found in kinds.items():
        groups.setdefault(tuple(peer), []).append(replace(_together(found), kind=kind, kinds=()))
    return _by_peers(groups.values())


def _by_peers(groups: Iterable[list[Asked]]) -> list[Asked]:
    found = [_together(kinds) for kinds in groups]
    return sorted(found, key=lambda one: (-one.n, one.asker, one.answerer, one.protocol))


def _of_row(row: dict[str, Any]) -> Asked:
    points: dict[str, Any] = {name: row[name] for name in _POINTS}
    counts: dict[str, Any] = {name: row[name] or 0 for name in _COUNTS}
    known = row["answered"] and None not in points.values()
    return Asked(
        asker=row["asker"],
        answerer=row["answerer"],
        protocol=row["protocol"],
        kind=row["kind"],
        delay=Delay(n=row["answered"], mean_ns=row["mean_ns"], **points) if known else None,
        **counts,
    )


def _together(kinds: list[Asked]) -> Asked:
    kinds.sort(key=lambda one: (-one.n, one.kind))
    return Asked(
        asker=kinds[0].asker,
        answerer=kinds[0].answerer,
        protocol=kinds[0].protocol,
        kind="",
        delay=merged([one.delay for one in kinds if one.delay is not None]),
        kinds=tuple(kinds),
        **{name: sum(getattr(one, name) for one in kinds) for name in _COUNTS},
    )


def merged(delays: Sequence[Delay]) -> Delay | None:
    """One distribution out of several."""
    if len(delays) < 2:
        return delays[0] if delays else None
    n = sum(delay.n for delay in delays)
    # Not `np.unique`: it loads all of numpy.ma.
    knots = np.array(sorted({point for delay in delays for point in delay.points}), dtype=np.float64)
    share = np.zeros(len(knots))
    for delay in delays:
        share += delay.n / n * np.interp(knots, delay.points, LEVELS, left=0.0, right=1.0)
    p25_ns, p50_ns, p75_ns, p95_ns, p99_ns = (round(float(x)) for x in np.interp(LEVELS[1:-1], share, knots))
    return Delay(
        n=n,
        min_ns=min(delay.min_ns for delay in delays),
        p25_ns=p25_ns,
        p50_ns=p50_ns,
        p75_ns=p75_ns,
        p95_ns=p95_ns,
        p99_ns=p99_ns,
        max_ns=max(delay.max_ns for delay in delays),
        mean_ns=sum(delay.mean_ns * delay.n for delay in delays) / n,
    )
