"""The notification listener: a small HTTP server that the middleware calls, one for each event loop and address.

Clients that subscribe with a callback get a path of their own. It answers what the dialect says, takes large and
chunked bodies, and answers everything that is no request with 400, what stops half-way with 408.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from http import HTTPStatus
from typing import Protocol, cast
from urllib.parse import quote
from weakref import WeakKeyDictionary

from battlebrokers.errors import LinkError
from battlebrokers.protocols.http.head import Head, Malformed
from battlebrokers.protocols.http.reader import RequestReader
from battlebrokers.protocols.wheel import TICK_S, wheel_of

_BACKLOG = 1024
PATIENCE_S = 30.0
"""How long nothing may come of a request that has begun."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Receiver(Protocol):
    """The client behind a path."""

    paused: bool
    """It answers later."""

    def now_ns(self) -> int:
        """The clock arrivals are stamped with."""

    def called(self, head: Head, body: bytes, at_ns: int, wire_bytes: int) -> bytes:
        """A request came in whole; returns the answer."""

    def postpone(self, caller: Caller) -> None:
        """A request came in while it is paused; `caller.go_on` answers it."""

    def malformed(self, detail: str) -> None:
        """What came is no request."""


class Caller(asyncio.Protocol):
    """One connection of the middleware to us."""

    __slots__ = ("_continued", "_halfway", "_heard_tick", "_reader", "_server", "_transport", "_wheel", "slot")

    _transport: asyncio.Transport

    def __init__(self, server: CallbackServer) -> None:
        self._server = server
        self._reader = RequestReader(server.largest_bytes)
        self._continued = False
        self._wheel = wheel_of(asyncio.get_running_loop())
        self._halfway = False
        """A request has begun, and is not there whole."""
        self._heard_tick = 0
        self.slot = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The middleware is connected."""
        self._transport = cast("asyncio.Transport", transport)
        self._server.callers.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """It left."""
        self._wheel.leave(self)
        self._server.callers.discard(self)

    def data_received(self, data: bytes) -> None:
        """Bytes of requests came in."""
        reader = self._reader
        try:
            if reader.feed(data):
                self._answer()
                return
            self._begun()
            if reader.head is not None and not self._continued:
                self._continued = True
                if reader.head.headers.get("expect", "").lower() == "100-continue":
                    self._transport.write(_CONTINUE)
        except Malformed as fault:
            self._refuse(str(fault))

    def _begun(self) -> None:
        """Part of a request is there: look whether the rest comes."""
        self._halfway = True
        if not self.slot:
            self._wheel.enter(self, self._wheel.tick + int(PATIENCE_S / TICK_S))
        self._heard_tick = self._wheel.tick

    def beat(self) -> int:
        """Called by the wheel: does the request still come?"""
        if not self._halfway or self._transport.is_closing():
            return 0
        due = self._heard_tick + int(PATIENCE_S / TICK_S)
        if self._wheel.tick >= due:
            self._refuse(f"nothing came for {PATIENCE_S:g} s in the middle of it", 408)
            return 0
        return due

    def _answer(self) -> None:
        """Answer this request and those behind it."""
        reader = self._reader
        self._halfway = False
        while not self._transport.is_closing():
            head = reader.head
            assert head is not None
            receiver = self._server.receiver_of(head.target)
            if receiver is not None and receiver.paused:
                self._transport.pause_reading()
                receiver.postpone(self)
                return
            if receiver is None:
                reader.take()
                answer = answer_bytes(404, {}, b"")
            else:
                at_ns = receiver.now_ns()
                wire_bytes = reader.fed_bytes - reader.left_bytes
                answer = receiver.called(head, reader.take(), at_ns, wire_bytes)
            self._transport.write(answer)
            if not head.keeps_alive:
                self._transport.close()
                return
            self._continued = False
            if not reader.next():
                if reader.fed_bytes:
                    self._begun()
                return

    def go_on(self) -> None:
        """Answer what was postponed."""
        if self._transport.is_closing():
            return
        self._transport.resume_reading()
        try:
            self._answer()
        except Malformed as fault:
            self._refuse(str(fault))

    def _refuse(self, detail: str, status: int = 400) -> None:
        head = self._reader.head
        self._transport.write(answer_bytes(status, {"Connection": "close"}, b""))
        self._transport.close()
        receiver = self._server.receiver_of(head.target) if head is not None else None
        # Whose it was cannot be known when not even the path can be read: then the first is told.
        receiver = receiver or next(iter(self._server.receivers.values()), None)
        if receiver is not None:
            receiver.malformed(f"a notification that is no HTTP request: {detail}")

    def drop(self) -> None:
        """Close without a word."""
        self._transport.abort()


def answer_bytes(status: int, headers: dict[str, str], body: bytes) -> bytes:
    """An answer to a notification."""
    phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Other"
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    length = "" if status in (204, 304) else f"Content-Length: {len(body)}\r\n"
    return f"HTTP/1.1 {status} {phrase}\r\n{lines}{length}\r\n".encode("utf-8", "replace") + body


class CallbackServer:
    """Listens on one address while anybody needs it."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._server: asyncio.Server | None = None
        self._starting = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._base = ""
        self.receivers: dict[str, Receiver] = {}
        """By path."""
        self.callers: set[Caller] = set()
        self.largest_bytes = 0
        """The longest notification anybody here expects."""

    async def add(self, receiver: Receiver, name: str) -> tuple[str, str]:
        """Begin to listen for a client; returns its path and its URL."""
        async with self._starting:
            if self._server is None:
                self._server = await self._started()
                port = self._server.sockets[0].getsockname()[1]
                host = f"[{self._address}]" if ":" in self._address else self._address
                self._base = f"http://{host}:{port}"
            # Somebody who still calls a listener of yesterday finds nobody.
            path = f"/{quote(name, safe='')}/{next(self._numbers)}-{secrets.token_hex(4)}"
            self.receivers[path] = receiver
        return path, self._base + path

    async def _started(self) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        try:
            return await loop.create_server(lambda: Caller(self), self._address, 0, backlog=_BACKLOG)
        except OSError as error:
            raise LinkError(f"cannot listen for notifications on {self._address}: {error.strerror}") from error

    def remove(self, path: str) -> None:
        """A client is no longer interested; with the last one the listener goes."""
        self.receivers.pop(path, None)
        if not self.receivers and self._server is not None:
            self._server.close()
            self._server = None
            for caller in list(self.callers):
                caller.drop()

    def receiver_of(self, target: str) -> Receiver | None:
        """Whose path that is; a full URL is understood too (RFC 9112, 3.2.2)."""
        path = target.partition("?")[0]
        if not path.startswith("/"):
            path = "/" + path.partition("://")[2].partition("/")[2]
        return self.receivers.get(path)


_servers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, CallbackServer]] = WeakKeyDictionary()


def callback_server(address: str) -> CallbackServer:
    """The one listener of this loop at the address by which we reach the broker."""
    servers = _servers.setdefault(asyncio.get_running_loop(), {})
    # All of 127.0.0.0/8 is this machine: one listener serves whatever source addresses there are.
    if address.startswith("127."):
        address = "127.0.0.1"
    if address not in servers:
        servers[address] = CallbackServer(address)
    return servers[address]
