"""Everything the group `sdn` has measured, as `sdn.json` keeps it. Pure data; told by `sdn_report.py`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from benchmarks.sdn_changes import Survived


class Rate(msgspec.Struct, frozen=True):
    """Copies a second without loss: the median of the rounds, and the rounds."""

    name: str
    copies_s: float
    rounds: list[float]


class Latency(msgspec.Struct, frozen=True):
    """From sending to each copy."""

    name: str
    p50_us: float
    p90_us: float
    p99_us: float
    max_us: float
    lost: int


class Uplink(msgspec.Struct, frozen=True):
    """Packets at the publisher and between the first two switches, beside what the formula says."""

    name: str
    uplink: int
    link: int
    uplink_formula: int
    link_formula: int
    lost: int


class Busy(msgspec.Struct, frozen=True):
    """What the controller did in so many seconds, at rest and under load."""

    name: str
    copies: int
    seconds: float
    rest_ticks: int
    load_ticks: int
    rest_packet_ins: int
    load_packet_ins: int

    @property
    def extra_ticks(self) -> int:
        """Because of the messages."""
        return self.load_ticks - self.rest_ticks


class Changes(msgspec.Struct, frozen=True):
    """Subscriptions that changed under load; times in milliseconds, a join counts from the answer."""

    trials: int
    answer_p50_ms: float
    answer_p99_ms: float
    join_p50_ms: float
    join_p99_ms: float
    unsubscribed: int | None = None
    subscribed: int | None = None

    @classmethod
    def of(
        cls, trials: int, answers_ns: Sequence[int], joins_ns: Sequence[int], unsubscribed: int | None = None,
        subscribed: int | None = None,
    ) -> Changes:  # fmt: skip
        """From all the times there are."""
        answers, joins = (_at(answers_ns, 0.5), _at(answers_ns, 0.99)), (_at(joins_ns, 0.5), _at(joins_ns, 0.99))
        return cls(trials, *answers, *joins, unsubscribed, subscribed)


class Story(msgspec.Struct):
    """One call after the other fills it."""

    rates: dict[str, list[Rate]] = {}
    """By subscribers."""
    sweep: dict[str, list[tuple[int, float]]] = {}
    """Name → (subscribers, messages a second)."""
    latency: list[Latency] = []
    uplink: list[Uplink] = []
    busy: dict[str, Busy] = {}
    changes: dict[str, Changes] = {}
    killed: dict[str, Survived] = {}


def _at(values: Sequence[int], share: float) -> float:
    ordered = sorted(values)
    return round(ordered[int((len(ordered) - 1) * share)] / 1e6, 3) if ordered else 0.0
