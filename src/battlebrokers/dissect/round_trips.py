"""Round trips of one direction: from data to the acknowledgement that covers it. Fed by the TCP analysis.

Never measured on what was sent twice, came out of order or lay behind a hole (Karn). Memory is bounded.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

OUTSTANDING = 4096
"""Unacknowledged segments that are remembered; older ones are not measured."""
SAMPLES = 8192
"""More round trips than this are thinned out evenly: every second, every fourth, … is kept."""
_HALF, _MASK = 1 << 31, (1 << 32) - 1


@dataclass(slots=True)
class RoundTrips:
    """Ends of segments are sequence numbers as on the wire."""

    ends: deque[int] = field(default_factory=lambda: deque(maxlen=OUTSTANDING))
    times_ns: deque[int] = field(default_factory=lambda: deque(maxlen=OUTSTANDING))
    count: int = 0
    """Round trips so far, kept or not."""
    stride: int = 1
    samples: list[int] = field(default_factory=list)

    def sent(self, end: int, time_ns: int) -> None:
        """A segment with new data."""
        self.ends.append(end)
        self.times_ns.append(time_ns)

    def forget(self) -> None:
        """What is on its way cannot be measured."""
        self.ends.clear()
        self.times_ns.clear()

    def acknowledged(self, ack: int, time_ns: int) -> None:
        """The newest segment that this covers was a round trip."""
        ends, sent_ns = self.ends, -1
        while ends and (ack - ends[0]) & _MASK < _HALF:
            ends.popleft()
            sent_ns = self.times_ns.popleft()
        if sent_ns >= 0:
            if self.count % self.stride == 0:
                self.samples.append(time_ns - sent_ns)
                self._thin_out()
            self.count += 1

    def exchange(self, end: Numbers, sent_ns: Numbers, ack: Numbers, ack_ns: Numbers, before: Numbers) -> None:
        """Many segments in order, and many acknowledgements; `before` says how many of the segments precede each."""
        held = len(self.ends)
        ends = np.concatenate((np.array(self.ends, dtype=np.int64), end))
        times_ns = np.concatenate((np.array(self.times_ns, dtype=np.int64), sent_ns))
        if not len(ends):
            return
        base = int(ends[0]) - 1
        ends_wide = (ends - base) & _MASK
        acks_wide = ((ack - base + _HALF) & _MASK) - _HALF
        covered = np.searchsorted(ends_wide, acks_wide, side="right")
        done = np.maximum.accumulate(np.concatenate(([0], covered)))
        oldest = before + held - OUTSTANDING
        new = np.flatnonzero((covered > done[:-1]) & (covered > oldest))
        if len(new):
            trips = ack_ns[new] - times_ns[covered[new] - 1]
            numbers = np.arange(self.count, self.count + len(new))
            self.samples.extend(trips[numbers % self.stride == 0].tolist())
            self.count += len(new)
            self._thin_out()
        rest = slice(max(int(done[-1]), len(ends) - OUTSTANDING), None)
        self.ends = deque(ends[rest].tolist(), maxlen=OUTSTANDING)
        self.times_ns = deque(times_ns[rest].tolist(), maxlen=OUTSTANDING)

    def median_ns(self) -> int | None:
        """The median, if there was any."""
        samples = sorted(self.samples)
        middle = len(samples) // 2
        return int((samples[middle] + samples[~middle]) / 2) if samples else None

    def _thin_out(self) -> None:
        while len(self.samples) > SAMPLES:
            self.samples = self.samples[::2]
            self.stride *= 2
