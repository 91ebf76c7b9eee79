"""A made-up middleware for the how-to: notice boards over HTTP, with members, keys, watchers that are called back.

A real server in one file of the standard library: python noticeboard.py HOST PORT.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import secrets
import signal
import sys
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

Headers = dict[str, str]
Answer = tuple[int, Any]


@dataclass
class Board:
    """What was noted, and who wants to know."""

    notes: int = 0
    watchers: dict[str, tuple[str, asyncio.Queue[bytes], asyncio.Task[None]]] = field(default_factory=dict)


@dataclass
class Server:
    """All boards and members."""

    boards: dict[str, Board] = field(default_factory=dict)
    members: dict[str, str] = field(default_factory=dict)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, kept alive, until the other side has had enough."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, ValueError):
            while (request := await read_message(reader)) is not None:
                (method, path, *_), headers, body = request
                status, answer = await self.answer(method, path, headers, body)
                text = b"" if answer is None else json.dumps(answer).encode()
                writer.write(f"HTTP/1.1 {status} x\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)
                await writer.drain()
        writer.close()

    async def answer(self, method: str, path: str, headers: Headers, body: bytes) -> Answer:
        """What a request gets."""
        parts = path.strip("/").split("/")
        if (method, parts) == ("GET", ["status"]):
            return 200, {"boards": len(self.boards)}
        if (method, parts) == ("POST", ["members"]):
            key = secrets.token_hex(8)
            self.members[key] = json.loads(body)["name"]
            return 201, {"member": {"key": key}}
        if headers.get("x-key") not in self.members:
            return 401, {"error": "who are you?"}
        if (method, parts) == ("DELETE", ["members", "me"]):
            del self.members[headers["x-key"]]
            return 204, None
        return await self.about_boards(method, parts, headers, body)

    async def about_boards(self, method: str, parts: list[str], headers: Headers, body: bytes) -> Answer:
        """Boards are made with the first note or the first watcher."""
        if len(parts) < 3 or parts[0] != "boards":
            return 404, {"error": "no such place"}
        board = self.boards.setdefault(parts[1], Board())
        if (method, parts[2:]) == ("POST", ["notes"]):
            board.notes += 1
            note = json.loads(body)["note"]
            told = {
                "event": "noted",
                "items": [{"board": parts[1], "by": self.members[headers["x-key"]], "note": note}],
            }
            for _, queue, _ in board.watchers.values():
                queue.put_nowait(json.dumps(told).encode())
            return 201, {"number": board.notes}
        if (method, parts[2:]) == ("POST", ["watchers"]):
            watcher, url = str(next(self.numbers)), json.loads(body)["call"]
            queue: asyncio.Queue[bytes] = asyncio.Queue()
            board.watchers[watcher] = (url, queue, asyncio.create_task(call(url, queue)))
            return 201, {"watcher": watcher}
        if method == "DELETE" and parts[2] == "watchers" and parts[3] in board.watchers:
            board.watchers.pop(parts[3])[2].cancel()
            return 204, None
        return 404, {"error": "no such thing"}


async def call(url: str, queue: asyncio.Queue[bytes]) -> None:
    """Tell a watcher everything, one after the other, over one connection."""
    place = urlsplit(url)
    assert place.hostname is not None
    while True:
        body = await queue.get()
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection(place.hostname, place.port)
            while True:
                head = f"POST {place.path} HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/json\r\n"
                writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                if await read_message(reader) is None:
                    break
                body = await queue.get()
            writer.close()


async def read_message(reader: asyncio.StreamReader) -> tuple[list[str], Headers, bytes] | None:
    """The first line's words, headers and body of a request or an answer; None at the end."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.split("\r\n")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)
    }
    return first.split(" "), headers, await reader.readexactly(int(headers.get("content-length", "0")))


async def main(host: str, port: int) -> None:
    """Serve until told to end."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    server = await asyncio.start_server(Server().serve, host, port)
    await ended.wait()
    server.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
