"""At most so many a second: what the controller itself holds back, where a switch cannot. Used for every question."""

from __future__ import annotations

import time


class Allowance:
    """With a burst: a flood costs no more than this."""

    def __init__(self, per_s: int, burst: int) -> None:
        self._per_s, self._burst = per_s, float(burst)
        self._left = self._burst
        self._at = time.monotonic()

    def take(self) -> bool:
        """Whether one more is allowed."""
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
