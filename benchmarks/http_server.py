"""A small HTTP server that says 204 to every request: the one both sides of `links.http_vs_aiohttp` speak to.

A process of its own (`python -m benchmarks.http_server`); it prints its port and serves until its input ends.
"""

from __future__ import annotations

import asyncio
from typing import cast

from benchmarks.serving import serve

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


if __name__ == "__main__":
    serve(Serving)
