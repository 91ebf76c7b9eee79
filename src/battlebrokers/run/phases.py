"""The phases of a run as a visible state machine: connect → warm_up → measure → cool_down → drain.

Pure: the orchestrator tells it what happened, it answers with the borders the manifest keeps. Zero-length phases are
left out; a run that ends early keeps the phases it reached, cut at the moment it ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from battlebrokers.scenario.plan import PhasesPlan
from battlebrokers.tables.manifest import Phase


@dataclass(slots=True)
class Timetable:
    """Where a run is, and where it has been."""

    plan: PhasesPlan
    connect_start_ns: int = 0
    load_start_ns: int = 0
    load_end_ns: int = 0
    end_ns: int = 0
    _names: tuple[str, ...] = field(default=("warm_up", "measure", "cool_down"), init=False)

    def connecting(self, at_ns: int) -> None:
        """Devices and clients begin to connect."""
        self.connect_start_ns = at_ns

    def loading(self, load_start_ns: int) -> None:
        """The load starts at this agreed instant."""
        self.load_start_ns = load_start_ns
        self.load_end_ns = load_start_ns + self.plan.load_ns

    def stopped(self, at_ns: int) -> None:
        """The load was cut short."""
        if self.load_start_ns and at_ns < self.load_end_ns:
            self.load_end_ns = max(at_ns, self.load_start_ns)

    def ended(self, at_ns: int) -> None:
        """The drain is over, or the run broke off."""
        self.end_ns = at_ns

    def phases(self) -> list[Phase]:
        """The phases so far; the last has an end of 0 while it lasts."""
        if not self.connect_start_ns:
            return []
        if not self.load_start_ns:
            return [Phase("connect", self.connect_start_ns, self.end_ns)]
        found = [Phase("connect", self.connect_start_ns, self.load_start_ns)]
        start_ns = self.load_start_ns
        for name in self._names:
            length_ns = getattr(self.plan, f"{name}_ns")
            end_ns = min(start_ns + length_ns, self.load_end_ns)
            if end_ns > start_ns:
                found.append(Phase(name, start_ns, end_ns))
            start_ns = end_ns
        found.append(Phase("drain", self.load_end_ns, self.end_ns))
        return found

    def now_in(self, now_ns: int) -> tuple[str, float]:
        """The phase at this moment and how much of it has passed (0 to 1; 0 when its length is unknown)."""
        if not self.load_start_ns:
            return "connect", 0.0
        for phase in self.phases()[1:-1]:
            if now_ns < phase.end_ns:
                return phase.name, max(0.0, (now_ns - phase.start_ns) / (phase.end_ns - phase.start_ns))
        return "drain", min(1.0, max(0, now_ns - self.load_end_ns) / max(1, self.plan.longest_drain_ns))
