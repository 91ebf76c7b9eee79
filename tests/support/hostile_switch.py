"""A switch that behaves, until told otherwise: OpenFlow 1.3 by hand over a real socket, to be survived."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from battlebrokers.sdn.openflow import wire

HELLO, ERROR, ECHO_REQUEST, ECHO_REPLY, FEATURES, FEATURES_REPLY, PACKET_IN = 0, 1, 2, 3, 5, 6, 10
PACKET_OUT, MULTIPART, MULTIPART_REPLY, BARRIER, BARRIER_REPLY = 13, 18, 19, 20, 21

Answer = Callable[[int, int, bytes], bytes | None]


def said(kind: int, body: bytes = b"", xid: int = 0, *, length: int | None = None, version: int = 4) -> bytes:
    """A message, with the length it has or the one it claims."""
    return wire.HEADER.pack(version, kind, 8 + len(body) if length is None else length, xid) + body


def features(switch: int, xid: int) -> bytes:
    return said(FEATURES_REPLY, struct.pack("!QIBB2xII", switch, 0, 254, 0, 0x4F, 0), xid)


def part(kind: int, body: bytes, xid: int, *, more: bool = False) -> bytes:
    return said(MULTIPART_REPLY, struct.pack("!HH4x", kind, int(more)) + body, xid)


def port(number: int, *, down: bool = False) -> bytes:
    return struct.pack("!I4x6s2x16sII6I", number, bytes(6), b"p%d" % (number % 1000), 0, int(down), *[0] * 6)


def packet_in(in_port: int, frame: bytes, *, match_bytes: int = 12) -> bytes:
    match = struct.pack("!HHII4x", 1, match_bytes, 0x80000004, in_port)
    return said(PACKET_IN, struct.pack("!IHBBQ", 0xFFFFFFFF, len(frame), 1, 0, 0) + match + b"\0\0" + frame)


class HostileSwitch:
    """One connection; `instead` may answer a request in another way (None: as usual, b"": not at all)."""

    def __init__(self, switch: int, ports: tuple[int, ...] = (1, 2), instead: Answer | None = None) -> None:
        self.switch, self.ports, self.instead = switch, ports, instead
        self.heard: list[tuple[int, bytes]] = []
        self.is_closed = asyncio.Event()
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter
        self._reading: asyncio.Task[None]

    async def call(self, address: int) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", address)
        self.say(said(HELLO))
        self._reading = asyncio.create_task(self._read())

    def say(self, raw: bytes) -> None:
        with suppress(ConnectionError, RuntimeError):
            self.writer.write(raw)

    async def hang_up(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()

    async def _read(self) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await self.reader.readexactly(8)
                _, kind, length, xid = wire.HEADER.unpack(head)
                body = await self.reader.readexactly(length - 8)
                self.heard.append((kind, body))
                other = self.instead(kind, xid, body) if self.instead else None
                self.say(self._usual(kind, xid, body) if other is None else other)
        self.is_closed.set()

    def _usual(self, kind: int, xid: int, body: bytes) -> bytes:
        if kind == FEATURES:
            return features(self.switch, xid)
        if kind == BARRIER:
            return said(BARRIER_REPLY, xid=xid)
        if kind == ECHO_REQUEST:
            return said(ECHO_REPLY, body, xid)
        if kind == MULTIPART:
            (asked,) = struct.unpack_from("!H", body)
            inside = {wire.DESCRIPTION: bytes(1056), wire.PORTS: b"".join(map(port, self.ports))}
            return part(asked, inside.get(asked, b""), xid)
        return b""


@asynccontextmanager
async def calling(address: int, *switches: HostileSwitch) -> AsyncIterator[None]:
    """All of them call, and hang up in the end."""
    for one in switches:
        await one.call(address)
    try:
        yield
    finally:
        for one in switches:
            await one.hang_up()
