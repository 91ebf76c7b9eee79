"""How long another process has given no sign of life. Used where one of ours is waited for: workers, the analysis.

Counts only time in which we ourselves were running: after a suspended machine or `fg`, the others get their chance.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_LONGEST_STEP_S = 1.0


class Silence:
    """Ask `over` regularly; `heard` starts the count again."""

    def __init__(self, limit_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self.limit_s = limit_s
        self._now_s = now_s
        self._looked_at_s = now_s()
        self._counted_s = 0.0

    def heard(self) -> None:
        """There was a sign of life."""
        self._counted_s = 0.0

    def over(self) -> bool:
        """Whether the limit is reached; ask at least every second, longer steps count as one."""
        now_s = self._now_s()
        self._counted_s += min(_LONGEST_STEP_S, now_s - self._looked_at_s)
        self._looked_at_s = now_s
        return self._counted_s >= self.limit_s
