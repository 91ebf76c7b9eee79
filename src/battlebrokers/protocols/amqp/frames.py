"""AMQP 0-9-1 frames in bulk: batches of publishes as one bytes object, deliveries read in place.

Pure functions over bytes, used by the connection and the link. Everything rare is encoded and decoded by pamqp.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from pamqp import base, commands, frame, header

from battlebrokers.protocols.base import Bytes2D

FRAME = struct.Struct(">BHI")
LONG_LONG = struct.Struct(">Q")
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_OVERHEAD = 8
END = b"\xce"
HEARTBEAT_FRAME = FRAME.pack(HEARTBEAT, 0, 0) + END

DELIVER = b"\x00\x3c\x00\x3c"
"""The class and method of basic.deliver, as they stand on the wire."""
ACK = b"\x00\x3c\x00\x50"
NACK = b"\x00\x3c\x00\x78"

PERSISTENT = 2
LONGEST_KEY_BYTES = 255
_FLAGS_AT, _PROPERTIES_AT = 12, 14
_HAS_TYPE, _HAS_ENCODING, _HAS_HEADERS, _HAS_MODE = 0x80, 0x40, 0x20, 0x10

_SWAPPED = bytes.maketrans(b"/.", b"./")


FRAME_ERROR = 501


class MalformedFrame(ValueError):  # noqa: N818 - what came, not what we did
    """The broker sent something that is no AMQP; `code` is what it must be told, 0 when it must be told nothing."""

    def __init__(self, detail: str, code: int = 0) -> None:
        super().__init__(detail)
        self.code = code


def key_of_topic(topic: bytes) -> bytes:
    """a/b/c → a.b.c, as RabbitMQ's MQTT plugin does; a dot in a level becomes a slash, so that nothing is lost."""
    return topic.translate(_SWAPPED)


def topic_of_key(key: bytes) -> bytes:
    """a.b.c → a/b/c."""
    return key.translate(_SWAPPED)


def key_of_filter(topic_filter: str) -> str:
    """The binding key of a filter: `+` is `*`, `#` stays."""
    levels = topic_filter.split("/")
    return ".".join("*" if level == "+" else level.replace(".", "/") for level in levels)


def marshalled(channel: int, *methods: base.Frame) -> bytes:
    """Rare frames, one behind the other."""
    return b"".join([frame.marshal(method, channel) for method in methods])


class Envelope:
    """What stands before each payload of one topic: the method, and the content header around the body's size."""

    __slots__ = ("after_size", "before_size", "channel", "key_bytes")

    def __init__(
        self,
        channel: int,
        exchange: str,
        key: str,
        properties: commands.Basic.Properties,
        *,
        mandatory: bool = False,
    ) -> None:
        self.channel = channel
        self.key_bytes = len(key.encode())
        method = commands.Basic.Publish(exchange=exchange, routing_key=key, mandatory=mandatory)
        content = header.ContentHeader(0, 0, properties)
        head = frame.marshal(content, channel)
        # Frame header (7), class and weight (4), then the size.
        self.before_size = frame.marshal(method, channel) + head[:11]
        self.after_size = head[19:]

    def single(self, payload: bytes, frame_max: int) -> bytes:
        """One message; a long body is spread over frames."""
        size = len(payload)
        most = frame_max - FRAME_OVERHEAD
        parts = [self.before_size, LONG_LONG.pack(size), self.after_size]
        for start in range(0, size, most):
            part = payload[start : start + most]
            parts += [FRAME.pack(BODY, self.channel, len(part)), part, END]
        return b"".join(parts)

    def batch(self, payloads: Bytes2D | Sequence[bytes], frame_max: int) -> bytes:
        """All messages of a batch, ready for one write."""
        if (
            isinstance(payloads, np.ndarray)
            and 0 < payloads.shape[1] <= frame_max - FRAME_OVERHEAD
            and len(payloads) > 2
        ):
            count, size = payloads.shape
            before = self.before_size + LONG_LONG.pack(size) + self.after_size + FRAME.pack(BODY, self.channel, size)
            at = len(before)
            rows = np.empty((count, at + size + 1), np.uint8)
            rows[:, :at] = np.frombuffer(before, np.uint8)
            rows[:, at:-1] = payloads
            rows[:, -1] = END[0]
            return rows.tobytes()
        each = (row.tobytes() for row in payloads) if isinstance(payloads, np.ndarray) else payloads
        return b"".join([self.single(payload, frame_max) for payload in each])


def read_delivery(data: bytes, start: int, end: int) -> tuple[int, int, int, bytes]:
    """First character of the consumer's tag, delivery tag, redelivered, routing key of basic.deliver's arguments."""
    try:
        place = start + 1 + data[start]
        first = data[start + 1] if data[start] else 0
        (tag,) = LONG_LONG.unpack_from(data, place)
        redelivered = data[place + 8] & 1
        place += 10 + data[place + 9]
        key_end = place + 1 + data[place]
    except (IndexError, struct.error):
        raise MalformedFrame("basic.deliver ends in the middle") from None
    if key_end > end:
        raise MalformedFrame("basic.deliver is longer than its frame")
    return first, tag, redelivered, data[place + 1 : key_end]


def read_content(data: bytes, start: int, end: int) -> tuple[int, int]:
    """The body's size and the delivery mode (0: none) of a content header."""
    if end - start < _PROPERTIES_AT:
        raise MalformedFrame("a content header ends in the middle")
    (size,) = LONG_LONG.unpack_from(data, start + 4)
    flags = data[start + _FLAGS_AT]
    if not flags & _HAS_MODE:
        return size, 0
    place = start + _PROPERTIES_AT
    try:
        if flags & _HAS_TYPE:
            place += 1 + data[place]
        if flags & _HAS_ENCODING:
            place += 1 + data[place]
        if flags & _HAS_HEADERS:
            place += 4 + int.from_bytes(data[place : place + 4], "big")
        if place < end:
            return size, data[place]
    except IndexError:
        pass
    raise MalformedFrame("a content header's properties are longer than its frame")


def unmarshalled(data: bytes) -> object:
    """One whole frame as pamqp reads it."""
    try:
        return frame.unmarshal(data)[2]
    except Exception as error:  # pamqp answers some nonsense with whatever Python raises on the way
        raise MalformedFrame(f"a frame cannot be read: {error}"[:200]) from error


def foreign(head: bytes) -> str:
    """What these first bytes are, since they are no frame."""
    if head[:4] == b"AMQP":
        return f"it speaks AMQP {'.'.join(str(each) for each in head[5:8])}, not 0-9-1"
    return f"no AMQP frame begins with {head[:8].hex(' ')}"
