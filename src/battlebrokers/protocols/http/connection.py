"""One connection to the server: a request goes out, its answer comes in, then the next; never two at once.

Dialled by links, which take the answers. Every way an answer can fail to come is told as a `Failure`, once, and never
as an exception in the event loop.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Protocol, TypeVar, cast

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Endpoint, Failure, LinkOptions, TlsFiles
from battlebrokers.protocols.http.head import Head, Malformed
from battlebrokers.protocols.http.reader import Reader
from battlebrokers.protocols.tls import tls_context, why_unreachable
from battlebrokers.protocols.wheel import Wheel, wheel_of

TRANSPORTS = frozenset({"tcp", "tls"})
_EARLY_S = 1.0
"""So long before the server closes an idle connection we do not trust it any more."""


class Asker(Protocol):
    """Who gets the answer."""

    def now_ns(self) -> int:
        """The clock answers are stamped with."""

    def answered(self, connection: Connection, head: Head, body: bytes, at_ns: int) -> None:
        """It came in whole; `connection.wire_bytes` is its size, `connection.usable` whether another may follow."""

    def failed(self, connection: Connection, failure: Failure, detail: str) -> None:
        """It did not, and the connection is gone."""


class Owner(Protocol):
    """Who keeps connections nobody uses at the moment."""

    def idle_lost(self, connection: Connection) -> None:
        """The server closed one."""


class Connection(asyncio.Protocol):
    """The protocol of one TCP or TLS connection."""

    __slots__ = (
        "asker", "deadline_tick", "doubted", "owner", "reader", "slot", "token", "transport", "trusted_until_s",
        "usable", "wheel", "wire_bytes",
    )  # fmt: skip

    transport: asyncio.Transport

    def __init__(self, owner: Owner, wheel: Wheel) -> None:
        self.owner = owner
        self.wheel = wheel
        self.reader = Reader()
        self.asker: Asker | None = None
        self.token = 0
        """Which message the request in flight is about; the asker's business."""
        self.slot = self.deadline_tick = 0
        self.doubted = False
        """It was too late for the answer the last time we looked."""
        self.usable = False
        """Whether another request may be sent."""
        self.wire_bytes = 0
        self.trusted_until_s = 0.0
        """When the server will close it if nothing is asked; 0: it did not say."""

    # ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def ask(self, data: bytes, asker: Asker, patience_ticks: int, token: int = 0) -> None:
        """Send a request; the answer, or that there is none, is told to the asker."""
        self.asker = asker
        self.token = token
        wheel = self.wheel
        if not self.slot:
            wheel.enter(self, wheel.tick + patience_ticks)
        self.deadline_tick = wheel.tick + patience_ticks
        self.doubted = False
        # The answer to HEAD tells the length of a body that never comes.
        self.reader.to_head = data.startswith(b"HEAD ")
        self.transport.write(data)

    @property
    def trusted(self) -> bool:
        """Whether the server still listens, as far as it told us."""
        if not self.usable or self.transport.is_closing():
            return False
        return not self.trusted_until_s or asyncio.get_running_loop().time() < self.trusted_until_s

    def beat(self) -> int:
        """Waited too long? Called by the wheel; returns when to look again."""
        now = self.wheel.tick
        if self.asker is None or not self.deadline_tick:
            return 0
        if now < self.deadline_tick:
            return self.deadline_tick
        if not self.doubted:
            # When this very process was stalled, the answer may wait in the socket: read once more, then judge.
            self.doubted = True
            return now + 1
        self.fail(Failure.TIMEOUT, "no answer came in time")
        return 0

    def fail(self, failure: Failure, detail: str) -> None:
        """There will be no answer: end, and tell."""
        asker = self.asker
        self.drop()
        if asker is not None:
            asker.failed(self, failure, detail)

    def drop(self) -> None:
        """Close without a word; nothing of it is told any more."""
        self.asker = None
        self.usable = False
        self.wheel.leave(self)
        self.transport.abort()

    def leave(self) -> None:
        """Close when everything is written; nothing of it is told any more."""
        self.asker = None
        self.usable = False
        self.wheel.leave(self)
        self.transport.close()

    # ── the socket's events ──────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected."""
        self.transport = cast("asyncio.Transport", transport)
        self.usable = True

    def data_received(self, data: bytes) -> None:
        """Bytes came in."""
        asker = self.asker
        if asker is None:
            # Nobody asked. Some servers say 408 before they close an idle connection.
            if self.usable:
                self.drop()
                self.owner.idle_lost(self)
            return
        at_ns = asker.now_ns()
        try:
            complete = self.reader.feed(data)
        except Malformed as fault:
            self.fail(Failure.MALFORMED, str(fault))
            return
        if complete:
            self._finish(asker, at_ns)

    def _finish(self, asker: Asker, at_ns: int) -> None:
        reader = self.reader
        head = reader.head
        assert head is not None
        body = reader.take()
        self.asker = None
        self.wire_bytes = reader.fed_bytes - reader.left_bytes
        if not head.keeps_alive or reader.left_bytes:
            # What follows an answer without a question belongs to nobody.
            self.leave()
        else:
            reader.next()
            promised = head.headers.get("keep-alive")
            self.trusted_until_s = 0.0 if promised is None else _trusted_until_s(promised)
        asker.answered(self, head, body, at_ns)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        asker = self.asker
        was_usable = self.usable
        self.asker = None
        self.usable = False
        self.wheel.leave(self)
        if asker is None:
            if was_usable:
                self.owner.idle_lost(self)
            return
        reader = self.reader
        if exc is None and reader.head is not None and reader.end():
            self.wire_bytes = reader.fed_bytes
            asker.answered(self, reader.head, reader.take(), asker.now_ns())
        elif isinstance(exc, ssl.SSLError):
            asker.failed(self, Failure.TLS, f"TLS failed: {exc.reason or exc}")
        elif reader.fed_bytes:
            asker.failed(self, Failure.TRUNCATED, "the connection was closed in the middle of the answer")
        else:
            asker.failed(self, Failure.CLOSED, "the connection was closed before an answer came")


def _trusted_until_s(promised: str) -> float:
    """The loop's time until which `Keep-Alive: timeout=5` may be trusted; 0 when it says nothing."""
    for word in promised.split(","):
        name, _, value = word.strip().partition("=")
        if name.lower() == "timeout" and value.isascii() and value.isdigit():
            seconds = min(int(value[:9]), 86_400)
            return asyncio.get_running_loop().time() + max(seconds - _EARLY_S, seconds / 2)
    return 0.0


# ── dialling ─────────────────────────────────────────────────────────────────────────────────────────────────────

Made = TypeVar("Made", bound=Connection)


def name_of(endpoint: Endpoint) -> str:
    """The endpoint as a URL, for messages."""
    scheme = "https" if endpoint.transport == "tls" else "http"
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{scheme}://{host}:{endpoint.port}{endpoint.path.rstrip('/')}"


class Unreachable(LinkError):  # noqa: N818 - reads as the sentence it is
    """No connection could be made; `failure` is the kind."""

    def __init__(self, error: LinkError, failure: Failure) -> None:
        super().__init__(error.message, hint=error.hint, code=failure)
        self.failure = failure


async def dial(endpoint: Endpoint, options: LinkOptions, make: Callable[[Wheel], Made]) -> Made:
    """A connection, or Unreachable in words; InputError when TLS files are unusable."""
    loop = asyncio.get_running_loop()
    made = make(wheel_of(loop))
    made.reader.limit_bytes = options.largest_bytes
    secure = endpoint.transport == "tls"
    context = tls_context(options.tls or TlsFiles()) if secure else None
    try:
        async with asyncio.timeout(options.connect_timeout_s):
            await loop.create_connection(
                lambda: made,
                endpoint.host,
                endpoint.port,
                ssl=context,
                server_hostname=endpoint.host if secure else None,
                ssl_handshake_timeout=options.connect_timeout_s + 1 if secure else None,
                local_addr=(options.source_address, 0) if options.source_address else None,
            )
    except TimeoutError:
        words = LinkError(f"{name_of(endpoint)} could not be reached within {options.connect_timeout_s:g} s")
        raise Unreachable(words, Failure.TIMEOUT) from None
    except (OSError, UnicodeError) as error:
        failure = Failure.TLS if isinstance(error, ssl.SSLError) else Failure.CLOSED
        raise Unreachable(why_unreachable(error, name_of(endpoint), options.source_address), failure) from error
    except BaseException:
        # Called off at the very moment it was made.
        if made.usable:
            made.drop()
        raise
    return made
