"""What went wrong on a TCP connection, by Wireshark's rules; and its round trips. Driven by the pipeline.

Windows of packets go in, in capture order; memory does not grow with the connection. One connection, one analysis:
whoever cuts a reused port into connections begins a new one. Selective acknowledgements are not looked at.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from battlebrokers.dissect import tcp_ordinary, tcp_rules
from battlebrokers.dissect import tcp_state as state
from battlebrokers.dissect.segments import ACK, FIN, RST, SYN, Segments
from battlebrokers.dissect.tcp_state import Connection

_COUNTED = {
    "retransmissions": state.RETRANSMISSION,
    "fast_retransmissions": state.FAST_RETRANSMISSION,
    "spurious_retransmissions": state.SPURIOUS_RETRANSMISSION,
    "out_of_order": state.OUT_OF_ORDER,
    "duplicate_acks": state.DUPLICATE_ACK,
    "zero_windows": state.ZERO_WINDOW,
    "window_full": state.WINDOW_FULL,
    "keep_alives": state.KEEP_ALIVE,
    "lost_segments": state.LOST_SEGMENT,
    "acked_unseen": state.ACKED_UNSEEN,
}
_BLOCK = 16_384
_SHORT, _LONG = 8, 4096
"""How many packets are judged one by one after an unusual one, before the short cut is tried again."""

_FEW = 32
"""So many are faster judged one by one."""

_HAS_SYN, _HAS_SYN_ACK, _HAS_ACK, _HAS_DATA, _HAS_FIN, _HAS_RST = 1, 2, 4, 8, 16, 32


class TcpAnalysis:
    """Push windows; read `counts`, `completeness` and the round trips at any time."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = dict.fromkeys(_COUNTED, 0)
        self._connection = Connection()
        self._one_by_one = _SHORT

    @property
    def completeness(self) -> int:
        """SYN 1, SYN-ACK 2, ACK 4, data 8, FIN 16, RST 32; as Wireshark adds them up."""
        return self._connection.completeness

    @property
    def initial_rtt_ns(self) -> int | None:
        """From the SYN to the first acknowledgement after it."""
        return self._connection.initial_rtt_ns or None

    def rtt_ns(self, side: int) -> int | None:
        """Median time from data of the other side to its acknowledgement by this one."""
        return self._connection.sides[1 - side].trips.median_ns()

    def push(self, window: Segments) -> npt.NDArray[np.uint32]:
        """What each of the next packets is: a bit mask of the names in `tcp_state`."""
        self._complete(window)
        parts = []
        at = 0
        while at < len(window):
            if len(window) - at <= _FEW:
                parts.append(tcp_rules.judge(self._connection, window.part(at, len(window))))
                break
            front = tcp_ordinary.judge_front(self._connection, window.part(at, at + _BLOCK))
            parts.append(front)
            at += len(front)
            if len(front) < _BLOCK and at < len(window):
                # Trouble seldom comes alone: the more often the short cut ends early, the longer the way around it.
                self._one_by_one = _SHORT if len(front) > _LONG else min(2 * self._one_by_one, _LONG)
                parts.append(tcp_rules.judge(self._connection, window.part(at, at + self._one_by_one)))
                at += len(parts[-1])
        result = np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint32)
        if result.any():
            for name, bit in _COUNTED.items():
                self.counts[name] += int(np.count_nonzero(result & bit))
        return result

    def _complete(self, window: Segments) -> None:
        if not len(window):
            return
        connection = self._connection
        flags, size = window.flags, window.size
        seen = connection.completeness
        if not connection.packets and flags[0] & (SYN | ACK) == SYN:
            # Later a SYN begins another connection.
            seen |= _HAS_SYN | (_HAS_DATA if size[0] else 0)
        connection.packets += len(window)
        opening = flags & (SYN | ACK)
        carries = size > 0
        for bit, here in (
            (_HAS_SYN_ACK, opening == SYN | ACK),
            (_HAS_ACK, (opening == ACK) & ~carries),
            (_HAS_DATA, (opening == ACK) & carries),
            (_HAS_FIN, (flags & (FIN | ACK)) == FIN | ACK),
            (_HAS_RST, (flags & RST) != 0),
        ):
            if not seen & bit and here.any():
                seen |= bit
        connection.completeness = seen
