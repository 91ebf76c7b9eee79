"""The client's side of RFC 6455: masking, taking frames apart, pongs and closing.

Called by links over WebSocket between the transport and what they speak; the HTTP upgrade before it is in `upgrade`.
Pure: bytes in, bytes out, no sockets.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from battlebrokers.protocols.upgrade import WebSocketFault

MAX_FRAME_BYTES = 5 + 268_435_455
"""The longest MQTT packet there can be."""
MAX_MESSAGE_BYTES = 16 * 1024 * 1024

NO_CODE_GIVEN = 1005

_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_FINAL = 0x80
_WHOLE_MESSAGE = _FINAL | _BINARY
_WHOLE_TEXT = _FINAL | _TEXT
_WHOLE = (_WHOLE_TEXT, _WHOLE_MESSAGE)
_MAX_CONTROL_BYTES = 125
_MAX_UNSENT_PONG_BYTES = 65_536
_NUMPY_FROM_BYTES = 1_024
"""Below this size one big integer masks faster than numpy; measured, not guessed."""
_NUMPY_FROM_COUNT = 6


def wrap(data: bytes, mask: bytes | None = None, *, text: bool = False) -> bytes:
    """One masked frame around `data`; `mask` (4 bytes) is random unless given."""
    return _frame(_TEXT if text else _BINARY, data, mask)


def wrap_all(bodies: Sequence[bytes], *, text: bool = False) -> bytes:
    """A masked frame around each, one behind the other; bodies of one size are masked all at once."""
    count = len(bodies)
    if count == 1:
        return _frame(_TEXT if text else _BINARY, bodies[0], None)
    size = len(bodies[0])
    masks = os.urandom(4 * count)
    if count < _NUMPY_FROM_COUNT or any(len(body) != size for body in bodies):
        opcode = _TEXT if text else _BINARY
        return b"".join([_frame(opcode, body, masks[at * 4 : at * 4 + 4]) for at, body in enumerate(bodies)])
    head = _head(_TEXT if text else _BINARY, size)
    begin = len(head) + 4
    out = np.empty((count, begin + size), np.uint8)
    out[:, : len(head)] = np.frombuffer(head, np.uint8)
    mask = np.frombuffer(masks, np.uint8).reshape(count, 4)
    out[:, len(head) : begin] = mask
    content = np.frombuffer(b"".join(bodies), np.uint8).reshape(count, size)
    np.bitwise_xor(content, np.tile(mask, (1, size // 4 + 1))[:, :size], out=out[:, begin:])
    wrapped: bytes = out.tobytes()
    return wrapped


def close_frame(code: int = 1000, mask: bytes | None = None) -> bytes:
    """A masked close frame."""
    return _frame(_CLOSE, code.to_bytes(2, "big"), mask)


def _frame(opcode: int, data: bytes, mask: bytes | None) -> bytes:
    mask = os.urandom(4) if mask is None else mask
    return _head(opcode, len(data)) + mask + _masked(data, mask)


def _head(opcode: int, size: int) -> bytes:
    if size < 126:
        return bytes((_FINAL | opcode, 0x80 | size))
    if size < 65_536:
        return bytes((_FINAL | opcode, 0x80 | 126, size >> 8, size & 0xFF))
    return bytes((_FINAL | opcode, 0x80 | 127)) + size.to_bytes(8, "big")


def _masked(data: bytes, mask: bytes) -> bytes:
    size = len(data)
    if size < _NUMPY_FROM_BYTES:
        pattern = (mask * (size // 4 + 1))[:size]
        return (int.from_bytes(data, "little") ^ int.from_bytes(pattern, "little")).to_bytes(size, "little")
    whole = size - size % 8
    words = np.frombuffer(data, np.uint64, whole // 8) ^ np.frombuffer(mask * 2, np.uint64)[0]
    masked: bytes = words.tobytes()
    return masked + bytes(a ^ b for a, b in zip(data[whole:], mask * 2, strict=False))


Header = tuple[int, bool, int, int]
"""Opcode, whether it ends its message, where its payload begins, and its length."""
Message = tuple[bytes, bool, int]
"""What it says, whether that is text, and its bytes on the wire."""


class _Reader:
    """Reads headers and answers control frames; what becomes of data frames is the subclass's business."""

    __slots__ = ("_fragmented", "_max_bytes", "_replies", "_takes_text", "closed")

    def __init__(self, max_bytes: int, *, takes_text: bool) -> None:
        self._max_bytes = max_bytes
        self._takes_text = takes_text
        self._fragmented = False
        self._replies = b""
        self.closed: int | None = None
        """The close code once the server said goodbye (1005 when it gave none); what follows is ignored."""

    def replies(self) -> bytes:
        """Frames owed to the server since the last call: pongs and the answer to a close. Usually empty."""
        replies, self._replies = self._replies, b""
        return replies

    def _header(self, data: bytes, place: int) -> Header | None:
        """The header at a place, or None while bytes of it are missing."""
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
        if length > self._max_bytes:
            raise WebSocketFault(f"a frame of {length} bytes is larger than {self._max_bytes}", 1009)
        return opcode, final, place, length

    def _check_opcode(self, opcode: int, final: bool, length: int) -> None:
        if opcode >= _CLOSE:
            if opcode > _PONG:
                raise WebSocketFault(f"there is no opcode {opcode}")
            if not final or length > _MAX_CONTROL_BYTES:
                raise WebSocketFault("a control frame is fragmented or longer than 125 bytes")
        elif opcode == _TEXT and not self._takes_text:
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


class Unwrapper(_Reader):
    """For a stream of bytes inside: `feed` returns the data, `replies` what must be sent back.

    Payload bytes are passed on as they come, whole frame or not: MQTT does its own framing, so nothing but
    unfinished headers and control frames is kept.
    """

    __slots__ = ("_buffer", "_data_left")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        super().__init__(max_frame_bytes, takes_text=False)
        self._buffer = b""
        self._data_left = 0

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
                if end <= size and (length < 126) is (begin == place + 2) and length <= self._max_bytes:
                    parts.append(data[begin:end])
                    place = end
                    continue
            after = self._next(data, place)
            if after is None:
                self._buffer = data[place:]
                break
            place = after
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _next(self, data: bytes, place: int) -> int | None:
        """Read one header (and a whole control frame); the place behind it, or None while bytes are missing."""
        header = self._header(data, place)
        if header is None:
            return None
        opcode, final, begin, length = header
        if opcode >= _CLOSE:
            if len(data) < begin + length:
                return None
            self._control(opcode, data[begin : begin + length])
            return begin + length
        self._fragmented = not final
        self._data_left = length
        return begin


class Messages(_Reader):
    """For messages, text or binary: `feed` returns those that are complete, `replies` what must be sent back."""

    __slots__ = ("_buffer", "_is_text", "_parts", "_wanted_bytes", "_wire_bytes", "fault")

    def __init__(self, max_message_bytes: int = MAX_MESSAGE_BYTES) -> None:
        super().__init__(max_message_bytes, takes_text=True)
        self._buffer: bytearray | None = None
        """The beginning of a frame whose rest has not come yet."""
        self._wanted_bytes = 0
        """How long that must become to be worth another look."""
        self._parts: bytearray | None = None
        """The fragments so far of a message in several frames."""
        self._is_text = False
        self._wire_bytes = 0
        self.fault: WebSocketFault | None = None
        """How the server broke the rules, if it did; what follows is ignored."""

    @property
    def halfway(self) -> bool:
        """Whether a message has begun and not ended."""
        return self._buffer is not None or self._fragmented

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete now; what came before a broken frame counts, however the bytes are cut."""
        buffer = self._buffer
        if buffer is not None:
            buffer += data
            if len(buffer) < self._wanted_bytes:
                return []
            data = bytes(buffer)
            self._buffer = None
        found: list[Message] = []
        if self.fault is None:
            try:
                self._take(data, found)
            except WebSocketFault as fault:
                self.fault = fault
        return found

    def _take(self, data: bytes, found: list[Message]) -> None:
        place, size = 0, len(data)
        while place < size and self.closed is None:
            first = data[place]
            # The usual frames first: a whole message with a short length, all here.
            if first in _WHOLE and place + 3 < size and not self._fragmented:
                length, begin = data[place + 1], place + 2
                if length == 126:
                    length, begin = data[place + 2] << 8 | data[place + 3], place + 4
                end = begin + length
                if end <= size and (length < 126) is (begin == place + 2) and length <= self._max_bytes:
                    found.append((data[begin:end], first == _WHOLE_TEXT, end - place))
                    place = end
                    continue
            header = self._header(data, place)
            if header is None or header[2] + header[3] > size:
                self._buffer = bytearray(data[place:])
                self._wanted_bytes = 0 if header is None else header[2] + header[3] - place
                break
            opcode, final, begin, length = header
            end = begin + length
            if opcode >= _CLOSE:
                self._control(opcode, data[begin:end])
            else:
                self._gather(found, opcode, final, data[begin:end], end - place)
            place = end

    def _gather(self, found: list[Message], opcode: int, final: bool, content: bytes, wire_bytes: int) -> None:
        if opcode != _CONTINUATION:
            self._is_text = opcode == _TEXT
            self._wire_bytes = 0
        self._wire_bytes += wire_bytes
        self._fragmented = not final
        if self._parts is not None:
            if len(self._parts) + len(content) > self._max_bytes:
                raise WebSocketFault(f"a message is larger than {self._max_bytes} bytes", 1009)
            self._parts += content
            content = bytes(self._parts) if final else b""
        elif not final:
            self._parts = bytearray(content)
        if final:
            self._parts = None
            found.append((content, self._is_text, self._wire_bytes))


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
