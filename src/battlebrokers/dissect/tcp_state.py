"""What is remembered of a TCP connection while its packets are judged, and the names of the judgements.

Shared by the exact rules (`tcp_rules`) and their vectorised short cut (`tcp_ordinary`). Sequence numbers are kept as on
the wire; 0 means that none was seen, as in Wireshark.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from battlebrokers.dissect.round_trips import RoundTrips

RETRANSMISSION = 1 << 0
"""Sent again; set with the fast and the spurious ones too."""
FAST_RETRANSMISSION = 1 << 1
SPURIOUS_RETRANSMISSION = 1 << 2
OUT_OF_ORDER = 1 << 3
DUPLICATE_ACK = 1 << 4
ZERO_WINDOW = 1 << 5
ZERO_WINDOW_PROBE = 1 << 6
ZERO_WINDOW_PROBE_ACK = 1 << 7
WINDOW_FULL = 1 << 8
WINDOW_UPDATE = 1 << 9
KEEP_ALIVE = 1 << 10
KEEP_ALIVE_ACK = 1 << 11
LOST_SEGMENT = 1 << 12
ACKED_UNSEEN = 1 << 13

UNKNOWN_WINDOW = 0xFFFF_FFFF
UNKNOWN_SHIFT = -1
"""No SYN was seen: nobody knows how this side scales its window."""


@dataclass(slots=True)
class Side:
    """One direction of a connection."""

    base: int = -1
    """Sequence number before its first byte; -1 when nothing was seen of it."""
    next: int = 0
    """The sequence number that should come next: the highest end so far."""
    next_ns: int = 0
    """When that was reached."""
    ackable: int = 0
    """How far the other side can acknowledge without acknowledging what is not in the capture."""
    ack: int = 0
    """What it acknowledged last."""
    ack_ns: int = 0
    window: int = UNKNOWN_WINDOW
    """What it offered last, unscaled."""
    shift: int = UNKNOWN_SHIFT
    window_is_unscaled: bool = False
    """Between its SYN and its first other segment."""
    duplicate_acks: int = 0
    """How often it repeated itself; -1 after the other side acknowledged more than was seen of this side."""
    flags: int = 0
    """Judgement of its last packet."""
    trips: RoundTrips = field(default_factory=RoundTrips)
    """From its data to the other side's acknowledgement."""


@dataclass(slots=True)
class Connection:
    """Both directions and what they have in common."""

    sides: tuple[Side, Side] = field(default_factory=lambda: (Side(), Side()))
    syn_ns: int | None = None
    """The latest SYN."""
    initial_rtt_ns: int = 0
    """0 until it is known."""
    completeness: int = 0
    packets: int = 0
