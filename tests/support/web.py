"""An HTTP server whose every word is the test's: requests come in whole, answers go out as they are told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from battlebrokers.protocols.base import Endpoint, LinkOptions
from battlebrokers.protocols.http.scripted import ScriptedHttpLink
from battlebrokers.protocols.script import Script
from support.links import Ear

WITHIN_S = 60.0


@dataclass
class Asked:
    """One request, and the way to answer it."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    raw: bytes
    writer: asyncio.StreamWriter
    gone: asyncio.Event

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def answer(self, status: int = 200, body: bytes | str | dict[str, Any] | list[Any] = b"", **headers: str) -> None:
        """A proper answer; header names are written with underscores."""
        content = (
            body.encode()
            if isinstance(body, str)
            else json.dumps(body).encode()
            if not isinstance(body, bytes)
            else body
        )
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        self.send(f"HTTP/1.1 {status} Whatever\r\n{lines}Content-Length: {len(content)}\r\n\r\n".encode() + content)

    def send(self, data: bytes) -> None:
        """Any bytes."""
        self.writer.write(data)

    def chunk(self, data: bytes) -> None:
        """One chunk of a chunked body."""
        self.writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def close(self) -> None:
        """No more."""
        self.writer.close()

    def reset(self) -> None:
        """Gone without a word."""
        self.writer.transport.abort()

    async def ended(self) -> None:
        """Wait until the client has closed."""
        await asyncio.wait_for(self.gone.wait(), WITHIN_S)


class Web:
    """A server of scripted answers."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self._asked: asyncio.Queue[Asked] = asyncio.Queue()
        self._writers: list[asyncio.StreamWriter] = []

    async def asked(self) -> Asked:
        """The next request."""
        return await asyncio.wait_for(self._asked.get(), WITHIN_S)

    async def many(self, count: int) -> list[Asked]:
        """The next requests."""
        return [await self.asked() for _ in range(count)]

    @property
    def waiting(self) -> int:
        return self._asked.qsize()

    @contextlib.asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Web]:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            self._writers.append(writer)
            gone = asyncio.Event()
            with contextlib.suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
                while True:
                    await self._asked.put(await _request(reader, writer, gone))
            gone.set()

        server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for writer in self._writers:
                writer.transport.abort()


async def _request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gone: asyncio.Event) -> Asked:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")[:-2]
    method, target, version = first.split(" ")
    assert version == "HTTP/1.1"
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(method, target, headers, body, head + body, writer, gone)


def scripted_link(web: Web, ear: Ear, script: Script, **options: object) -> ScriptedHttpLink:
    """A client of that server that speaks a dialect; not opened yet."""
    settings = LinkOptions("client-1", script=script, **options)  # type: ignore[arg-type]
    return ScriptedHttpLink(Endpoint("tcp", "127.0.0.1", web.port, "/"), settings, ear)
