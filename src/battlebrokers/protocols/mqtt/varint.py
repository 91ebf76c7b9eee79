"""MQTT's variable byte integer: seven bits a byte, at most four bytes, values up to 268 435 455.

Called by the codec for lengths and identifiers; the receiver's hot loop in `framing` has its own inlined copy.
"""

from __future__ import annotations

from battlebrokers.protocols.mqtt.malformed import MalformedPacket

MAX_VARINT = 268_435_455


def encode_varint(value: int) -> bytes:
    """The shortest encoding of `value`."""
    if not 0 <= value <= MAX_VARINT:
        raise MalformedPacket(f"{value} does not fit a variable byte integer (0 to {MAX_VARINT})")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_varint(data: bytes | bytearray | memoryview, offset: int = 0) -> tuple[int, int] | None:
    """The value at `offset` and the offset behind it, or None while bytes are missing; MQTT 5 forbids long forms."""
    value = 0
    for index, byte in enumerate(data[offset : offset + 4]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if byte == 0 and index:
                raise MalformedPacket("a variable byte integer uses more bytes than it needs")
            return value, offset + index + 1
    if len(data) - offset >= 4:
        raise MalformedPacket("a variable byte integer is longer than four bytes")
    return None
