"""WebSocket as a link: messages of a contender's dialect, as JSON text or as the payload's own bytes.

Made by the registry, one for each device or client. A WebSocket says nothing of publishing by itself, so a link
without a dialect cannot be opened. It never measures and never reconnects by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from battlebrokers.errors import InputError, LinkError
from battlebrokers.protocols.base import (
    Capabilities,
    Endpoint,
    Failure,
    Held,
    LinkOptions,
    Listener,
    Opened,
    Outgoing,
    TlsFiles,
)
from battlebrokers.protocols.frames import wrap, wrap_all
from battlebrokers.protocols.phrase import plain
from battlebrokers.protocols.script import Script
from battlebrokers.protocols.shutdown import shut_down
from battlebrokers.protocols.talk import Talk, Values
from battlebrokers.protocols.tls import tls_context, why_unreachable
from battlebrokers.protocols.upgrade import Handshake, WebSocketFault, handshake_request, new_key
from battlebrokers.protocols.websocket.connection import WRITE_HIGH_BYTES, Connection
from battlebrokers.protocols.wrapping import Request

_NO_SCRIPT = Script("websocket")
_ANSWERED = {0: "the answer received", 1: "the answer received"}
_UNANSWERED = {0: "handed to the transport"}


class _Honest:
    """What links of the class can do, or one link with its dialect: that depends on whether anybody answers."""

    def __init__(self) -> None:
        self.of_class = Capabilities(
            protocol="websocket",
            qos=frozenset({0, 1}),
            acknowledges=frozenset({0, 1}),
            transports=frozenset({"ws", "wss"}),
            completion=_ANSWERED,
        )

    def __get__(self, link: WebSocketLink | None, owner: type[WebSocketLink]) -> Capabilities:
        if link is None:
            return self.of_class
        script = link.script
        found = replace(
            self.of_class,
            receive=script.listening is not None,
            wildcards=script.listening is not None and script.listening.wildcards,
        )
        if link.answered:
            return found
        return replace(found, qos=frozenset({0}), acknowledges=frozenset(), completion=_UNANSWERED)


class WebSocketLink(Talk):
    """One WebSocket of one device or client."""

    __slots__ = ("_binary", "_typical_bytes", "connection", "reading_paused")

    capabilities = _Honest()

    def __init__(self, endpoint: Endpoint, options: LinkOptions, listener: Listener) -> None:
        super().__init__(endpoint, options, listener, options.script or _NO_SCRIPT)
        publish = self.script.publish
        self._binary = publish is not None and publish.json is None and (publish.text or "").strip() == "${payload}"
        self._typical_bytes = 1024
        self.connection: Connection | None = None
        self.reading_paused = False

    # ── opening and closing ──────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> Opened:
        """Connect, upgrade and log in."""
        options = self.options
        if options.script is None:
            raise LinkError(
                "a WebSocket alone does not say how to publish",
                hint="Choose a contender whose file says how it is spoken to over WebSocket.",
            )
        if self.connection is not None:
            raise LinkError(f"{options.client_id} is already connected")
        place = self._place
        try:
            async with asyncio.timeout(options.connect_timeout_s):
                connection = await self._connect(place)
        except TimeoutError:
            self._discard("it took too long")
            words = f"{place} did not answer within {options.connect_timeout_s:g} s: timeout"
            raise LinkError(words, code=Failure.TIMEOUT) from None
        if self.reading_paused:
            connection.transport.pause_reading()
        try:
            await self.login()
            self._check_there()
        except LinkError as error:
            self._discard("the login failed")
            raise LinkError(f"{place}: {error.message}", hint=error.hint, code=error.code) from error
        except BaseException:
            self._discard("the login was given up")
            raise
        self.ready = True
        return Opened(session_present=False, reason=0, received_ns=self.heard_ns)

    @property
    def _place(self) -> str:
        endpoint = self.endpoint
        return f"{endpoint.transport}://{endpoint.host}:{endpoint.port}{endpoint.path}"

    async def _connect(self, place: str) -> Connection:
        endpoint, options, script = self.endpoint, self.options, self.script
        loop = asyncio.get_running_loop()
        secure = endpoint.transport == "wss"
        key = new_key()
        upgraded: asyncio.Future[None] = loop.create_future()
        self.kept = {}
        known = self.known()
        try:
            headers = {
                name: plain(value).bind(known).require().render({}).decode() for name, value in script.headers.items()
            }
            path = plain(endpoint.path, url=True).bind(known).require().render({}).decode()
            request = handshake_request(
                endpoint.host, endpoint.port, path, key, secure=secure, subprotocol=script.subprotocol, headers=headers
            )
        except InputError as error:
            raise LinkError(error.message, hint=error.hint) from error
        except WebSocketFault as fault:
            raise LinkError(f"cannot connect to {place}: {fault}") from fault
        made = Connection(self, request, Handshake(key, subprotocol=script.subprotocol), upgraded)
        try:
            await loop.create_connection(
                lambda: made,
                endpoint.host,
                endpoint.port,
                ssl=tls_context(options.tls or TlsFiles()) if secure else None,
                server_hostname=endpoint.host if secure else None,
                ssl_handshake_timeout=options.connect_timeout_s if secure else None,
                local_addr=(options.source_address, 0) if options.source_address else None,
            )
        except OSError as error:
            raise why_unreachable(error, place, options.source_address) from error
        try:
            await upgraded
        except LinkError as error:
            hint = "Is that the right port and path, and does it speak WebSocket?"
            raise LinkError(f"{place}: {error.message}", hint=hint, code=error.code) from error
        except BaseException:
            made.drop()
            raise
        return made

    def _check_there(self) -> None:
        if self.connection is None:
            raise LinkError("it accepted the connection and closed it at once", code=Failure.CLOSED)

    def _discard(self, detail: str) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.drop()
        self.drop(detail, Failure.CLOSED)

    async def close(self) -> None:
        """Undo, log out, say goodbye properly and close."""
        await self.leave()
        connection, self.connection = self.connection, None
        if connection is None:
            return
        connection.goodbye()
        self.drop("the link was closed", Failure.CLOSED)
        await shut_down(connection.transport, self._place, "close frame", connection.goodbye_answered)

    def abort(self) -> None:
        """Drop the connection without a word, as a crash would."""
        if self.connection is not None:
            self._discard("the link was closed")

    def lost(self, connection: Connection, detail: str, reason: int) -> None:
        """A connection ended without our asking."""
        if self.connection is not connection:
            return
        self.connection = None
        was_ready = self.ready
        self.drop(detail, reason if reason < 0 else Failure.CLOSED)
        if was_ready:
            self.listener.closed(self, detail, reason)

    def fail(self, detail: str, reason: int) -> None:
        """End the connection and tell so."""
        if self.connection is not None:
            self.connection.end(detail, reason)

    # ── speaking ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def held(self) -> Held:
        """Whether, and why, a message handed over now would have to wait."""
        connection = self.connection
        if self.ready and connection is not None and connection.paused:
            return Held.SOCKET
        return super().held

    def room(self, qos: int) -> int:  # noqa: ARG002 - answers come for every QoS or for none
        """How many messages `publish` takes now; 0 when held."""
        connection = self.connection
        if not self.ready or connection is None or connection.paused:
            return 0
        # While the transport is not paused, one message is always welcome, however large.
        fitting = max(1, (WRITE_HIGH_BYTES - connection.transport.get_write_buffer_size()) // self._typical_bytes)
        return min(fitting, self.left()) if self.answered else fitting

    def say(self, target: bytes, body: bytes) -> None:  # noqa: ARG002 - a WebSocket has no targets
        """Write one message of a dialogue now."""
        if self.connection is None:
            raise LinkError("the link is not open", code=Failure.CLOSED)
        self.connection.write(wrap(body, text=True))

    def send(self, request: Request, values: Sequence[Values], outgoing: Outgoing) -> int:  # noqa: ARG002
        """Write the messages of a batch; returns the bytes."""
        connection = self.connection
        assert connection is not None
        render = request.body.render if request.body is not None else None
        bodies = [render(each) for each in values] if render else [b""] * len(values)
        if not bodies:
            return 0
        self.structure_bytes = len(bodies[-1])
        data = wrap_all(bodies, text=not self._binary)
        written = len(data)
        self._typical_bytes = written // len(bodies) or 1
        connection.transport.write(data)
        return written

    def drained(self) -> None:
        """The write buffer has room again."""
        if self.ready:
            self.listener.writable(self)

    # ── a slow reader ────────────────────────────────────────────────────────────────────────────────────────────

    def pause_reading(self) -> None:
        """Stop taking bytes from the server; stays so when connecting again."""
        self.reading_paused = True
        if self.connection is not None:
            self.connection.transport.pause_reading()

    def resume_reading(self) -> None:
        """Take bytes again."""
        self.reading_paused = False
        if self.connection is not None:
            self.connection.transport.resume_reading()


LINK = WebSocketLink
