"""Wireshark's rules for judging TCP packets (its User's Guide, "TCP Analysis"), packet by packet, exactly.

Called by `tcp_analysis` where the vectorised short cut does not apply. Never looks at payload.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from battlebrokers.dissect import tcp_state as state
from battlebrokers.dissect.segments import ACK, FIN, RST, SYN, Segments
from battlebrokers.dissect.tcp_state import Connection, Side

_HALF, _FULL = 1 << 31, 1 << 32
_CONTROL = SYN | FIN | RST
_FAST_NS = 20_000_000
_REORDERED_NS = 3_000_000
"""How late a segment may come and still count as out of order, while the initial round trip is not known."""
_NO_SCALING = -2


def judge(connection: Connection, window: Segments) -> npt.NDArray[np.uint32]:
    """A bit mask per packet; the connection moves on."""
    result = np.zeros(len(window), dtype=np.uint32)
    rows = zip(
        window.time_ns.tolist(), window.sender.tolist(), window.seq.tolist(), window.ack.tolist(),
        window.flags.tolist(), window.window.tolist(), window.shift.tolist(), window.size.tolist(),
        strict=True,
    )  # fmt: skip
    for row, (time_ns, sender, seq, ack, flags, offered, shift, size) in enumerate(rows):
        own, peer = connection.sides[sender], connection.sides[1 - sender]
        if flags & (SYN | ACK) == SYN and own.base == seq and own.ackable:
            # Sent again: a RST in between may have moved what is expected away from the truth.
            own.next = own.ackable
        _find_bases(own, peer, seq, ack, flags)
        found = _judge_acknowledging(own, peer, seq, ack, flags, offered, size)
        found |= _judge_sending(connection, own, peer, time_ns, seq, flags, size, found)
        _move_on(own, time_ns, seq, ack, flags, offered, size, found)
        _measure(own, peer, time_ns, seq, ack, flags, size, found)
        if flags & SYN:
            _greet(connection, own, peer, time_ns, flags, shift)
        elif flags & ACK:
            own.window_is_unscaled = False
            if connection.syn_ns is not None and not connection.initial_rtt_ns:
                connection.initial_rtt_ns = time_ns - connection.syn_ns
        if found:
            result[row] = found
    return result


def _after(left: int, right: int) -> bool:
    """Whether one sequence number lies behind another."""
    return 0 < (left - right) % _FULL < _HALF


def _find_bases(own: Side, peer: Side, seq: int, ack: int, flags: int) -> None:
    if own.base < 0:
        own.base = seq if flags & SYN else (seq - 1) % _FULL
    if peer.base < 0 and flags & ACK:
        peer.base = (ack - 1) % _FULL


def _judge_acknowledging(own: Side, peer: Side, seq: int, ack: int, flags: int, offered: int, size: int) -> int:
    """What a packet says about windows and about what came from the other side."""
    found = 0
    control = flags & _CONTROL
    repeats = size == 0 and not control and seq == own.next and ack == own.ack
    if size == 1 and seq == own.next and peer.window == 0:
        found = state.ZERO_WINDOW_PROBE
    else:
        if offered == 0 and not control:
            found = state.ZERO_WINDOW
        if own.next and _after(seq, own.next) and not flags & RST:
            found |= state.LOST_SEGMENT
        if size <= 1 and seq == (own.next - 1) % _FULL and not control:
            found |= state.KEEP_ALIVE
        if repeats and offered and offered != own.window:
            found |= state.WINDOW_UPDATE
        if size and not control and peer.shift != state.UNKNOWN_SHIFT:
            shift = 0 if peer.window_is_unscaled else max(peer.shift, 0)
            if (seq + size) % _FULL == (peer.ack + (peer.window << shift)) % _FULL:
                found |= state.WINDOW_FULL
        if repeats and offered == own.window:
            if offered and peer.flags & state.KEEP_ALIVE:
                found |= state.KEEP_ALIVE_ACK
            elif not offered and peer.flags & state.ZERO_WINDOW_PROBE:
                found |= state.ZERO_WINDOW_PROBE_ACK
            elif offered:
                found |= state.DUPLICATE_ACK
                own.duplicate_acks = max(own.duplicate_acks, 0) + 1
    if ack != own.ack:
        own.duplicate_acks = 0
    if peer.ackable and flags & ACK and _after(ack, peer.ackable):
        if _after(peer.next, peer.ackable):
            peer.ackable = peer.next
            found |= state.ACKED_UNSEEN
        else:
            # Everything seen is acknowledged already: say it once, until the other side repeats itself.
            if peer.duplicate_acks == 0:
                found |= state.ACKED_UNSEEN
            peer.duplicate_acks = -1
    return found


def _judge_sending(
    connection: Connection, own: Side, peer: Side, time_ns: int, seq: int, flags: int, size: int, found: int
) -> int:
    """Whether what a packet carries was there before, or should have been."""
    counted = 1 if flags & (SYN | FIN) else 0
    if not (size or counted) or found & state.KEEP_ALIVE:
        return 0
    if size and peer.ack and not _after(seq + size, peer.ack):
        return state.SPURIOUS_RETRANSMISSION | state.RETRANSMISSION
    # One byte back with more behind it: what a zero window probe had carried comes again with the rest.
    resumes = size > 1 and seq == (own.next - 1) % _FULL
    if not own.next or resumes or not _after(own.next, seq):
        return 0
    # After an acknowledgement of what was not seen any count of duplicates may have gone by unseen as well.
    if peer.duplicate_acks not in (0, 1) and peer.ack == seq and 0 <= time_ns - peer.ack_ns < _FAST_NS:
        return state.FAST_RETRANSMISSION | state.RETRANSMISSION
    late_ns = time_ns - own.next_ns
    ends_elsewhere = (seq + size + counted) % _FULL != own.next
    if ends_elsewhere and 0 <= late_ns < (connection.initial_rtt_ns or _REORDERED_NS):
        return state.OUT_OF_ORDER
    return state.RETRANSMISSION


def _move_on(own: Side, time_ns: int, seq: int, ack: int, flags: int, offered: int, size: int, found: int) -> None:
    counted = 1 if flags & (SYN | FIN) else 0
    end = (seq + size + counted) % _FULL
    if not found & state.ZERO_WINDOW_PROBE:
        if not own.next or _after(end, own.next):
            own.next, own.next_ns = end, time_ns
        if not own.ackable or seq == own.ackable:
            own.ackable = own.next
    own.window, own.ack, own.ack_ns, own.flags = offered, ack, time_ns, found


def _measure(own: Side, peer: Side, time_ns: int, seq: int, ack: int, flags: int, size: int, found: int) -> None:
    if found & (state.RETRANSMISSION | state.OUT_OF_ORDER | state.LOST_SEGMENT):
        own.trips.forget()
    if flags & ACK:
        peer.trips.acknowledged(ack, time_ns)
    if size and not found & (
        state.RETRANSMISSION | state.OUT_OF_ORDER | state.LOST_SEGMENT | state.KEEP_ALIVE | state.ZERO_WINDOW_PROBE
    ):
        own.trips.sent((seq + size) % _FULL, time_ns)


def _greet(connection: Connection, own: Side, peer: Side, time_ns: int, flags: int, shift: int) -> None:
    """A SYN: window scaling counts when both offer it."""
    own.window_is_unscaled = True
    if not flags & ACK:
        connection.syn_ns = time_ns
    if shift >= 0:
        own.shift = shift
    if own.shift == state.UNKNOWN_SHIFT:
        own.shift = peer.shift = _NO_SCALING
    elif flags & ACK and peer.shift == _NO_SCALING:
        own.shift = _NO_SCALING
