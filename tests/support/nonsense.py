"""Servers that answer everything with random bytes, some of which begin like the real thing."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

OPENINGS = [
    b"", b"\x01\x00\x00\x00\x00\x00\x10\x00\x0a\x00\x0a", b"AMQP\x00\x01\x00\x00", b"HTTP/1.1 400 Bad Request\r\n\r\n",
    b"\x20\x02\x00", b"\x08\x00\x00\x00\x00\x00\x00\xce\x02\x00\x01",
]  # fmt: skip


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        draw = self._draw
        assert self._transport is not None
        for _ in range(3):
            self._transport.sendto(draw.randbytes(draw.randrange(40)), address)
        # Like an answer, as far as its head: right message id, then rubbish.
        self._transport.sendto(b"\x60\x44" + data[2:4] + b"\xf1" + draw.randbytes(5), address)


@contextlib.asynccontextmanager
async def nonsense_server(transport: str, seed: int) -> AsyncIterator[int]:
    """Yields the port."""
    loop = asyncio.get_running_loop()
    if transport == "udp":
        endpoint, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(seed), local_addr=("127.0.0.1", 0))
        yield endpoint.get_extra_info("sockname")[1]
        endpoint.close()
        return
    draw = random.Random(seed)
    writers: list[asyncio.StreamWriter] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.read(1000)
        writer.write(draw.choice(OPENINGS) + draw.randbytes(draw.randrange(1, 3000)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    for writer in writers:
        writer.transport.abort()
