"""The highest rate that is carried, and the line through a sweep. Pure: whoever searches says what was carried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

_LOWEST, _HIGHEST = 20.0, 200_000.0
_STEP = 1.5
_MOST_PROBES = 14


def highest_carried(
    carries: Callable[[float], bool], guess: float, *, within: float = 1.08, is_late: Callable[[], bool] = lambda: False
) -> float:
    """The highest rate found to be carried; the next one tried above it, at most `within` times as high, was not.

    From the guess up or down by half until both sides are known, then between them. 0 when nothing is carried. Once it
    is late, what is carried so far has to do.
    """
    good, bad, rate = 0.0, 0.0, min(max(guess, _LOWEST), _HIGHEST)
    for _ in range(_MOST_PROBES):
        if carries(rate):
            good = rate
        else:
            bad = rate
        if good and is_late():
            break
        if good and bad:
            if bad / good <= within:
                break
            rate = (good * bad) ** 0.5
        elif good:
            if rate >= _HIGHEST:
                break
            rate = min(rate * _STEP, _HIGHEST)
        else:
            if rate <= _LOWEST:
                break
            rate = max(rate / _STEP, _LOWEST)
    return good


@dataclass(frozen=True)
class Line:
    """1/rate = a + b·k: what a message costs, and what each of its copies costs."""

    a_us: float
    b_us: float
    r2: float

    def rate(self, copies: float) -> float:
        """Messages a second the line promises."""
        cost = self.a_us + self.b_us * copies
        return 1e6 / cost if cost > 0 else 0.0


def fitted(points: Sequence[tuple[int, float]]) -> Line | None:
    """Least squares over (copies, messages a second); None with fewer than two rates."""
    costs = [(float(copies), 1e6 / rate) for copies, rate in points if rate > 0]
    if len(costs) < 2:
        return None
    mean_x = sum(x for x, _ in costs) / len(costs)
    mean_y = sum(y for _, y in costs) / len(costs)
    spread = sum((x - mean_x) ** 2 for x, _ in costs)
    if spread == 0:
        return None
    slope = sum((x - mean_x) * (y - mean_y) for x, y in costs) / spread
    start = mean_y - slope * mean_x
    around = sum((y - mean_y) ** 2 for _, y in costs)
    left = sum((y - start - slope * x) ** 2 for x, y in costs)
    return Line(start, slope, 1 - left / around if around else 1.0)
