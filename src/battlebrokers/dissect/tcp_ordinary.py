"""The front of a window in which nothing unusual happens, judged by numpy at once; a short cut through `tcp_rules`.

Ordinary is: established, each segment begins where the one before ended, acknowledgements cover what was seen and say
something new. Of the judgements only full windows and window updates occur there.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from battlebrokers.dissect import tcp_state as state
from battlebrokers.dissect.segments import ACK, FIN, RST, SYN, Segments
from battlebrokers.dissect.tcp_state import Connection, Side

Numbers = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]
_HALF, _MASK = 1 << 31, (1 << 32) - 1


def judge_front(connection: Connection, window: Segments) -> npt.NDArray[np.uint32]:
    """Bit masks of the packets up to the first unusual one (often all); the connection moves on past them."""
    if any(side.window_is_unscaled for side in connection.sides) or (
        connection.syn_ns is not None and not connection.initial_rtt_ns
    ):
        return np.zeros(0, dtype=np.uint32)
    ordinary = (window.flags & (SYN | FIN | RST | ACK)) == ACK
    ordinary &= window.window != 0
    views = [_View(connection.sides[sender], window, sender) for sender in (0, 1)]
    for own, peer in (views, views[::-1]):
        ordinary[own.rows] &= own.is_ordinary(peer)
    count = int(ordinary.argmin()) if len(window) and not ordinary.all() else len(window)
    result = np.zeros(len(window), dtype=np.uint32)
    for own, peer in (views, views[::-1]):
        result[own.rows] = own.judgements(peer)
    result = result[:count]
    if count:
        known = [int(view.rows.searchsorted(count)) for view in views]
        for (own, peer), (mine, theirs) in zip((views, views[::-1]), (known, known[::-1]), strict=True):
            own.measure(peer, mine, theirs)
        for view, mine in zip(views, known, strict=True):
            view.move_on(mine, result)
    return result


class _View:
    """One side's packets in a window; valid up to the first unusual one."""

    def __init__(self, side: Side, window: Segments, sender: int) -> None:
        self.side = side
        self.rows = (window.sender == sender).nonzero()[0]
        self.time_ns = window.time_ns[self.rows]
        self.seq = window.seq[self.rows]
        self.size = window.size[self.rows]
        self.preceding: Numbers = self.rows - np.arange(len(self.rows))
        """How many of the peer's packets come before each."""
        self.acks = _after(side.ack, window.ack[self.rows])
        self.windows = _after(side.window, window.window[self.rows])
        self.ends = _after(side.next, (self.seq + self.size) & _MASK)
        """Of each packet, and first what was before them."""
        self.ack, self.end = self.acks[1:], self.ends[1:]
        self.repeats = (self.size == 0) & (self.ack == self.acks[:-1])
        self.same_window = self.windows[1:] == self.windows[:-1]

    def is_ordinary(self, peer: _View) -> Truths:
        """Whether each packet is, given that those before it are."""
        side, before = self.side, self.preceding
        truth: Truths = self.seq == self.ends[:-1]
        truth &= self.end != 0
        truth &= ~(self.repeats & self.same_window)
        truth &= (self.size != 1) | (peer.windows[before] != 0)
        if not side.next:
            truth[:1] = False
        acknowledged = peer.acks[before]
        ahead = (self.end - acknowledged) & _MASK
        truth &= (self.size == 0) | (acknowledged == 0) | ((ahead > 0) & (ahead < _HALF))
        if side.ackable != side.next:
            truth &= self.seq != side.ackable
        if peer.side.ackable:
            in_step = peer.side.ackable == peer.side.next
            beyond = (self.ack - (peer.ends[before] if in_step else peer.side.ackable)) & _MASK
            truth &= (beyond == 0) | (beyond >= _HALF)
        return truth

    def judgements(self, peer: _View) -> npt.NDArray[np.uint32]:
        """Those that change nothing."""
        result = np.where(self.repeats & ~self.same_window, np.uint32(state.WINDOW_UPDATE), np.uint32(0))
        if peer.side.shift != state.UNKNOWN_SHIFT:
            offered = peer.windows[self.preceding] << max(peer.side.shift, 0)
            edge = (peer.acks[self.preceding] + offered) & _MASK
            result[(self.size > 0) & (self.end == edge)] |= state.WINDOW_FULL
        return result

    def measure(self, peer: _View, mine: int, theirs: int) -> None:
        """Round trips of this side's first packets, from those of the peer."""
        if not mine and not self.side.trips.ends:
            return
        speaks = self.size[:mine] > 0
        spoken = np.concatenate(([0], np.cumsum(speaks)))
        self.side.trips.exchange(
            self.end[:mine][speaks], self.time_ns[:mine][speaks],
            peer.ack[:theirs], peer.time_ns[:theirs], spoken[peer.preceding[:theirs]],
        )  # fmt: skip

    def move_on(self, count: int, result: npt.NDArray[np.uint32]) -> None:
        """Past the first packets."""
        if not count:
            return
        side, last = self.side, count - 1
        if np.any(self.ack[:count] != side.ack):
            side.duplicate_acks = 0
        spoke = np.flatnonzero(self.size[:count])
        if len(spoke):
            in_step = side.ackable == side.next
            side.next, side.next_ns = int(self.end[spoke[-1]]), int(self.time_ns[spoke[-1]])
            if in_step:
                side.ackable = side.next
        side.window, side.ack = int(self.windows[count]), int(self.ack[last])
        side.ack_ns, side.flags = int(self.time_ns[last]), int(result[self.rows[last]])


def _after(first: int, values: Numbers) -> Numbers:
    """The values, and before them what was there before."""
    result = np.empty(len(values) + 1, dtype=np.int64)
    result[0], result[1:] = first, values
    return result
