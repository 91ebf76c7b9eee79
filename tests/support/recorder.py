"""A relay between a client and a server of this machine that writes down who said what, as turns of a conversation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from support.conversation import CLIENT, SERVER, Turn


@asynccontextmanager
async def recorded(port: int) -> AsyncIterator[tuple[int, list[Turn]]]:
    """Connect to the port it tells; the turns are there as they pass."""
    turns: list[Turn] = []

    async def pass_on(sender: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                turns.append((sender, data))
                writer.write(data)
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pass_on(CLIENT, reader, to_server), pass_on(SERVER, from_server, writer))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], turns
