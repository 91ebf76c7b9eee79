"""IPv4 and IPv6: addresses, the protocol inside, and where its bytes begin and end. Called by `frames`.

Lengths come from the IP header, so that padding of short frames is no payload; a length of 0 is that of a segment the
network card was to cut up, and means the rest of the frame. Fragments are not put together.
"""

from __future__ import annotations

import numpy as np

from battlebrokers.dissect.gather import Numbers, column, rows_at
from battlebrokers.dissect.headers import BAD_IP, FRAGMENT, Headers

_HOP_BY_HOP, _ROUTING, _FRAGMENT, _AUTHENTICATION, _DESTINATION = 0, 43, 44, 51, 60
_EXTENSIONS = (_HOP_BY_HOP, _ROUTING, _FRAGMENT, _AUTHENTICATION, _DESTINATION, 135, 139, 140)
_MOST_EXTENSIONS = 16
_IPV6_HEADER_BYTES = 40


def decode_ip(headers: Headers) -> None:
    """Read the IP headers of all frames that have one."""
    if len(which := headers.sound(headers.version, 4)):
        _decode_ipv4(headers, which)
    if len(which := headers.sound(headers.version, 6)):
        _decode_ipv6(headers, which)


def _decode_ipv4(headers: Headers, which: Numbers) -> None:
    which = which[headers.holds(which, headers.network_at[which], 20, BAD_IP)]
    at = headers.network_at[which]
    rows = rows_at(headers.data, at, 20)
    first = rows[:, 0].astype(np.int64)
    header_bytes = (first & 15) * 4
    on_wire = headers.wire_end[which] - at
    total = column(rows, 2, ">u2")
    total = np.where(total == 0, on_wire, np.minimum(total, on_wire))
    wrong = (first >> 4 != 4) | (header_bytes < 20) | (total < header_bytes)
    if wrong.any():
        headers.blame(which, wrong, BAD_IP)
        fine = ~wrong
        which, at, rows, header_bytes, total = which[fine], at[fine], rows[fine], header_bytes[fine], total[fine]
    headers.addressed[which] = True
    headers.protocol[which] = rows[:, 9]
    headers.source_low[which] = column(rows, 12, ">u4")
    headers.destination_low[which] = column(rows, 16, ">u4")
    headers.payload_at[which] = at + header_bytes
    headers.payload_end[which] = at + total
    headers.blame(which, column(rows, 6, ">u2") & 0x3FFF != 0, FRAGMENT)


def _decode_ipv6(headers: Headers, which: Numbers) -> None:
    which = which[headers.holds(which, headers.network_at[which], _IPV6_HEADER_BYTES, BAD_IP)]
    at = headers.network_at[which]
    rows = rows_at(headers.data, at, _IPV6_HEADER_BYTES)
    wrong = rows[:, 0] >> 4 != 6
    if wrong.any():
        headers.blame(which, wrong, BAD_IP)
        which, at, rows = which[~wrong], at[~wrong], rows[~wrong]
    headers.addressed[which] = True
    headers.source_high[which] = column(rows, 8, ">u8").view(np.uint64)
    headers.source_low[which] = column(rows, 16, ">u8").view(np.uint64)
    headers.destination_high[which] = column(rows, 24, ">u8").view(np.uint64)
    headers.destination_low[which] = column(rows, 32, ">u8").view(np.uint64)
    length = column(rows, 4, ">u2")
    end = np.where(length == 0, headers.wire_end[which], at + _IPV6_HEADER_BYTES + length)
    headers.payload_end[which] = np.minimum(end, headers.wire_end[which])
    headers.payload_at[which] = at + _IPV6_HEADER_BYTES
    headers.protocol[which] = rows[:, 6]
    for _ in range(_MOST_EXTENSIONS):
        which = which[np.isin(headers.protocol[which], _EXTENSIONS)]
        if not len(which):
            return
        which = _pass_extension(headers, which)
    headers.fault[which] = BAD_IP


def _pass_extension(headers: Headers, which: Numbers) -> Numbers:
    """Go behind the next extension header; returns the frames for which that makes sense."""
    at = headers.payload_at[which]
    inside = at + 8 <= headers.payload_end[which]
    headers.blame(which, ~inside, BAD_IP)
    which, at = which[inside], at[inside]
    whole = headers.holds(which, at, 8, BAD_IP)
    which, at = which[whole], at[whole]
    rows = rows_at(headers.data, at, 8)
    kind, units = headers.protocol[which], rows[:, 1].astype(np.int64)
    size = np.where(kind == _AUTHENTICATION, (units + 2) * 4, (units + 1) * 8)
    fragment = kind == _FRAGMENT
    size[fragment] = 8
    headers.protocol[which] = rows[:, 0]
    behind = at + size
    headers.payload_at[which] = np.minimum(behind, headers.payload_end[which])
    # Offset 0 and nothing more to come: a whole packet that could have been a fragment.
    piece = fragment & (column(rows, 2, ">u2") & 0xFFF9 != 0)
    headers.blame(which, piece, FRAGMENT)
    wrong = behind > headers.payload_end[which]
    headers.blame(which, wrong & ~piece, BAD_IP)
    going_on: Numbers = which[~piece & ~wrong]
    return going_on
