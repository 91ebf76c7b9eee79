"""One clock for a run: monotonic nanoseconds, anchored once to wall time.

Every time in the evidence is "run time": wall nanoseconds at the anchor plus monotonic nanoseconds since,
so it never steps when NTP does. Processes of one machine share the anchor and need no alignment.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

SECOND_NS = 1_000_000_000
MILLISECOND_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class Anchor:
    """A moment read on both clocks."""

    monotonic_ns: int
    wall_ns: int

    @classmethod
    def take(cls) -> Anchor:
        """Read both clocks as close together as this machine allows (best of five)."""
        best_width = None
        best = cls(0, 0)
        for _ in range(5):
            before = time.monotonic_ns()
            wall = time.time_ns()
            after = time.monotonic_ns()
            if best_width is None or after - before < best_width:
                best_width = after - before
                best = cls((before + after) // 2, wall)
        return best

    @property
    def shift_ns(self) -> int:
        """What to add to a monotonic reading to get run time."""
        return self.wall_ns - self.monotonic_ns

    def now_ns(self) -> int:
        """Run time now, in nanoseconds since the epoch."""
        return time.monotonic_ns() + self.shift_ns

    def reader(self) -> Callable[[], int]:
        """A function returning run time, with the anchor folded in (for hot paths)."""
        shift_ns = self.shift_ns
        monotonic_ns = time.monotonic_ns

        def now_ns() -> int:
            return monotonic_ns() + shift_ns

        return now_ns
