"""A WebSocket server whose every word is the test's; what it reads is checked by the `websockets` package."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from typing import Any

from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

WITHIN_S = 60.0


def frame(payload: bytes, opcode: int = 1, final: bool = True) -> bytes:
    """One frame as a server sends it."""
    return Frame(Opcode(opcode), payload, fin=final).serialize(mask=False)


def text(document: Any) -> bytes:
    """A JSON text frame."""
    return frame(json.dumps(document).encode())


class WebPeer:
    """One connection as the server sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, subprotocol: str) -> None:
        self.reader = reader
        self.writer = writer
        self.protocol = ServerProtocol(
            subprotocols=[subprotocol] if subprotocol else None,  # type: ignore[list-item]
            max_size=None,
        )
        self.request: Request | None = None
        self._events: list[Any] = []

    async def _event(self) -> Any:
        while not self._events:
            data = await self.reader.read(65_536)
            if data:
                self.protocol.receive_data(data)
            else:
                self.protocol.receive_eof()
            self._events += self.protocol.events_received()
            if not data and not self._events:
                raise ConnectionError("the client has gone")
        return self._events.pop(0)

    async def accept(self, *following: bytes) -> None:
        """Read the upgrade request and agree; `following` goes out in the same piece."""
        self.request = await self._event()
        response = self.protocol.accept(self.request)
        self.protocol.send_response(response)
        assert self.protocol.state is State.OPEN, response
        self.send(b"".join(self.protocol.data_to_send()), *following)

    async def frame(self) -> Frame:
        """The next frame of the client."""
        return await asyncio.wait_for(self._event(), WITHIN_S)

    async def read(self) -> Any:
        """The next JSON text of the client."""
        got = await self.frame()
        assert got.opcode is Opcode.TEXT, got
        return json.loads(got.data)

    def send(self, *pieces: bytes) -> None:
        self.writer.write(b"".join(pieces))

    def tell(self, *documents: Any) -> None:
        """JSON texts, in one piece."""
        self.send(*map(text, documents))

    async def ended(self) -> list[Frame]:
        """Wait until the client has closed; the frames it still said."""
        frames = []
        with contextlib.suppress(ConnectionError):
            while True:
                frames.append(await self.frame())
        return frames

    def close(self) -> None:
        self.writer.close()


class WebServer:
    """Accepts connections and hands them to the test."""

    def __init__(self, subprotocol: str = "", tls: ssl.SSLContext | None = None) -> None:
        self.port = 0
        self._subprotocol = subprotocol
        self._tls = tls
        self._peers: asyncio.Queue[WebPeer] = asyncio.Queue()
        self._all: list[WebPeer] = []

    async def peer(self) -> WebPeer:
        """The next connection, before anything was read."""
        return await asyncio.wait_for(self._peers.get(), WITHIN_S)

    async def accept(self, *following: bytes) -> WebPeer:
        """The next connection, upgraded."""
        peer = await self.peer()
        await peer.accept(*following)
        return peer

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[WebServer]:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            peer = WebPeer(reader, writer, self._subprotocol)
            self._all.append(peer)
            await self._peers.put(peer)

        server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=self._tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for peer in self._all:
                peer.writer.transport.abort()
