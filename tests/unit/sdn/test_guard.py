"""The guard before REST, in front of an application that says what it got: over real sockets, and asked directly."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from battlebrokers.sdn.rest.admission import LARGEST_BODY_BYTES, Admission
from battlebrokers.sdn.rest.guard import Guard
from battlebrokers.sdn.service import admission_at, answer, open_door

HEAD = b"POST /any HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"


class Behind:
    """Answers how many bytes its request had, in how many messages."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            self.seen.append(("websocket", 0))
            return await send({"type": "websocket.accept"})
        message = await receive()
        assert not message["more_body"]
        self.seen.append(("http", len(message["body"])))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        return await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def served(guard: Any) -> AsyncIterator[int]:
    stopping, ready = asyncio.Event(), asyncio.Event()
    with open_door("127.0.0.1", 0) as door:
        serving = asyncio.create_task(answer(guard, door, stopping, ready.set))
        await asyncio.wait_for(ready.wait(), 30)
        try:
            yield door.getsockname()[1]
        finally:
            stopping.set()
            await serving


async def talked(port: int, parts: Iterable[bytes]) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        return await asyncio.wait_for(reader.read(), 60)
    finally:
        writer.close()


async def test_a_body_in_pieces_is_one_for_the_routes() -> None:
    behind = Behind()
    async with served(Guard(behind, Admission())) as port:
        pieces = [b"1\r\n \r\n"] * 1000 + [b"0\r\n\r\n"]
        told = await talked(port, [HEAD, b"Transfer-Encoding: chunked\r\n\r\n", *pieces])
        assert told.startswith(b"HTTP/1.1 200")
        assert b"x-frame-options: DENY" in told
    assert behind.seen == [("http", 1000)]


async def test_a_body_that_never_ends_is_given_up() -> None:
    behind = Behind()
    async with served(Guard(behind, Admission(), body_within_s=0.05)) as port:
        assert (await talked(port, [HEAD, b"Content-Length: 10\r\n\r\nhalf"])).startswith(b"HTTP/1.1 408")
    assert behind.seen == []


async def test_who_hangs_up_within_a_body_reaches_no_route() -> None:
    behind = Behind()
    async with served(Guard(behind, Admission())) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD + b"Content-Length: 10\r\n\r\nhalf")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        assert (await talked(port, [HEAD, b"\r\n"])).startswith(b"HTTP/1.1 200")
    assert behind.seen == [("http", 0)]


async def test_nothing_is_asked_for_beyond_the_limit() -> None:
    asked, sent = 0, []

    async def receive() -> Message:
        nonlocal asked
        asked += 1
        return {"type": "http.request", "body": b" " * 4096, "more_body": True}

    async def send(message: Message) -> None:
        sent.append(message)

    behind = Behind()
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "scheme": "http", "method": "POST", "path": "/any", "headers": headers}
    await Guard(behind, Admission())(scope, receive, send)
    assert asked == LARGEST_BODY_BYTES // 4096 + 1
    assert sent[0]["status"] == 413
    assert behind.seen == []


@pytest.mark.parametrize(
    ("headers", "passes"),
    [
        ({"host": "localhost", "origin": "http://localhost", "authorization": "Bearer right-token-0123"}, True),
        ({"host": "localhost", "authorization": "Bearer wrong-token-0123"}, False),
        ({"host": "localhost", "origin": "http://evil.example", "authorization": "Bearer right-token-0123"}, False),
        ({"host": "evil.example", "authorization": "Bearer right-token-0123"}, False),
    ],
)
async def test_websockets_are_opened_by_the_same_rules(headers: dict[str, str], passes: bool) -> None:
    behind, sent = Behind(), []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message["type"])

    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "websocket", "scheme": "ws", "path": "/live", "headers": pairs}
    await Guard(behind, Admission(token="right-token-0123"))(scope, receive, send)
    assert (behind.seen, sent) == (([("websocket", 0)], ["websocket.accept"]) if passes else ([], ["websocket.close"]))


def test_the_bound_address_decides_about_the_token() -> None:
    from battlebrokers.sdn.service import Access

    for host, wants in (("127.0.0.1", False), ("localhost", False), ("127.8.0.1", False), ("0.0.0.0", True)):
        with open_door(host, 0) as door:
            assert (admission_at(door, host, Access()).token is not None) is wants
            assert admission_at(door, host, Access("given-0123456789ab")).token == "given-0123456789ab"
    if socket.has_ipv6:
        with open_door("::", 0) as door:
            assert admission_at(door, "::", Access()).token is not None
