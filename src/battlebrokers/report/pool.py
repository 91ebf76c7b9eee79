"""The runs of one contender taken together: what the charts draw. One run is a pool of one.

Counts per second are averaged over the runs, latencies are merged bucket by bucket; percentiles never averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from battlebrokers.analysis.columns import scalar_of, sums_by
from battlebrokers.analysis.conclusion import Conclusion
from battlebrokers.analysis.facts import Facts, where
from battlebrokers.analysis.latency import measured, per_second
from battlebrokers.analysis.model import PhaseSpan
from battlebrokers.analysis.quantiles import Distribution
from battlebrokers.analysis.ranking import label_of
from battlebrokers.clock import SECOND_NS

Series = dict[int, float]
"""Value by second since the start of the load."""

_LONGEST_WAIT_S = 2
"""Who is connected may have to wait for the load, until Spark is awake: more of it only squeezes the charts."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A contender and its runs; VOID runs are left out if any other is there."""

    label: str
    conclusions: tuple[Conclusion, ...]
    left_out: int = 0

    @property
    def facts(self) -> list[Facts]:
        """The facts of each run."""
        return [conclusion.facts for conclusion in self.conclusions]

    @property
    def phases(self) -> list[PhaseSpan]:
        """The phases of the first run; runs of one battle share their plan."""
        return self.conclusions[0].summary.phases

    @property
    def is_void(self) -> bool:
        """Whether none of its runs can be trusted."""
        return all(conclusion.summary.verdict == "VOID" for conclusion in self.conclusions)

    @property
    def uncounted(self) -> bool:
        """Whether the network bytes of some service of the run that is shown were not counted."""
        return any(not service.network_counted for service in self.conclusions[0].summary.services)

    def latency(self, kind: str) -> Distribution:
        """All values of one kind in the measure phase."""
        return Distribution.merged(measured(facts, kind) for facts in self.facts)

    def latency_per_second(self, kind: str) -> dict[int, Distribution]:
        """The same per second of planned time, over all load phases."""
        parts: dict[int, list[Distribution]] = {}
        for facts in self.facts:
            for second, found in per_second(facts, kind).items():
                parts.setdefault(second, []).append(found)
        return {second: Distribution.merged(found) for second, found in sorted(parts.items())}

    def timeline(self, side: str, column: str) -> Series:
        """A column of the timeline per second, summed over fleets, averaged over runs."""
        sums: Series = {}
        for facts in self.facts:
            for row in sums_by(where(facts.timeline, side=side), ("second",), (column,)):
                sums[row["second"]] = sums.get(row["second"], 0.0) + row[column]
        return {second: value / len(self.conclusions) for second, value in sorted(sums.items())}

    @property
    def first_second(self) -> int:
        """Where charts begin: with the connect phase, or shortly before the load if a wait lies between the two."""
        return min(first_second(facts) for facts in self.facts)

    def services(self, role: str) -> list[str]:
        """Names of the services of a role."""
        return sorted(
            {name for facts in self.facts for name in where(facts.resources, role=role)["service"].to_pylist()}
        )

    def resource(self, service: str, column: str) -> Series:
        """A resource of one service per second, averaged over samples and runs."""
        values: dict[int, list[float]] = {}
        for facts in self.facts:
            rows = where(facts.resources, service=service)
            for at_ns, value in zip(rows["sampled_ns"].to_pylist(), rows[column].to_pylist(), strict=True):
                if value is not None:
                    values.setdefault((at_ns - facts.load_start_ns) // SECOND_NS, []).append(float(value))
        return {second: sum(found) / len(found) for second, found in sorted(values.items())}


def make_pools(conclusions: Sequence[Conclusion]) -> list[Pool]:
    """One pool per contender, in the order they first appear."""
    summaries = [conclusion.summary for conclusion in conclusions]
    by_label: dict[str, list[Conclusion]] = {}
    for conclusion in conclusions:
        by_label.setdefault(label_of(conclusion.summary, summaries), []).append(conclusion)
    pools = []
    for label, mine in by_label.items():
        trusted = [conclusion for conclusion in mine if conclusion.summary.verdict != "VOID"] or mine
        pools.append(Pool(label, tuple(trusted), len(mine) - len(trusted)))
    return pools


def waited_ns(facts: Facts) -> int:
    """How long everybody was connected already and nothing was sent yet."""
    ended = facts.operations["ended_ns"]
    start_ns = facts.load_start_ns
    last_ns = pc.max(ended.filter(pc.less_equal(ended, scalar_of(start_ns, ended.type)))).as_py()
    return 0 if last_ns is None else start_ns - int(last_ns)


def first_second(facts: Facts) -> int:
    """The second, counted from the start of the load, where charts of a run begin."""
    if waited_ns(facts) > _LONGEST_WAIT_S * SECOND_NS:
        return -_LONGEST_WAIT_S
    connect = facts.manifest.phase("connect")
    return min(0, (connect.start_ns - facts.load_start_ns) // SECOND_NS) if connect else 0


def add_series(parts: Sequence[Series]) -> Series:
    """The sum of several series, second by second."""
    seconds = sorted({second for part in parts for second in part})
    return {second: sum(part.get(second, 0.0) for part in parts) for second in seconds}


def highest(parts: Sequence[Series]) -> Series:
    """The largest of several series, second by second."""
    seconds = sorted({second for part in parts for second in part})
    return {second: max(part[second] for part in parts if second in part) for second in seconds}
