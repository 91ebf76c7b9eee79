"""TCP and UDP headers: ports, sequence numbers, flags, the options of SYNs, and what is left as payload.

Called by `frames`. A header the snap length cut in its options is read as far as it goes.
"""

from __future__ import annotations

import numpy as np

from battlebrokers.dissect.gather import Numbers, column, numbers_at, rows_at
from battlebrokers.dissect.headers import BAD_TCP, BAD_UDP, Headers
from battlebrokers.dissect.segments import SYN

TCP, UDP = 6, 17
_END, _NOTHING, _SEGMENT_SIZE, _WINDOW_SCALE = 0, 1, 2, 3
_LARGEST_SHIFT = 14
_MOST_OPTIONS = 40


def decode_transport(headers: Headers) -> None:
    """Read the TCP and UDP headers of all frames that have one."""
    if len(which := headers.sound(headers.protocol, TCP)):
        _decode_tcp(headers, which)
    if len(which := headers.sound(headers.protocol, UDP)):
        _decode_udp(headers, which)


def _fitting(headers: Headers, which: Numbers, size: int, fault: int) -> Numbers:
    """The frames whose IP payload has room for a header, and of which it was captured."""
    short = headers.payload_at[which] + size > headers.payload_end[which]
    headers.blame(which, short, fault)
    which = which[~short]
    return which[headers.holds(which, headers.payload_at[which], size, fault)]


def _decode_tcp(headers: Headers, which: Numbers) -> None:
    which = _fitting(headers, which, 20, BAD_TCP)
    at = headers.payload_at[which]
    rows = rows_at(headers.data, at, 20)
    headers.source_port[which] = column(rows, 0, ">u2")
    headers.destination_port[which] = column(rows, 2, ">u2")
    headers.seq[which] = column(rows, 4, ">u4")
    headers.ack[which] = column(rows, 8, ">u4")
    headers.flags[which] = rows[:, 13]
    headers.window[which] = column(rows, 14, ">u2")
    header_bytes = (rows[:, 12] >> 4).astype(np.int64) * 4
    wrong = (header_bytes < 20) | (at + header_bytes > headers.payload_end[which])
    if wrong.any():
        headers.blame(which, wrong, BAD_TCP)
        which, at, header_bytes = which[~wrong], at[~wrong], header_bytes[~wrong]
    headers.payload_at[which] = at + header_bytes
    headers.holds(which, at, header_bytes, BAD_TCP)
    opening = (headers.flags[which] & SYN != 0) & (header_bytes > 20)
    if opening.any():
        which, at = which[opening], at[opening]
        end = np.minimum(at + header_bytes[opening], headers.captured_end[which])
        _read_options(headers, which, at + 20, end)


def _read_options(headers: Headers, which: Numbers, at: Numbers, end: Numbers) -> None:
    """One option of every SYN at a time."""
    for _ in range(_MOST_OPTIONS):
        more = at < end
        which, at, end = which[more], at[more], end[more]
        if not len(which):
            return
        kind = numbers_at(headers.data, at, "u1")
        size = numbers_at(headers.data, np.minimum(at + 1, end - 1), "u1")
        size = np.where(kind == _NOTHING, 1, size)
        good = (kind != _END) & (size >= 1 + (kind != _NOTHING)) & (at + size <= end)
        which, at, end, kind, size = which[good], at[good], end[good], kind[good], size[good]
        scale = (kind == _WINDOW_SCALE) & (size == 3)
        shift = numbers_at(headers.data, at[scale] + 2, "u1")
        headers.window_shift[which[scale]] = np.minimum(shift, _LARGEST_SHIFT)
        segment = (kind == _SEGMENT_SIZE) & (size == 4)
        headers.mss[which[segment]] = numbers_at(headers.data, at[segment] + 2, ">u2")
        at = at + size


def _decode_udp(headers: Headers, which: Numbers) -> None:
    which = _fitting(headers, which, 8, BAD_UDP)
    at = headers.payload_at[which]
    rows = rows_at(headers.data, at, 8)
    headers.source_port[which] = column(rows, 0, ">u2")
    headers.destination_port[which] = column(rows, 2, ">u2")
    length = column(rows, 4, ">u2")
    room = headers.payload_end[which] - at
    length = np.where(length == 0, room, length)
    wrong = (length < 8) | (length > room)
    headers.blame(which, wrong, BAD_UDP)
    headers.payload_at[which] = at + 8
    headers.payload_end[which] = np.where(wrong, headers.payload_end[which], at + length)
