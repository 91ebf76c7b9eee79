"""Clues: where in a stretch of bytes a record or block could begin. Called after damage and to split large files.

A clue is no proof: it is a header whose numbers fit together. Time grows with the bytes, whatever is in them.
"""

from __future__ import annotations

import numpy as np

from battlebrokers.dissect.capture_format import (
    INTERFACE,
    LARGEST_BLOCK_BYTES,
    LARGEST_FRAME_BYTES,
    LARGEST_PACKET_BLOCK_BYTES,
    NANOSECONDS,
    PACKET,
    PACKET_BLOCKS,
    RECORD_HEADER_BYTES,
    SECTION,
    Layout,
    Order,
)
from battlebrokers.dissect.gather import Numbers, Octets, column, numbers_at, rows_at

DAY_S = 86_400
_LARGEST_ORIGINAL_BYTES = 1 << 20
"""On the wire, offloaded segments included."""
_KNOWN_BLOCKS = (*range(INTERFACE, PACKET + 1), 10)
_SECTION_OCTETS = (0x0A, 0x0D, 0x0D, 0x0A)


def subseconds(layout: Layout) -> int:
    """How many units of a pcap file's smaller time field make a second."""
    return 1_000_000_000 if layout.interfaces[0].resolution == NANOSECONDS else 1_000_000


def record_clues(data: Octets, layout: Layout, earliest_s: int, latest_s: int) -> Numbers:
    """Offsets of what could be the header of a pcap record between two times."""
    places = len(data) - RECORD_HEADER_BYTES + 1
    if places <= 0:
        return np.empty(0, dtype=np.int64)
    earliest_s, latest_s = max(0, earliest_s), min(0xFFFF_FFFF, latest_s)
    # The highest byte of a time changes twice a year: it rules most places out at the price of one comparison.
    highest = data[3 if layout.order == "<" else 0 :][:places]
    found = np.flatnonzero((highest >= earliest_s >> 24) & (highest <= latest_s >> 24))
    headers = rows_at(data, found, RECORD_HEADER_BYTES)
    seconds, fraction, captured, original = (column(headers, at, f"{layout.order}u4") for at in (0, 4, 8, 12))
    fits = (seconds >= earliest_s) & (seconds <= latest_s) & (fraction < subseconds(layout))
    fits &= (captured <= LARGEST_FRAME_BYTES) & (captured <= original)
    fits &= (original > 0) & (original <= _LARGEST_ORIGINAL_BYTES)
    return found[fits]


def block_clues(data: Octets, order: Order) -> tuple[Numbers, Numbers]:
    """Offsets of what is a pcapng block by its type and both its lengths, and of what may turn out to be one.

    The latter reach beyond the end of the data.
    """
    places = len(data) - 11
    if places <= 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    small, *zero = (0, 1, 2, 3) if order == "<" else (3, 2, 1, 0)
    known = data[small:][:places] - np.uint8(INTERFACE) <= max(_KNOWN_BLOCKS) - INTERFACE
    section = data[:places] == _SECTION_OCTETS[0]
    for place in zero:
        known &= data[place:][:places] == 0
    for place in (1, 2, 3):
        section &= data[place:][:places] == _SECTION_OCTETS[place]
    found = np.flatnonzero(known | section)
    fronts = rows_at(data, found, 12)
    kind, length = column(fronts, 0, f"{order}u4"), column(fronts, 4, f"{order}u4")
    foreign = "<>".replace(order, "")
    own_magic = column(fronts, 8, f"{order}u4") == 0x1A2B3C4D
    foreign_magic = column(fronts, 8, f"{foreign}u4") == 0x1A2B3C4D
    header = kind == SECTION
    turned = header & foreign_magic
    length[turned] = column(fronts, 4, f"{foreign}u4")[turned]
    packet = np.isin(kind, list(PACKET_BLOCKS))
    fits = (length >= 12) & (length & 3 == 0) & (own_magic | foreign_magic | ~header)
    fits &= length <= np.where(packet, LARGEST_PACKET_BLOCK_BYTES, LARGEST_BLOCK_BYTES)
    fits &= np.isin(kind, _KNOWN_BLOCKS) | header
    end = found + length
    whole = end <= len(data)
    repeated = numbers_at(data, end - 4, f"{order}u4")
    repeated[turned] = numbers_at(data, end - 4, f"{foreign}u4")[turned]
    return found[fits & whole & (repeated == length)], found[fits & ~whole]
