"""A broker that speaks MQTT as far as it must, and then sends its subscribers what nobody can expect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

CONNECT, PUBLISH, PUBACK, PUBREC, PUBREL, SUBSCRIBE, PING = 1, 3, 4, 5, 6, 8, 12
Hostility = Callable[[asyncio.StreamWriter, bytes], Awaitable[None]]
"""Gets a subscriber, and the first message anybody published if that was waited for."""


def varint(number: int) -> bytes:
    """A length as MQTT writes it."""
    made = bytearray()
    while True:
        number, low = divmod(number, 128)
        made.append(low | 0x80 if number else low)
        if not number:
            return bytes(made)


class HostileBroker:
    """Speaks MQTT as far as CONNECT and SUBSCRIBE; then each subscriber gets what the test wants, once."""

    def __init__(self, hostility: Hostility, version: str = "3.1.1", *, once_published: bool = False) -> None:
        self._hostility = hostility
        self._once_published = once_published
        self._subscribers: list[asyncio.StreamWriter] = []
        self._more = b"\x00" if version == "5" else b""
        self.answers: list[bytes] = []
        """Acknowledgements that came."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        """Listen; gives the port."""
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            while True:
                first, body = await _packet(reader)
                if first >> 4 == CONNECT:
                    writer.write(b"\x20" + varint(2 + len(self._more)) + b"\x00\x00" + self._more)
                elif first >> 4 == SUBSCRIBE:
                    writer.write(b"\x90" + varint(3 + len(self._more)) + body[:2] + self._more + b"\x00")
                    self._subscribers.append(writer)
                    if not self._once_published:
                        await self._hostility(writer, b"")
                elif first >> 4 == PUBLISH and self._once_published:
                    self._once_published = False
                    for subscriber in self._subscribers:
                        await self._hostility(subscriber, bytes([first]) + varint(len(body)) + body)
                elif first >> 4 in (PUBACK, PUBREC, PUBREL):
                    self.answers.append(bytes([first]) + body)
                elif first >> 4 == PING:
                    writer.write(b"\xd0\x00")
        except (asyncio.IncompleteReadError, OSError):
            writer.close()


async def _packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    first = (await reader.readexactly(1))[0]
    size = shift = 0
    while True:
        byte = (await reader.readexactly(1))[0]
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return first, await reader.readexactly(size)


def publish_head(payload_bytes: int, qos: int = 0, version: str = "3.1.1") -> bytes:
    """A PUBLISH to `air` up to its payload."""
    variable = b"\x00\x03air" + (b"\x00\x07" if qos else b"") + (b"\x00" if version == "5" else b"")
    return bytes([PUBLISH << 4 | qos << 1]) + varint(len(variable) + payload_bytes) + variable


async def send(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write, and wait until there is room for more."""
    writer.write(data)
    await writer.drain()
