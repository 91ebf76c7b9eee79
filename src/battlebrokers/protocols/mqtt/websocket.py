"""The client's side of RFC 6455 that MQTT over WebSocket needs: masking, unwrapping, pongs and closing.

Called by the link between the transport and the framing; the HTTP upgrade before it is in `handshake`.
Pure: bytes in, bytes out, no sockets.
"""

from __future__ import annotations

import os

import numpy as np

from battlebrokers.protocols.mqtt.framing import MAX_FRAME_BYTES
from battlebrokers.protocols.mqtt.handshake import Handshake, WebSocketFault, handshake_request, new_key

__all__ = ["Handshake", "Unwrapper", "WebSocketFault", "close_frame", "handshake_request", "new_key", "wrap"]

NO_CODE_GIVEN = 1005

_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_FINAL = 0x80
_WHOLE_MESSAGE = _FINAL | _BINARY
_MAX_CONTROL_BYTES = 125
_MAX_UNSENT_PONG_BYTES = 65_536
_NUMPY_FROM_BYTES = 1_024
"""Below this size one big integer masks faster than numpy; measured, not guessed."""


def wrap(data: bytes, mask: bytes | None = None) -> bytes:
    """One masked binary frame around `data`; `mask` (4 bytes) is random unless given."""
    return _frame(_BINARY, data, mask)


def close_frame(code: int = 1000, mask: bytes | None = None) -> bytes:
    """A masked close frame."""
    return _frame(_CLOSE, code.to_bytes(2, "big"), mask)


def _frame(opcode: int, data: bytes, mask: bytes | None) -> bytes:
    mask = os.urandom(4) if mask is None else mask
    size = len(data)
    if size < 126:
        head = bytes((_FINAL | opcode, 0x80 | size))
    elif size < 65_536:
        head = bytes((_FINAL | opcode, 0x80 | 126, size >> 8, size & 0xFF))
    else:
        head = bytes((_FINAL | opcode, 0x80 | 127)) + size.to_bytes(8, "big")
    return head + mask + _masked(data, mask)


def _masked(data: bytes, mask: bytes) -> bytes:
    size = len(data)
    if size < _NUMPY_FROM_BYTES:
        pattern = (mask * (size // 4 + 1))[:size]
        return (int.from_bytes(data, "little") ^ int.from_bytes(pattern, "little")).to_bytes(size, "little")
    whole = size - size % 8
    words = np.frombuffer(data, np.uint64, whole // 8) ^ np.frombuffer(mask * 2, np.uint64)[0]
    masked: bytes = words.tobytes()
    return masked + bytes(a ^ b for a, b in zip(data[whole:], mask * 2, strict=False))


class Unwrapper:
    """Takes WebSocket frames apart: `feed` returns the data, `replies` what must be sent back.

    Payload bytes are passed on as they come, whole frame or not: MQTT does its own framing, so nothing but
    unfinished headers and control frames is kept.
    """

    __slots__ = ("_buffer", "_data_left", "_fragmented", "_max_frame_bytes", "_replies", "closed")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._buffer = b""
        self._data_left = 0
        self._fragmented = False
        self._replies = b""
        self.closed: int | None = None
        """The close code once the server said goodbye (1005 when it gave none); what follows is ignored."""

    def feed(self, data: bytes) -> bytes:
        """The payload bytes of the data frames in `data`; raises WebSocketFault when the server breaks the rules."""
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        parts: list[bytes] = []
        place, size = 0, len(data)
        while place < size and self.closed is None:
            if self._data_left:
                part = data[place : place + self._data_left]
                parts.append(part)
                place += len(part)
                self._data_left -= len(part)
                continue
            # The usual frames first: a whole message with a short length, all here.
            if data[place] == _WHOLE_MESSAGE and place + 3 < size and not self._fragmented:
                length, begin = data[place + 1], place + 2
                if length == 126:
                    length, begin = data[place + 2] << 8 | data[place + 3], place + 4
                end = begin + length
                if end <= size and (length < 126) is (begin == place + 2) and length <= self._max_frame_bytes:
                    parts.append(data[begin:end])
                    place = end
                    continue
            after = self._header(data, place)
            if after is None:
                self._buffer = data[place:]
                break
            place = after
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def replies(self) -> bytes:
        """Frames owed to the server since the last call: pongs and the answer to a close. Usually empty."""
        replies, self._replies = self._replies, b""
        return replies

    def _header(self, data: bytes, place: int) -> int | None:
        """Read one header (and a whole control frame); the place behind it, or None while bytes are missing."""
        if len(data) < place + 2:
            return None
        first, second = data[place], data[place + 1]
        final, opcode, length = bool(first & _FINAL), first & 0x0F, second & 0x7F
        if first & 0x70:
            raise WebSocketFault("a reserved bit is set, but no extension was agreed")
        if second & 0x80:
            raise WebSocketFault("the server masked a frame")
        self._check_opcode(opcode, final, length)
        place += 2
        if length > _MAX_CONTROL_BYTES:
            width, least = (2, 126) if length == 126 else (8, 65_536)
            if len(data) < place + width:
                return None
            length = int.from_bytes(data[place : place + width], "big")
            place += width
            if length < least or length >> 63:
                raise WebSocketFault(f"{length} bytes is no valid length in a {width}-byte field")
        if length > self._max_frame_bytes:
            raise WebSocketFault(f"a frame of {length} bytes is larger than {self._max_frame_bytes}", 1009)
        if opcode >= _CLOSE:
            if len(data) < place + length:
                return None
            self._control(opcode, data[place : place + length])
            return place + length
        self._fragmented = not final
        self._data_left = length
        return place

    def _check_opcode(self, opcode: int, final: bool, length: int) -> None:
        if opcode >= _CLOSE:
            if opcode > _PONG:
                raise WebSocketFault(f"there is no opcode {opcode}")
            if not final or length > _MAX_CONTROL_BYTES:
                raise WebSocketFault("a control frame is fragmented or longer than 125 bytes")
        elif opcode == _TEXT:
            raise WebSocketFault("the server sent text, MQTT is binary [MQTT-6.0.0-1]", 1003)
        elif opcode > _BINARY:
            raise WebSocketFault(f"there is no opcode {opcode}")
        elif (opcode == _CONTINUATION) != self._fragmented:
            raise WebSocketFault("a fragment without a beginning, or a beginning inside a fragmented message")

    def _control(self, opcode: int, payload: bytes) -> None:
        if opcode == _PING:
            if len(self._replies) > _MAX_UNSENT_PONG_BYTES:
                raise WebSocketFault("the server pings faster than it can be answered", 1008)
            self._replies += _frame(_PONG, payload, None)
        elif opcode == _CLOSE:
            self.closed = _close_code(payload)
            self._replies += _frame(_CLOSE, payload[:2], None)


def _close_code(payload: bytes) -> int:
    if not payload:
        return NO_CODE_GIVEN
    code = int.from_bytes(payload[:2], "big")
    valid = 1000 <= code <= 1014 and code not in {1004, 1005, 1006}
    if len(payload) == 1 or not (valid or 3000 <= code <= 4999):
        raise WebSocketFault(f"{code} is no valid close code")
    try:
        payload[2:].decode("utf-8")
    except UnicodeDecodeError:
        raise WebSocketFault("the close reason is not valid UTF-8", 1007) from None
    return code
