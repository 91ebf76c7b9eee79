"""The run's phases as Spark expressions: which phase, and which second of the load, a moment belongs to.

Called by every step that groups by time. Reads the manifest's phases; a phase without an end is still open.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from battlebrokers.clock import SECOND_NS
from battlebrokers.tables.manifest import Manifest

LOAD_PHASES = ("warm_up", "measure", "cool_down")
"""The phases in which devices publish."""


@dataclass(frozen=True, slots=True)
class Timeframe:
    """Where the phases begin, in order, and the moments the rules speak of."""

    starts: tuple[tuple[str, int], ...]
    zero_ns: int
    """Start of the run: small relative times are counted from here."""
    load_start_ns: int
    drain_start_ns: int | None

    @classmethod
    def of(cls, manifest: Manifest) -> Timeframe:
        """The time frame of a run, whole or killed at any moment."""
        starts = tuple(
            (phase.name, phase.start_ns) for phase in sorted(manifest.phases, key=lambda phase: phase.start_ns)
        )
        if not starts:
            starts = (("measure", manifest.started_ns),)
        load = [start_ns for name, start_ns in starts if name in LOAD_PHASES]
        drain = [start_ns for name, start_ns in starts if name == "drain"]
        return cls(
            starts=starts,
            zero_ns=min(manifest.started_ns, starts[0][1]),
            load_start_ns=load[0] if load else starts[-1][1],
            drain_start_ns=drain[0] if drain else None,
        )

    def phase_at(self, moment_ns: Column) -> Column:
        """The name of the phase a moment falls into; before the first it is the first, after the last the last."""
        name = F.lit(self.starts[0][0])
        for phase, start_ns in self.starts[1:]:
            name = F.when(moment_ns >= F.lit(start_ns), F.lit(phase)).otherwise(name)
        return name

    def second_at(self, moment_ns: Column) -> Column:
        """Whole seconds from the start of the load, counting down before it."""
        since_ns = moment_ns - F.lit(self.load_start_ns)
        return F.floor(since_ns / F.lit(float(SECOND_NS))).cast("int")

    def begin_of_second(self, second: Column) -> Column:
        """The moment a second of the load began."""
        return second.cast("long") * F.lit(SECOND_NS) + F.lit(self.load_start_ns)

    def is_late(self, moment_ns: Column) -> Column:
        """Whether a moment lies in the drain."""
        if self.drain_start_ns is None:
            return F.lit(False)
        return F.coalesce(moment_ns >= F.lit(self.drain_start_ns), F.lit(False))
