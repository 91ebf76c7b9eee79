"""The half of an HTTP link that asks: connections, the in-flight window, publishing, and steps somebody waits for.

Base class of the links, which add opening, closing and subscribing. Each request in flight has a connection of its
own; `publish` never waits, and what cannot be sent is told as failed in a later turn of the loop.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import random
from collections.abc import Mapping
from typing import Any

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Completion, Endpoint, Failure, Held, Link, LinkOptions, Listener, Outgoing
from battlebrokers.protocols.http.connection import Connection, Unreachable, dial, name_of
from battlebrokers.protocols.http.head import Head
from battlebrokers.protocols.http.request import PAYLOAD, Call, Dialect, dialect_of
from battlebrokers.protocols.http.waiting import Answer, NoAnswer, converse
from battlebrokers.protocols.phrase import Value, plain
from battlebrokers.protocols.script import Say, Script
from battlebrokers.protocols.wheel import patience

WINDOW_UNLESS_SAID = 8
"""Requests in flight when neither scenario nor contender says a number: each costs a connection."""
_NOTHING_SAID = 65_535

_PLAIN_PUBLISH = Say("post", "/${topic}", text="${payload}")
PLAIN = Script("http", publish=_PLAIN_PUBLISH)
"""What is said when the contender's file says nothing."""
PLAIN_WITH_LOGIN = Script("http", publish=_PLAIN_PUBLISH, headers={"Authorization": "Basic ${credentials}"})

_FRESH = frozenset({PAYLOAD, "id", "seq"})
"""What is new with each message."""
_NUMBERS = frozenset({"id", "seq"})
_RESOURCE = plain("${topic|flat}")

# As many digits all the time, and hardly ever the same in two processes.
_ids = itertools.count(10**15 + random.randrange(10**14) * 10)


def next_id() -> str:
    """Unique for each request."""
    return str(next(_ids))


def names_of_topic(topic: str) -> dict[str, Value]:
    """What templates may say of a topic."""
    return {"topic": topic, "resource": _RESOURCE.render({"topic": topic}).decode()}


class Sender(Link):
    """What an HTTP link needs to ask."""

    __slots__ = (
        "_bound", "_busy", "_dialect", "_dialling", "_idle", "_kept", "_patience_ticks", "_seq", "_settling",
        "endpoint", "full", "in_flight", "is_open", "listener", "now_ns", "options", "window",
    )  # fmt: skip

    structured = True

    def __init__(self, endpoint: Endpoint, options: LinkOptions, listener: Listener) -> None:
        super().__init__()
        self.endpoint = endpoint
        self.options = options
        self.listener = listener
        self.now_ns = listener.now_ns
        script = options.script or (PLAIN if options.username is None else PLAIN_WITH_LOGIN)
        self._dialect: Dialect = dialect_of(script, endpoint)
        limits = [limit for limit in (options.inflight, script.window) if 0 < limit < _NOTHING_SAID]
        self.window = min(limits, default=WINDOW_UNLESS_SAID)
        self.is_open = False
        self.in_flight = 0
        self.full = False
        """The window was hit, and the listener has not been told of room since."""
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        """Connections with a message in flight."""
        self._dialling: dict[asyncio.Task[None], int] = {}
        """Who makes a connection for a message, and the message's token."""
        self._kept: dict[str, str] = {}
        self._bound: dict[bytes, Call] = {}
        """What publishing says, topic by topic."""
        self._patience_ticks = patience(options.answer_timeout_s)
        self._seq = 0
        self._settling: asyncio.Future[None] | None = None
        """Somebody waits until nothing is in flight."""

    # ── what templates know ──────────────────────────────────────────────────────────────────────────────────────

    def known(self) -> dict[str, Value]:
        """Everything this node's templates may use at any time."""
        options, endpoint = self.options, self.endpoint
        user, password = options.username or "", options.password.reveal() if options.password else ""
        own: dict[str, Value] = {
            "host": endpoint.host,
            "port.http": str(endpoint.port),
            "client_id": options.client_id,
            "username": user,
            "password": password,
            "credentials": base64.b64encode(f"{user}:{password}".encode()).decode(),
        }
        return {**own, **options.known, **self._kept}

    def keep(self, values: Mapping[str, str]) -> None:
        """Values taken from an answer; everything said from now on may use them."""
        if values:
            self._kept.update(values)
            self._bound.clear()

    # ── room ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def held(self) -> Held:
        """Whether, and why, a message handed over now would have to wait."""
        if not self.is_open:
            return Held.OFFLINE
        if self.in_flight >= self.window:
            self.full = True
            return Held.WINDOW
        return Held.NO

    def room(self, qos: int) -> int:  # noqa: ARG002 - every message is answered
        """How many messages `publish` takes now; 0 when held."""
        if not self.is_open:
            return 0
        left = self.window - self.in_flight
        if left <= 0:
            self.full = True
            return 0
        return left

    @property
    def unacknowledged(self) -> int:
        """Messages that wait for their answer."""
        return self.in_flight

    # ── publishing ───────────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, outgoing: Outgoing) -> int:
        """Hand over a batch of at most `room` messages; returns the bytes of their requests."""
        if not self.is_open:
            raise LinkError("the link is not open")
        payloads = outgoing.payloads
        count = len(payloads)
        if count > self.window - self.in_flight:
            raise ValueError(f"a batch of {count} messages was handed over where {self.room(0)} have room")
        call = self._bound.get(outgoing.topic)
        if call is None:
            call = self._bind(outgoing.topic)
        numbered = not _NUMBERS.isdisjoint(call.names)
        token = outgoing.first_token
        if call.names - _FRESH:
            return self._refuse(range(token, token + count))
        written = 0
        values: dict[str, Value] = {}
        for payload in payloads:
            values[PAYLOAD] = payload if isinstance(payload, bytes) else bytes(payload)
            if numbered:
                values["id"] = next_id()
                values["seq"] = str(self._seq)
            self._seq += 1
            data, self.url_bytes, self.structure_bytes = call.render(values)
            written += len(data)
            self._send(data, token)
            token += 1
        if self.in_flight >= self.window:
            self.full = True
        return written

    def _bind(self, topic: bytes) -> Call:
        call = self._dialect.publish
        if call is None:
            raise LinkError("this contender's file does not say how to publish over HTTP")
        name = topic.decode("utf-8", "replace")
        known = {**self.known(), **names_of_topic(name), **self.options.known_of_topics.get(name, {})}
        call = self._bound[topic] = call.bind(known)
        return call

    def _send(self, data: bytes, token: int) -> None:
        self.in_flight += 1
        idle = self._idle
        while idle:
            connection = idle.pop()
            if connection.trusted:
                self._busy.add(connection)
                connection.ask(data, self, self._patience_ticks, token)
                return
            connection.drop()
        task = asyncio.get_running_loop().create_task(self._dial_and_send(data, token))
        # The task takes itself out; it cannot have run yet.
        self._dialling[task] = token

    async def _dial_and_send(self, data: bytes, token: int) -> None:
        failure, connection = Failure.CLOSED, None
        try:
            connection = await self.dialled()
        except Unreachable as error:
            failure = error.failure
        task = asyncio.current_task()
        assert task is not None
        del self._dialling[task]
        if connection is None:
            self._complete(token, self.now_ns(), Completion.FAILED, failure)
            return
        self._busy.add(connection)
        connection.ask(data, self, self._patience_ticks, token)

    def _refuse(self, tokens: range) -> int:
        """A name in the template is not known for this topic: nothing can be sent."""

        def tell() -> None:
            self.listener.acknowledged(self, tokens, self.now_ns(), Completion.FAILED, Failure.UNEXPECTED)

        asyncio.get_running_loop().call_soon(tell)
        return 0

    def answered(self, connection: Connection, head: Head, body: bytes, at_ns: int) -> None:
        """The answer to a message came in."""
        call = self._dialect.publish
        assert call is not None
        self._busy.discard(connection)
        if connection.usable:
            self._idle.append(connection)
        completion, reason, document = call.judge(head, body)
        if call.say.keep and completion is Completion.ACKED:
            self.keep(call.kept(head, document))
        self._complete(connection.token, at_ns, completion, 0 if completion is Completion.ACKED else reason)

    def failed(self, connection: Connection, failure: Failure, detail: str) -> None:  # noqa: ARG002
        """There is no answer to a message."""
        self._busy.discard(connection)
        self._complete(connection.token, self.now_ns(), Completion.FAILED, failure)

    def _complete(self, token: int, at_ns: int, completion: Completion, reason: int) -> None:
        self.in_flight -= 1
        if self._settling is not None and not self.in_flight:
            self._settle()
        self.listener.acknowledged(self, (token,), at_ns, completion, reason)
        if self.full and self.is_open and self.in_flight < self.window:
            self.full = False
            self.listener.writable(self)

    async def settled(self) -> None:
        """Wait until nothing is in flight."""
        if self.in_flight:
            self._settling = asyncio.get_running_loop().create_future()
            await self._settling

    def _settle(self) -> None:
        settling, self._settling = self._settling, None
        if settling is not None and not settling.done():
            settling.set_result(None)

    # ── steps somebody waits for ─────────────────────────────────────────────────────────────────────────────────

    async def dialled(self) -> Connection:
        """A new connection to the server."""
        return await dial(self.endpoint, self.options, lambda wheel: Connection(self, wheel))

    async def say(self, call: Call, known: Mapping[str, Value]) -> tuple[Answer, Any, dict[str, str]]:
        """Ask, wait and judge; returns the answer, its document and what it leaves behind. LinkError in words."""
        answer = await self._converse(self.rendered(call, known))
        completion, reason, document = call.judge(answer.head, answer.body)
        place = f"{name_of(self.endpoint)} answered {call.title}"
        if completion is Completion.REFUSED:
            raise LinkError(f"{place} with status {reason}", hint=_beginning(answer.body), code=reason)
        if completion is Completion.FAILED:
            hint = f"Its answer begins: {_beginning(answer.body)}"
            raise LinkError(f"{place} with something else than the contender's file expects", hint=hint, code=reason)
        kept = call.kept(answer.head, document)
        missing = sorted(call.say.keep.keys() - kept.keys())
        if missing:
            raise LinkError(
                f"{place} without {missing[0]!r} ({call.say.keep[missing[0]]})", code=Failure.UNEXPECTED,
                hint=f"Its answer begins: {_beginning(answer.body)}",
            )  # fmt: skip
        return answer, document, kept

    def rendered(self, call: Call, known: Mapping[str, Value]) -> bytes:
        """The request with everything filled in; LinkError when something is not known."""
        missing = call.missing(*known, "id")
        if missing:
            hint = f"Known then: {', '.join(sorted(known))}."
            raise LinkError(f"${{{missing[0]}}} of {call.title} is not known when it is needed", hint=hint)
        return call.render({**known, "id": next_id()}).data

    async def _converse(self, data: bytes) -> Answer:
        connection = next((idle for idle in self._idle if idle.trusted), None)
        if connection is None:
            connection = await self.dialled()
        else:
            self._idle.remove(connection)
        try:
            answer = await converse(connection, data, self.now_ns, self._patience_ticks)
        except NoAnswer as error:
            place = name_of(self.endpoint)
            words = {Failure.TIMEOUT: f"no answer within {self.options.answer_timeout_s:g} s (timeout)"}
            detail = words.get(error.failure, error.detail)
            raise LinkError(f"{place}: {detail}", code=error.failure) from None
        if connection.usable:
            self._idle.append(connection)
        return answer

    # ── connections ──────────────────────────────────────────────────────────────────────────────────────────────

    def idle_lost(self, connection: Connection) -> None:
        """The server closed a connection nobody used."""
        if connection in self._idle:
            self._idle.remove(connection)

    def drop_all(self) -> None:
        """Drop every connection; what was in flight has failed."""
        self.is_open = False
        connections = [*self._idle, *self._busy]
        tokens = [connection.token for connection in self._busy] + list(self._dialling.values())
        for task in list(self._dialling):
            task.cancel()
        self._idle.clear()
        self._busy.clear()
        self._dialling.clear()
        for connection in connections:
            connection.drop()
        self.in_flight = 0
        self.full = False
        self._settle()
        if tokens:
            self.listener.acknowledged(self, tokens, self.now_ns(), Completion.FAILED, Failure.CLOSED)


def _beginning(body: bytes) -> str:
    return repr(body[:200])[1:] if body else "(no body)"
