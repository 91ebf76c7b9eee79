"""A small HTTP server that says 204 to every request: the one both sides of `links.http_vs_aiohttp` speak to.

A process of its own (`python -m benchmarks.http_server`); it prints its port and serves until its input ends.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import uvloop

HOST = "127.0.0.1"
_ANSWER = b"HTTP/1.1 204 No Content\r\nServer: bench\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n"
_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length: "


class Serving(asyncio.Protocol):
    """One connection; requests come one at a time, in whatever pieces."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        data = self._buffer + data
        end = data.find(_HEAD_END)
        if end < 0:
            self._buffer = data
            return
        head = data[:end].lower()
        at = head.find(_LENGTH)
        length = int(head[at + len(_LENGTH) :].split(b"\r", 1)[0]) if at >= 0 else 0
        if len(data) < end + 4 + length:
            self._buffer = data
            return
        self._buffer = data[end + 4 + length :]
        self._transport.write(_ANSWER)


async def serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Serving, HOST, 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


@contextmanager
def running_server() -> Iterator[int]:
    """Its port, for as long as the block lasts."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.http_server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


if __name__ == "__main__":
    uvloop.run(serve())
