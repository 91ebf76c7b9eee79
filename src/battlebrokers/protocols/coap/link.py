"""CoAP as a link: a publish is a PUT (or what the contender's dialect says), a subscription an observed GET.

Made by the registry, with a socket of its own: message ids are per address, and one for all devices would allow them
265 messages/s together. Servers tell observers the latest state, not every message. It never measures.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from functools import partial

import numpy as np

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import (
    Capabilities,
    Completion,
    Endpoint,
    Failure,
    Granted,
    Held,
    Link,
    LinkOptions,
    Listener,
    Opened,
    Outgoing,
    Subscription,
)
from battlebrokers.protocols.coap.dialogue import Plain, Wrapped, asked, judged, learned_from, wrapped
from battlebrokers.protocols.coap.message import CON, LONGEST_SEGMENT_BYTES, NON, Message
from battlebrokers.protocols.coap.observing import Observation
from battlebrokers.protocols.coap.talk import Exchange, Talk
from battlebrokers.protocols.datagrams import Datagrams, resolve
from battlebrokers.protocols.script import Known, Say
from battlebrokers.protocols.tls import why_unreachable
from battlebrokers.protocols.wheel import wheel_of
from battlebrokers.protocols.wrapping import Request, completed, subscribing, unwrapped, window_of

DEFAULT_WINDOW = 8
"""Requests in flight unless somebody says otherwise; the RFC's own device has one."""
LARGEST_WINDOW = 16_384
PING_PATIENCE_S = 1.0
"""A server need not answer a ping; after this it is taken to be there."""
TOPIC_INVALID, WILDCARDS_NOT_SUPPORTED, SHARES_NOT_SUPPORTED = 0x90, 0xA2, 0x9E


class CoapLink(Link):
    """One CoAP device or client."""

    __slots__ = (
        "_full", "_ids", "_in_flight", "_learned", "_observations", "_opening", "_paused", "_publishes", "_script",
        "_socket", "_talk", "_tokens", "_window", "endpoint", "listener", "options",
    )  # fmt: skip

    capabilities = Capabilities(
        protocol="coap",
        qos=frozenset({0, 1}),
        retain=True,
        wildcards=False,
        acknowledges=frozenset({0, 1}),
        conflates=True,
        transports=frozenset({"udp"}),
        completion={
            0: "2.xx received for a non-confirmable request, which is never repeated",
            1: "2.xx received for a confirmable request, which is repeated until it is acknowledged",
        },
    )

    def __init__(self, endpoint: Endpoint, options: LinkOptions, listener: Listener) -> None:
        super().__init__()
        self.endpoint = endpoint
        self.options = options
        self.listener = listener
        self._window = min(window_of(options.script, options, DEFAULT_WINDOW), LARGEST_WINDOW)
        self._script = completed(options.script)
        self._socket: Datagrams | None = None
        self._talk: Talk | None = None
        self._opening = False
        self._publishes: dict[bytes, Plain | Wrapped] = {}
        self._observations: dict[str, Observation] = {}
        self._tokens: dict[bytes, Observation] = {}
        self._learned: Known = {}
        self._in_flight = 0
        self._full = False
        self._paused = False
        self._ids = itertools.count(1)

    # ── opening and closing ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def _place(self) -> str:
        return f"coap://{self.endpoint.host}:{self.endpoint.port}{self.endpoint.path}"

    async def open(self) -> Opened:
        """Open a socket, ping, and log in as the dialect says."""
        if self._talk is not None:
            raise LinkError(f"{self.options.client_id} is already open")
        source = self.options.source_address
        loop = asyncio.get_running_loop()
        talk = Talk(wheel_of(loop), self.options.answer_timeout_s, self._observed, self._malformed)
        try:
            family, peer = await resolve(self.endpoint.host, self.endpoint.port)
            self._socket = Datagrams(self, family, peer=peer, own=(source, 0) if source else None)
        except OSError as error:
            raise why_unreachable(error, self._place, source) from error
        talk.begin(self._socket)
        self._talk = talk
        self._opening = True
        try:
            await self._knock(talk)
            received_ns = self.listener.now_ns()
            for say in self._script.login if self._script is not None else ():
                await self._step(Request(say, {**self.options.known, **self._learned}, ("id",), url=True), "login")
        except BaseException:
            self.abort()
            raise
        finally:
            self._opening = False
        if self._paused:
            self._socket.pause()
        return Opened(session_present=False, reason=0, received_ns=received_ns)

    async def _knock(self, talk: Talk) -> None:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def finish(_: Exchange, result: int, message: Message | None) -> None:
            if not answer.done():
                # A reset is the answer to a ping; without a message it was the network that said "nobody there".
                answer.set_result(result if message is None and result == Failure.CLOSED else 0)

        talk.ping(finish)
        patience_s = min(PING_PATIENCE_S, self.options.connect_timeout_s)
        try:
            result = await asyncio.wait_for(answer, patience_s)
        except TimeoutError:
            return
        if result:
            raise why_unreachable(ConnectionRefusedError(), self._place)

    async def _step(self, request: Request, what: str) -> Message:
        """Say one step of a dialect and wait for its answer."""
        talk = self._opened()
        answer: asyncio.Future[tuple[int, Message | None]] = asyncio.get_running_loop().create_future()

        def finish(_: Exchange, result: int, message: Message | None) -> None:
            if not answer.done():
                answer.set_result((result, message))

        ask = asked(self.endpoint, request, {"id": str(next(self._ids))})
        talk.ask(CON, ask.code, ask.options, ask.body, finish, encoded=ask.encoded)
        result, message = await answer
        wrong = judged(request.say, result, message)
        if wrong or message is None:
            why = Failure(wrong).name.lower() if wrong < 0 else f"{wrong // 100}.{wrong % 100:02}"
            raise LinkError(f"{self._place} refused {what}: {why}", code=wrong)
        found = learned_from(request.say, message)
        if isinstance(found, str):
            raise LinkError(f"the answer of {self._place} to {what} has no {found!r}", code=Failure.UNEXPECTED)
        self._learned.update(found)
        return message

    def _opened(self) -> Talk:
        if self._talk is None:
            raise LinkError("the link is not open")
        return self._talk

    async def close(self) -> None:
        """Stop observing, log out as the dialect says, close the socket."""
        script = self._script
        if self._talk is not None:
            for observation in self._observations.values():
                observation.cancel()
            for say in script.logout if script is not None else ():
                known = {**self.options.known, **self._learned}
                ask = asked(self.endpoint, Request(say, known, ("id",), url=True), {"id": str(next(self._ids))})
                self._talk.say(ask.code, ask.options, self._talk.fresh_token())
        self.abort()

    def abort(self) -> None:
        """Close the socket without a word; the server notices when a notification finds nobody."""
        talk, self._talk, self._socket = self._talk, None, None
        for observation in self._observations.values():
            observation.stop()
        self._observations.clear()
        self._tokens.clear()
        self._learned.clear()
        self._publishes.clear()
        self._in_flight = 0
        self._full = False
        if talk is not None:
            talk.stop()

    # ── subscriptions ────────────────────────────────────────────────────────────────────────────────────────────

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> list[Granted]:
        """Observe each topic; one that does not exist yet is asked for again until it does."""
        self._opened()
        return list(await asyncio.gather(*(self._subscribe(wanted) for wanted in subscriptions)))

    async def _subscribe(self, wanted: Subscription) -> Granted:
        if wanted.share:
            return Granted(wanted, -1, SHARES_NOT_SUPPORTED)
        if {"+", "#"} & set(wanted.filter.split("/")):
            return Granted(wanted, -1, WILDCARDS_NOT_SUPPORTED)
        listening = self._script.listening if self._script is not None else None
        ask = None
        if listening is not None:
            if listening.way != "observe":
                raise LinkError(f"CoAP clients observe; {listening.way!r} is not for them")
            for say in listening.steps:
                await self._step(self._subscribing(say, wanted.filter), "a subscription")
            if listening.fetch is not None:
                request = self._subscribing(listening.fetch, wanted.filter)
                ask = asked(self.endpoint, request, {"id": str(next(self._ids))})
        options = ask.options if ask is not None else Plain(self.endpoint, wanted.filter).options
        observation = Observation(self._opened(), wanted, options, self._told, self.listener.now_ns)
        known = self._dropped(wanted.filter)
        if known is not None:
            known.cancel()
        self._observations[wanted.filter] = self._tokens[observation.token] = observation
        result = await observation.begin()
        if result < 0:
            self._dropped(wanted.filter)
            raise LinkError(f"{self._place} did not answer GET {wanted.filter}", code=result)
        if result:
            self._dropped(wanted.filter)
            return Granted(wanted, -1, result)
        qos = min(wanted.qos, 1)
        return Granted(wanted, qos, qos)

    def _subscribing(self, say: Say, topic: str) -> Request:
        return subscribing(say, self.options, topic, learned=self._learned, url=True)

    async def unsubscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """Stop observing them."""
        self._opened()
        listening = self._script.listening if self._script is not None else None
        for wanted in subscriptions:
            observation = self._dropped(wanted.filter)
            if observation is not None:
                observation.cancel()
            for say in listening.undo if listening is not None else ():
                await self._step(self._subscribing(say, wanted.filter), "an unsubscription")

    def _observed(self, token: bytes, message: Message) -> bool:
        observation = self._tokens.get(token)
        if observation is not None:
            observation.notified(message)
        return observation is not None

    def _dropped(self, topic: str) -> Observation | None:
        """Forget an observation."""
        observation = self._observations.pop(topic, None)
        if observation is not None:
            self._tokens.pop(observation.token, None)
        return observation

    def _told(self, wanted: Subscription, message: Message, at_ns: int, retained: bool) -> None:
        """A notification is whole."""
        script = self._script
        topic = wanted.filter.encode()
        flags = (min(wanted.qos, 1 if message.kind != NON else 0) << 1) | retained
        found = unwrapped(script.notification, message.payload, topic) if script else [(topic, message.payload)]
        if found is None:
            self._malformed(f"a notification of {len(message.payload)} bytes cannot be read")
            return
        for name, payload in found:
            self.listener.arrived(self, at_ns, flags, name, payload, max(message.size, len(payload)))

    # ── publishing ───────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def held(self) -> Held:
        """Whether, and why, a message handed over now would have to wait."""
        if self._talk is None or self._socket is None:
            return Held.OFFLINE
        if self._socket.waiting:
            return Held.SOCKET
        if self._in_flight >= self._window:
            self._full = True
            return Held.WINDOW
        return Held.NO

    def room(self, qos: int) -> int:  # noqa: ARG002
        """What the window leaves; requests of every QoS are answered."""
        if self._socket is None or self._socket.waiting:
            return 0
        left = self._window - self._in_flight
        if left <= 0:
            self._full = True
        return max(0, left)

    def publish(self, outgoing: Outgoing) -> int:
        """Send one request for each message."""
        talk = self._opened()
        topic = outgoing.topic
        payloads = outgoing.payloads
        count = len(payloads)
        if not count:
            return 0
        publish = self._publishes.get(topic)
        if publish is None:
            if not topic or any(len(part) > LONGEST_SEGMENT_BYTES for part in topic.split(b"/")):
                self._refuse(range(outgoing.first_token, outgoing.first_token + count), TOPIC_INVALID)
                return 0
            publish = self._publishes[topic] = self._publish_of(topic.decode("utf-8", "replace"))
        kind = CON if outgoing.qos else NON
        each = (row.tobytes() for row in payloads) if isinstance(payloads, np.ndarray) else payloads
        written = 0
        self._in_flight += count
        for token, payload in enumerate(each, outgoing.first_token):
            ask = publish.ask(payload, str(next(self._ids)))
            written += talk.ask(
                kind, ask.code, ask.options, ask.body, self._published, encoded=ask.encoded, label=token
            )
            self.structure_bytes, self.url_bytes = len(ask.body), ask.url_bytes
        return written

    def _publish_of(self, topic: str) -> Plain | Wrapped:
        script = self._script
        if script is None or script.publish is None:
            return Plain(self.endpoint, topic)
        return wrapped(self.endpoint, script.publish, self.options, topic, self._learned)

    def _refuse(self, tokens: range, reason: int) -> None:
        tell = partial(self.listener.acknowledged, self, tokens, self.listener.now_ns(), Completion.REFUSED, reason)
        asyncio.get_running_loop().call_soon(tell)

    def _published(self, exchange: Exchange, result: int, message: Message | None) -> None:
        script = self._script
        wrong = judged(script.publish if script is not None else None, result, message)
        self._in_flight -= 1
        completion = Completion.ACKED if not wrong else Completion.REFUSED if wrong > 0 else Completion.FAILED
        self.listener.acknowledged(self, (exchange.label,), self.listener.now_ns(), completion, wrong)
        if self._full and self._in_flight < self._window and self._talk is not None:
            self._full = False
            self.listener.writable(self)

    @property
    def unacknowledged(self) -> int:
        """Requests nobody has answered."""
        return self._in_flight

    # ── what the socket tells ────────────────────────────────────────────────────────────────────────────────────

    def datagrams_came(self, source: Datagrams, datagrams: list[bytes]) -> None:
        """The server speaks."""
        if source is self._socket and self._talk is not None:
            self._talk.came(datagrams)

    def unreachable(self, source: Datagrams, error: OSError) -> None:
        """Nobody is there any more: what was asked has failed, and observations are gone with the server."""
        talk = self._talk
        if source is not self._socket or talk is None:
            return
        talk.fail(Failure.CLOSED)
        if self._talk is talk and not self._opening:
            self.abort()
            self.listener.closed(self, f"{self._place} is not there: {error.strerror}", Failure.CLOSED)

    def drained(self, source: Datagrams) -> None:
        """The socket takes datagrams again."""
        if source is self._socket:
            self.listener.writable(self)

    def _malformed(self, detail: str) -> None:
        self.listener.malformed(self, detail)

    def pause_reading(self) -> None:
        """Read no more; the kernel drops what its buffer cannot hold."""
        self._paused = True
        if self._socket is not None:
            self._socket.pause()

    def resume_reading(self) -> None:
        """Read again."""
        self._paused = False
        if self._socket is not None:
            self._socket.resume()


class ScriptedCoapLink(CoapLink):
    """One that speaks a contender's dialect."""

    __slots__ = ()

    structured = True


LINK = CoapLink
SCRIPTED = ScriptedCoapLink
