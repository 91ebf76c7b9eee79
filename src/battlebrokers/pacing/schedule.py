"""One device's schedule: what is due next, and everything due until now. Called by devices on every tick.

Offsets are nanoseconds since the start of the load; they come in blocks from the pace's shape, so that asking
is cheap. It never looks at a clock and never forgets a message that was due.
"""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from battlebrokers.pacing import burst, poisson, ramp, steady, uniform
from battlebrokers.scenario import dice
from battlebrokers.scenario.nodes import NEVER_NS, PacePlan

NEVER: Final = NEVER_NS
"""What `peek_ns` says when nothing is left."""

Offsets = npt.NDArray[np.int64]


class Shape(Protocol):
    """What each file of this folder offers: message numbers → times, given when the message before them was due."""

    def __call__(self, pace: PacePlan, seed: int, first: int, count: int, last_ns: int) -> Offsets:
        """The offsets of messages first … first + count - 1."""


SHAPES: Final[dict[str, Shape]] = {
    "steady": steady.offsets,
    "uniform": uniform.offsets,
    "poisson": poisson.offsets,
    "burst": burst.offsets,
    "ramp": ramp.offsets,
}

_EMPTY: Final[Offsets] = np.empty(0, dtype=np.int64)
_FIRST_BLOCK = 16
_SMALLEST_BLOCK = {"steady": 32, "burst": 32}
_SMALLEST_DRAWN_BLOCK = 64
_LARGEST_BLOCK = 8192
_BLOCK_NS = 50_000_000


def _block_size(pace: PacePlan) -> int:
    """Enough messages for 50 ms: slow devices stay small in memory, fast ones cheap in time."""
    gap_ns = max(1, min(pace.interval_ns, pace.interval_max_ns or pace.interval_ns) // pace.per_interval)
    per_block = max(1, pace.burst_size) * _BLOCK_NS // gap_ns
    return min(max(per_block, _SMALLEST_BLOCK.get(pace.kind, _SMALLEST_DRAWN_BLOCK)), _LARGEST_BLOCK)


class Schedule:
    """The planned send times of one device, taken piece by piece; cutting the pieces elsewhere changes nothing."""

    __slots__ = ("_at", "_block", "_left", "_made", "_pace", "_seed", "_until_ns", "peek_ns")

    peek_ns: int
    """When the next message is due, or NEVER."""

    def __init__(self, pace: PacePlan, seed: int, at_most: int | None, until_ns: int) -> None:
        self._pace = pace
        self._seed = dice.branch(seed, dice.PACE)
        self._left = at_most if at_most is not None else NEVER
        self._until_ns = until_ns
        self._made = 0
        self._at = 0
        self._block = _EMPTY
        self.peek_ns = NEVER
        self._refill(_FIRST_BLOCK)

    def take_only(self, up_to_ns: int) -> int:
        """The one offset due at or before `up_to_ns`; NEVER, and nothing is taken, where `take` has to look closer."""
        block, following = self._block, self._at + 1
        if following < len(block):
            offset_ns, following_ns = self.peek_ns, block.item(following)
            if offset_ns <= up_to_ns < following_ns:
                self._at = following
                self.peek_ns = following_ns
                return offset_ns
        return NEVER

    def take(self, up_to_ns: int, limit: int) -> Offsets:
        """The offsets due at or before `up_to_ns` and not yet taken, oldest first, at most `limit`."""
        block, at = self._block, self._at
        if self.peek_ns > up_to_ns or limit <= 0 or block is _EMPTY:
            return _EMPTY
        end = at + 1
        if limit > 1 and end < len(block) and block.item(end) <= up_to_ns:
            end = min(int(block.searchsorted(up_to_ns, "right")), at + limit)
        taken = block[at:end]
        if end < len(block):
            self._at = end
            self.peek_ns = block.item(end)
            return taken
        self._refill(_block_size(self._pace))
        if self.peek_ns > up_to_ns or len(taken) == limit or self._block is _EMPTY:
            return taken
        return self._take_on(taken, up_to_ns, limit)

    def _take_on(self, taken: Offsets, up_to_ns: int, limit: int) -> Offsets:
        """Go on over further blocks, each twice as large: the way of a device that has to catch up."""
        pieces = [taken]
        missing = limit - len(taken)
        size = _block_size(self._pace)
        while missing > 0 and self.peek_ns <= up_to_ns and self._block is not _EMPTY:
            block, at = self._block, self._at
            end = at + min(int(block[at:].searchsorted(up_to_ns, "right")), missing)
            pieces.append(block[at:end])
            missing -= end - at
            if end < len(block):
                self._at = end
                self.peek_ns = int(block[end])
            else:
                size = min(2 * size, _LARGEST_BLOCK)
                self._refill(size)
        return np.concatenate(pieces)

    def _refill(self, size: int) -> None:
        """Replace the used-up block by the next one; NEVER if there is none."""
        count = min(size, self._left)
        last_ns = int(self._block[-1]) if len(self._block) else 0
        self._at = 0
        self.peek_ns = NEVER
        self._block = _EMPTY
        if count <= 0:
            return
        block = SHAPES[self._pace.kind](self._pace, self._seed, self._made, count, last_ns)
        self._made += count
        self._left -= count
        if block[-1] >= self._until_ns:
            block = block[: int(block.searchsorted(self._until_ns, "left"))].copy()
            self._left = 0
        if len(block):
            self._block = block
            self.peek_ns = int(block[0])
