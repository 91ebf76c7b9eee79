"""CoAP as a link: a publish is a PUT (or what the contender's dialect says), a subscription an observed GET.

Made by the registry, with a socket of its own: message ids are per address, and one for all devices would allow them
265 messages/s together. Servers tell observers the latest state, not every message. It never measures.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import (
    Capabilities,
    Endpoint,
    Failure,
    Granted,
    LinkOptions,
    Listener,
    Opened,
    Subscription,
)
from battlebrokers.protocols.coap.dialogue import Plain, asked, judged, learned_from
from battlebrokers.protocols.coap.message import CON, NON, Message
from battlebrokers.protocols.coap.observing import Observation
from battlebrokers.protocols.coap.publisher import Publisher
from battlebrokers.protocols.coap.talk import Exchange, Talk
from battlebrokers.protocols.datagrams import Datagrams, resolve
from battlebrokers.protocols.script import Known, Say, Script
from battlebrokers.protocols.tls import why_unreachable
from battlebrokers.protocols.wheel import wheel_of
from battlebrokers.protocols.wrapping import Request, subscribing, unwrapped

PING_PATIENCE_S = 1.0
"""A server should answer a ping, but some do not: after this it is taken to be there."""
SHORT_PATIENCE_S = 0.05
_never_answer_pings: set[tuple[str, int]] = set()
"""Servers one of our links has waited for in vain; the others wait just for the network to say that nobody is there."""
GOODBYE_TIMEOUT_S = 2.0
WILDCARDS_NOT_SUPPORTED, SHARES_NOT_SUPPORTED = 0xA2, 0x9E


class CoapLink(Publisher):
    """One CoAP device or client."""

    __slots__ = ("_between", "_observations", "_paused", "_places", "_streams", "_tokens")

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
        super().__init__(endpoint, options, listener)
        self._between = False
        """Coming or going: that nobody is there is told to who waits for an answer, not as a loss."""
        self._observations: dict[str, Observation] = {}
        """By topic."""
        self._streams: dict[bytes, Observation] = {}
        """Of a dialect, by what is asked for; several topics may share one."""
        self._tokens: dict[bytes, Observation] = {}
        self._places: dict[str, Known] = {}
        """By topic: what the answers to its subscription gave to remember."""
        self._paused = False

    # ── opening and closing ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def _place(self) -> str:
        return f"coap://{self.endpoint.host}:{self.endpoint.port}{self.endpoint.path}"

    async def open(self) -> Opened:
        """Open a socket, ping, and log in as the dialect says."""
        if self.talk is not None:
            raise LinkError(f"{self.options.client_id} is already open")
        source = self.options.source_address
        loop = asyncio.get_running_loop()
        talk = Talk(wheel_of(loop), self.options.answer_timeout_s, self._observed, self._malformed)
        talk.largest_bytes = min(talk.largest_bytes, self.options.largest_bytes)
        try:
            family, peer = await resolve(self.endpoint.host, self.endpoint.port)
            self.socket = Datagrams(self, family, peer=peer, own=(source, 0) if source else None)
        except OSError as error:
            raise why_unreachable(error, self._place, source) from error
        talk.begin(self.socket)
        self.talk = talk
        self._between = True
        try:
            await self._knock(talk)
            received_ns = self.listener.now_ns()
            for say in self.script.login if self.script is not None else ():
                self.learned.update(await self._step(self._around(say), "login"))
        except BaseException:
            self.abort()
            raise
        finally:
            self._between = False
        if self._paused:
            self.socket.pause()
        return Opened(session_present=False, reason=0, received_ns=received_ns)

    async def _knock(self, talk: Talk) -> None:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def finish(_: Exchange, result: int, message: Message | None) -> None:
            if not answer.done():
                # A reset is the answer to a ping; without a message it was the network that said "nobody there".
                answer.set_result(result if message is None and result == Failure.CLOSED else 0)

        talk.ping(finish)
        server = (self.endpoint.host, self.endpoint.port)
        patience_s = SHORT_PATIENCE_S if server in _never_answer_pings else PING_PATIENCE_S
        try:
            result = await asyncio.wait_for(answer, min(patience_s, self.options.connect_timeout_s))
        except TimeoutError:
            _never_answer_pings.add(server)
            return
        _never_answer_pings.discard(server)
        if result:
            raise why_unreachable(ConnectionRefusedError(), self._place)

    def _around(self, say: Say) -> Request:
        return Request(say, {**self.options.known, **self.learned}, ("id",), url=True)

    async def _step(self, request: Request, what: str) -> Known:
        """Say one step of a dialect and wait for its answer; what it gives to remember."""
        talk = self.opened()
        answer: asyncio.Future[tuple[int, Message | None]] = asyncio.get_running_loop().create_future()

        def finish(_: Exchange, result: int, message: Message | None) -> None:
            if not answer.done():
                answer.set_result((result, message))

        ask = asked(self.endpoint, request, {"id": str(next(self.ids))})
        talk.ask(CON, ask.code, ask.options, ask.body, finish, encoded=ask.encoded)
        result, message = await answer
        wrong = judged(request.say, result, message)
        if wrong or message is None:
            why = Failure(wrong).name.lower() if wrong < 0 else f"{wrong // 100}.{wrong % 100:02}"
            raise LinkError(f"{self._place} refused {what}: {why}", code=wrong)
        found = learned_from(request.say, message)
        if isinstance(found, str):
            raise LinkError(f"the answer of {self._place} to {what} has no {found!r}", code=Failure.UNEXPECTED)
        return found

    async def close(self) -> None:
        """Stop observing, undo and log out as the dialect says, close the socket."""
        talk, script = self.talk, self.script
        if talk is not None:
            for observation in self._tokens.values():
                observation.cancel()
            if script is not None:
                await self._leave(script)
        if self.talk is talk:
            self.abort()

    async def _leave(self, script: Script) -> None:
        """As far as that is answered soon; one no does not keep us from saying the rest."""
        undo = script.listening.undo if script.listening is not None else []
        requests = [self._subscribing(say, topic, known) for topic, known in self._places.items() for say in undo]
        requests += [self._around(say) for say in script.logout]
        self._between = True
        try:
            async with asyncio.timeout(GOODBYE_TIMEOUT_S):
                for request in requests:
                    with contextlib.suppress(LinkError):
                        await self._step(request, "our leaving")
        except TimeoutError:
            pass
        finally:
            self._between = False

    def abort(self) -> None:
        """Close the socket without a word; the server notices when a notification finds nobody."""
        talk, self.talk, self.socket = self.talk, None, None
        for observation in self._tokens.values():
            observation.stop()
        self._observations.clear()
        self._streams.clear()
        self._tokens.clear()
        self._places.clear()
        self.forget()
        if talk is not None:
            talk.stop()

    # ── subscriptions ────────────────────────────────────────────────────────────────────────────────────────────

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> list[Granted]:
        """Observe each topic; one that does not exist yet is asked for again until it does."""
        self.opened()
        return list(await asyncio.gather(*(self._subscribe(wanted) for wanted in subscriptions)))

    async def _subscribe(self, wanted: Subscription) -> Granted:
        if wanted.share:
            return Granted(wanted, -1, SHARES_NOT_SUPPORTED)
        if {"+", "#"} & set(wanted.filter.split("/")):
            return Granted(wanted, -1, WILDCARDS_NOT_SUPPORTED)
        listening = self.script.listening if self.script is not None else None
        ask, address = None, b""
        kept: Known = {}
        if listening is not None:
            if listening.way != "observe":
                raise LinkError(f"CoAP clients observe; {listening.way!r} is not for them")
            for say in listening.steps:
                kept |= await self._step(self._subscribing(say, wanted.filter, kept), "a subscription")
            if listening.fetch is not None:
                request = self._subscribing(listening.fetch, wanted.filter, kept)
                ask = asked(self.endpoint, request, {"id": str(next(self.ids))})
                # The same request but for its id is the same stream: one observation serves all topics.
                address = asked(self.endpoint, request, {"id": "0"}).encoded
        options = ask.options if ask is not None else Plain(self.endpoint, wanted.filter).options
        known = self._dropped(wanted.filter)
        if known is not None:
            known.cancel()
        observation = self._streams.get(address) if address else None
        if observation is None:
            observation = Observation(self.opened(), wanted, options, self._told, self.listener.now_ns)
            observation.quiet = listening is not None and listening.quiet
            self._tokens[observation.token] = observation
            if address:
                self._streams[address] = observation
                observation.address = address
        observation.topics += 1
        self._observations[wanted.filter] = observation
        self._places[wanted.filter] = kept
        result = await observation.begin()
        if result < 0:
            self._dropped(wanted.filter)
            raise LinkError(f"{self._place} did not answer GET {wanted.filter}", code=result)
        if result:
            self._dropped(wanted.filter)
            return Granted(wanted, -1, result)
        qos = min(wanted.qos, 1)
        return Granted(wanted, qos, qos)

    def _subscribing(self, say: Say, topic: str, kept: Known) -> Request:
        return subscribing(say, self.options, topic, learned={**self.learned, **kept}, url=True)

    async def unsubscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """Stop observing them."""
        self.opened()
        listening = self.script.listening if self.script is not None else None
        for wanted in subscriptions:
            observation = self._dropped(wanted.filter)
            if observation is not None:
                observation.cancel()
            kept = self._places.pop(wanted.filter, None)
            for say in listening.undo if listening is not None and kept is not None else ():
                await self._step(self._subscribing(say, wanted.filter, kept or {}), "an unsubscription")

    def _observed(self, token: bytes, message: Message) -> bool:
        observation = self._tokens.get(token)
        if observation is not None:
            observation.notified(message)
        return observation is not None

    def _dropped(self, topic: str) -> Observation | None:
        """Forget a topic; the observation that nobody else needs, to be cancelled."""
        observation = self._observations.pop(topic, None)
        if observation is None:
            return None
        observation.topics -= 1
        if observation.topics:
            return None
        self._tokens.pop(observation.token, None)
        self._streams.pop(observation.address, None)
        return observation

    def _told(self, wanted: Subscription, message: Message, at_ns: int, retained: bool) -> None:
        """A notification is whole."""
        script = self.script
        topic = wanted.filter.encode()
        flags = (min(wanted.qos, 1 if message.kind != NON else 0) << 1) | retained
        found = unwrapped(script.notification, message.payload, topic) if script else [(topic, message.payload)]
        if found is None and not message.payload:
            # A sign of life: there is nothing in it to be misread.
            return
        if found is None:
            self._malformed(f"a notification of {len(message.payload)} bytes cannot be read", Failure.UNEXPECTED)
            return
        for name, payload in found:
            self.listener.arrived(self, at_ns, flags, name, payload, max(message.size, len(payload)))

    # ── what the socket tells ────────────────────────────────────────────────────────────────────────────────────

    def datagrams_came(self, source: Datagrams, datagrams: list[bytes]) -> None:
        """The server speaks."""
        if source is self.socket and self.talk is not None:
            self.talk.came(datagrams)

    def unreachable(self, source: Datagrams, error: OSError) -> None:
        """Nobody is there any more: what was asked has failed, and observations are gone with the server."""
        talk = self.talk
        if source is not self.socket or talk is None:
            return
        if self._between:
            talk.fail(Failure.CLOSED)
            return
        # Offline first: who is told of a failure may want to publish at once.
        self.talk = self.socket = None
        talk.fail(Failure.CLOSED)
        talk.stop()
        self.abort()
        self.listener.closed(self, f"{self._place} is not there: {error.strerror}", Failure.CLOSED)

    def drained(self, source: Datagrams) -> None:
        """The socket takes datagrams again."""
        if source is self.socket:
            self.listener.writable(self)

    def _malformed(self, detail: str, kind: Failure = Failure.MALFORMED) -> None:
        self.listener.malformed(self, detail, kind)

    def pause_reading(self) -> None:
        """Read no more; the kernel drops what its buffer cannot hold."""
        self._paused = True
        if self.socket is not None:
            self.socket.pause()

    def resume_reading(self) -> None:
        """Read again."""
        self._paused = False
        if self.socket is not None:
            self.socket.resume()


class ScriptedCoapLink(CoapLink):
    """One that speaks a contender's dialect."""

    __slots__ = ()

    structured = True


LINK = CoapLink
SCRIPTED = ScriptedCoapLink
