"""Which service holds the slow messages back: shares of time on the deciding way, slow messages beside ordinary ones.

Called by `bb explain` and the report. A service is named only when its share grows with slowness, and never of a run
that is VOID.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from battlebrokers.analysis.examples import Examples
from battlebrokers.analysis.quantiles import samples_for
from battlebrokers.analysis.traces import OUTSIDE, Trace
from battlebrokers.units import format_duration

WIRE = "the wire"
LEAST_TRACES = samples_for(0.99)
"""With fewer, the slowest hundredth is not the slowest hundredth of what the broker does."""
_EXAMPLES = 3
_MOST_OF_IT = 0.5
"""A service must explain at least so much of what slow messages take longer."""


@dataclass(frozen=True, slots=True)
class Share:
    """One service's part in the time of followed messages."""

    service: str
    slow: float
    """Of the time of the slowest hundredth."""
    ordinary: float
    """Of the time of the faster half."""
    slow_mean_ns: float
    ordinary_mean_ns: float


@dataclass(frozen=True, slots=True)
class Example:
    """A slow message."""

    id: str
    took_ns: int
    inside_ns: int
    """So much of it inside the service it waited in longest."""
    service: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The services, the one that explains most first."""

    traces: int
    slow_ns: float
    """Mean time of the slow messages."""
    ordinary_ns: float
    shares: tuple[Share, ...]
    examples: tuple[Example, ...] = ()
    """The slowest messages, and where each waited longest."""
    void: str = ""
    """Why the run is VOID; then nobody is named."""

    @property
    def culprit(self) -> Share | None:
        """The one service that holds the slow messages back, if there is one."""
        named = [share for share in self.shares if share.service not in (OUTSIDE, WIRE)]
        if self.void or self.traces < LEAST_TRACES or not named:
            return None
        first = max(named, key=lambda share: share.slow_mean_ns - share.ordinary_mean_ns)
        added_ns = first.slow_mean_ns - first.ordinary_mean_ns
        return first if added_ns > _MOST_OF_IT * (self.slow_ns - self.ordinary_ns) else None

    def sentences(self) -> list[str]:
        """What it comes to, in words."""
        if self.void:
            return [
                f"The run is VOID: {self.void}.",
                "What its captures show was recorded, but explains nothing about the broker.",
            ]
        if not self.traces:
            return ["No message was seen on two wires, so none could be followed."]
        if self.traces < LEAST_TRACES:
            few = f"Only {self.traces} of the messages could be followed: too few to explain anything"
            return [f"{few}, because their slowest hundredth needs {LEAST_TRACES}."]
        slower = self.slow_ns / self.ordinary_ns if self.ordinary_ns else 0.0
        took = format_duration(self.slow_ns)
        first = f"The slowest hundredth took {took}, {slower:.1f} times as long as the faster half."
        culprit = self.culprit
        if culprit is None:
            return [first, "No single service explains the difference."]
        blame = (
            f"{culprit.service} holds them back: {format_duration(culprit.slow_mean_ns)} inside it instead of "
            f"{format_duration(culprit.ordinary_mean_ns)}, {100 * culprit.slow:.0f} % of the slow messages' time "
            f"and {100 * culprit.ordinary:.0f} % of the others'."
        )
        return [first, blame]


def explain(examples: Examples, void: str = "") -> Explanation:
    """Compare the slowest hundredth with the faster half; `void`: why the run they are of is VOID."""
    told = tuple(_example(trace) for trace in examples.slowest[:_EXAMPLES])
    if examples.followed < LEAST_TRACES:
        return Explanation(examples.followed, 0.0, 0.0, (), told, void)
    slow, ordinary = examples.slow, examples.ordinary
    slow_by, slow_ns = _time_by_service(slow)
    ordinary_by, ordinary_ns = _time_by_service(ordinary)
    shares = [
        Share(
            service,
            slow_by.get(service, 0.0) / slow_ns if slow_ns else 0.0,
            ordinary_by.get(service, 0.0) / ordinary_ns if ordinary_ns else 0.0,
            slow_by.get(service, 0.0),
            ordinary_by.get(service, 0.0),
        )
        for service in {*slow_by, *ordinary_by}
    ]
    shares.sort(key=lambda share: (-(share.slow_mean_ns - share.ordinary_mean_ns), share.service))
    return Explanation(examples.followed, slow_ns, ordinary_ns, tuple(shares), told, void)


def _example(trace: Trace) -> Example:
    """A message, and where on its deciding way it waited longest."""
    inside: dict[str, int] = {}
    way = trace.way()
    for leg in way:
        inside[WIRE] = inside.get(WIRE, 0) + leg.received_ns - leg.sent_ns
        if leg.inside_ns is not None:
            inside[leg.sender] = inside.get(leg.sender, 0) + leg.inside_ns
    service = max(inside, key=lambda name: (inside[name], name))
    return Example(trace.title, way[-1].received_ns - way[0].sent_ns, inside[service], service)


def _time_by_service(traces: Sequence[Trace]) -> tuple[dict[str, float], float]:
    """Mean time per message inside each service on the deciding way, and of the whole way."""
    inside: dict[str, float] = {}
    whole = 0.0
    for trace in traces:
        way = trace.way()
        whole += way[-1].received_ns - way[0].sent_ns
        for leg in way:
            inside[WIRE] = inside.get(WIRE, 0.0) + leg.received_ns - leg.sent_ns
            if leg.inside_ns is not None:
                inside[leg.sender] = inside.get(leg.sender, 0.0) + leg.inside_ns
    count = max(1, len(traces))
    return {service: spent / count for service, spent in inside.items()}, whole / count
