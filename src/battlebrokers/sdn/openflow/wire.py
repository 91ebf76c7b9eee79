"""The parts of OpenFlow 1.3 that are read and made for every packet, without os-ken's objects. Pure.

Used by the channel for framing, packet-ins and packet-outs; everything else is the codec's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

VERSION: Final = 4
HEADER = struct.Struct("!BBHI")
"""Version, type, length, transaction."""
HELLO: Final = 0
ERROR: Final = 1
ECHO_REQUEST: Final = 2
ECHO_REPLY: Final = 3
FEATURES_REPLY: Final = 6
PACKET_IN: Final = 10
FLOW_REMOVED: Final = 11
PORT_STATUS: Final = 12
PACKET_OUT: Final = 13
MULTIPART_REPLY: Final = 19
BARRIER_REPLY: Final = 21

DESCRIPTION: Final = 0
FLOWS: Final = 1
PORT_COUNTERS: Final = 4
GROUP_COUNTERS: Final = 6
GROUPS: Final = 7
METER_COUNTERS: Final = 9
METERS: Final = 10
PORTS: Final = 13
"""Kinds of multipart messages."""

_PACKET_OUT = struct.Struct("!BBHIIIH6x")
_NO_BUFFER = 0xFFFFFFFF
_MATCH_AT = 24
_IN_PORT_FIELD = 0x80000004
_LARGEST_BYTES = 1 << 16


class Framing:
    """Bytes as they come → whole messages; keeps the rest."""

    def __init__(self) -> None:
        self._rest = b""

    def messages(self, data: bytes) -> Iterator[bytes]:
        """Every whole message; a length that cannot be is an end of the conversation (`ValueError`)."""
        data = self._rest + data if self._rest else data
        at, size = 0, len(data)
        self._rest = b""
        while size - at >= HEADER.size:
            _, _, length, _ = HEADER.unpack_from(data, at)
            if length < HEADER.size:
                raise ValueError(f"a message of {length} bytes is shorter than its own header")
            if size - at < length:
                break
            yield data[at : at + length]
            at += length
        self._rest = data[at:]


def read_packet_in(message: bytes) -> tuple[int, bytes] | None:
    """(in_port, frame) of a packet-in; None when it does not add up."""
    if len(message) < _MATCH_AT + 8:
        return None
    (match_bytes,) = struct.unpack_from("!H", message, _MATCH_AT + 2)
    end = _MATCH_AT + match_bytes
    if match_bytes < 4 or end > len(message):
        return None
    at = _MATCH_AT + 4
    while at + 8 <= end:
        (field,) = struct.unpack_from("!I", message, at)
        if field == _IN_PORT_FIELD:
            (in_port,) = struct.unpack_from("!I", message, at + 4)
            frame_at = _MATCH_AT + (match_bytes + 7) // 8 * 8 + 2
            return (in_port, message[frame_at:]) if frame_at <= len(message) else None
        at += 4 + (field & 0xFF)
    return None


def packet_out_head(actions: bytes, frame_bytes: int, in_port: int) -> bytes:
    """All of a packet-out that stands before its frame; the same for every frame of that size."""
    length = _PACKET_OUT.size + len(actions) + frame_bytes
    if length >= _LARGEST_BYTES:
        raise ValueError(f"a packet-out of {length} bytes is more than OpenFlow can say")
    return _PACKET_OUT.pack(VERSION, PACKET_OUT, length, 0, _NO_BUFFER, in_port, len(actions)) + actions


def packet_out(actions: bytes, frame: bytes, in_port: int) -> bytes:
    """A frame to send, with its actions already in bytes."""
    return packet_out_head(actions, len(frame), in_port) + frame
