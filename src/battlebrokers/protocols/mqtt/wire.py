"""MQTT's data types on the wire: integers, UTF-8 strings, binary data.

Called by encode and decode only. Reads and writes are strict: MalformedPacket for anything out of range.
"""

from __future__ import annotations

from battlebrokers.protocols.mqtt.malformed import MalformedPacket
from battlebrokers.protocols.mqtt.varint import decode_varint

MAX_U16 = 0xFFFF


class Reader:
    """Takes values from the front of one packet's body."""

    __slots__ = ("_data", "_offset")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 0

    @property
    def left(self) -> int:
        """How many bytes are unread."""
        return len(self._data) - self._offset

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        end = self._offset + count
        if end > len(self._data):
            raise MalformedPacket(f"the packet ends {end - len(self._data)} bytes too early")
        taken = self._data[self._offset : end]
        self._offset = end
        return taken

    def rest(self) -> bytes:
        """Everything that is left."""
        return self.take(self.left)

    def done(self) -> None:
        """Complain about anything left."""
        if self.left:
            raise MalformedPacket(f"{self.left} bytes follow the end of the packet's content")

    def u8(self) -> int:
        """One byte."""
        return self.take(1)[0]

    def u16(self) -> int:
        """Two bytes."""
        return int.from_bytes(self.take(2), "big")

    def u32(self) -> int:
        """Four bytes."""
        return int.from_bytes(self.take(4), "big")

    def varint(self) -> int:
        """A variable byte integer."""
        found = decode_varint(self._data, self._offset)
        if found is None:
            raise MalformedPacket("the packet ends inside a variable byte integer")
        value, self._offset = found
        return value

    def packet_id(self) -> int:
        """A packet identifier: never 0."""
        value = self.u16()
        if value == 0:
            raise MalformedPacket("the packet identifier is 0")
        return value

    def binary(self) -> bytes:
        """Length and bytes."""
        return self.take(self.u16())

    def text(self) -> str:
        """Length and UTF-8; surrogates and U+0000 are malformed."""
        raw = self.binary()
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise MalformedPacket(f"a string is not valid UTF-8: {error.reason}") from None
        if "\0" in text:
            raise MalformedPacket("a string contains U+0000")
        return text


def u16(value: int, what: str) -> bytes:
    """Two bytes."""
    return _unsigned(value, 2, what)


def u32(value: int, what: str) -> bytes:
    """Four bytes."""
    return _unsigned(value, 4, what)


def packet_id(value: int | None) -> bytes:
    """A packet identifier: never 0."""
    if not value:
        raise MalformedPacket("a packet identifier from 1 to 65535 is missing")
    return _unsigned(value, 2, "the packet identifier")


def binary(value: bytes, what: str) -> bytes:
    """Length and bytes."""
    if len(value) > MAX_U16:
        raise MalformedPacket(f"{what} has {len(value)} bytes, at most {MAX_U16} fit")
    return len(value).to_bytes(2, "big") + value


def text(value: str, what: str) -> bytes:
    """Length and UTF-8."""
    if "\0" in value:
        raise MalformedPacket(f"{what} contains U+0000")
    try:
        raw = value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise MalformedPacket(f"{what} is not valid text: {error.reason}") from None
    return binary(raw, what)


def _unsigned(value: int, width: int, what: str) -> bytes:
    if not 0 <= value < 1 << (8 * width):
        raise MalformedPacket(f"{what} is {value}, but 0 to {(1 << (8 * width)) - 1} fit")
    return value.to_bytes(width, "big")
