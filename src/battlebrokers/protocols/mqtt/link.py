"""MQTT 3.1.1 and 5 as a link: the part the device layer talks to.

Made by the registry, one for each device or client. It opens and closes connections, keeps the session between them,
and sends in bulk; what comes in is the connection's work. It never measures and never reconnects by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import (
    Capabilities,
    Endpoint,
    Failure,
    Granted,
    Link,
    LinkOptions,
    Listener,
    Opened,
    Subscription,
)
from battlebrokers.protocols.mqtt.connection import Connection
from battlebrokers.protocols.mqtt.encode import encode
from battlebrokers.protocols.mqtt.malformed import PACKET_TOO_LARGE, PROTOCOL_ERROR, MalformedPacket
from battlebrokers.protocols.mqtt.packets import (
    V5,
    ConnAck,
    Disconnect,
    FilterRequest,
    Packet,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
)
from battlebrokers.protocols.mqtt.requests import cut_to_size
from battlebrokers.protocols.mqtt.sender import Sender
from battlebrokers.protocols.mqtt.session import LAST_ID, Request
from battlebrokers.protocols.mqtt.transport import TRANSPORTS, connect, name_of
from battlebrokers.protocols.mqtt.welcome import connect_packet, limits_of, refusal
from battlebrokers.protocols.shutdown import shut_down

SESSION_OF_NOBODY = "it says that a session is present although a clean start was asked for [MQTT-3.2.2-2]"
_ANSWERED_BY = {"SUBSCRIBE": "SUBACK", "UNSUBSCRIBE": "UNSUBACK"}


class MqttLink(Sender):
    """One MQTT client."""

    keeps_topics = True
    __slots__ = ("client_id", "endpoint", "reading_paused", "welcome_ns", "welcome_packet")

    capabilities = Capabilities(
        protocol="mqtt",
        qos=frozenset({0, 1, 2}),
        retain=True,
        persistent_session=True,
        will=True,
        shared_subscription=True,
        transports=TRANSPORTS,
        completion={0: "handed to the transport", 1: "PUBACK received", 2: "PUBCOMP received"},
    )

    def __init__(self, endpoint: Endpoint, options: LinkOptions, listener: Listener) -> None:
        super().__init__(options, listener)
        self.endpoint = endpoint
        self.client_id = options.client_id
        """The broker may assign one when ours is empty; it is kept for the next time."""
        self.reading_paused = False
        self.welcome_packet: ConnAck | None = None
        self.welcome_ns = 0

    # ── opening and closing ──────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> Opened:
        """Connect and log in; resends what the session still owes."""
        if self.connection is not None:
            raise LinkError(f"{self.client_id} is already connected")
        options = self.options
        place = name_of(self.endpoint)
        made: Connection | None = None
        try:
            hello = encode(connect_packet(options, self.client_id), self.version)
            async with asyncio.timeout(options.connect_timeout_s):
                made = await connect(self, self.endpoint, options)
                welcome = made.welcome
                if welcome is not None:
                    if not made.gone:
                        made.send(hello)
                    await welcome
        except TimeoutError:
            self._discard(made)
            stage = "did not answer CONNECT" if made is not None else "could not be reached"
            raise LinkError(f"{place} {stage} within {options.connect_timeout_s:g} s", code=Failure.TIMEOUT) from None
        except MalformedPacket as fault:
            self._discard(made)
            raise LinkError(f"{self.client_id} cannot introduce itself: {fault}", code=fault.reason) from fault
        except LinkError as error:
            self._discard(made)
            if made is not None:
                hint = error.hint or f"Is that the right port, and does it speak MQTT over {self.endpoint.transport}?"
                raise LinkError(f"{place}: {error.message}", hint=hint, code=error.code) from error
            raise
        except BaseException:
            self._discard(made)
            raise
        return self._welcome(made, place)

    def _welcome(self, made: Connection, place: str) -> Opened:
        answer, self.welcome_packet = self.welcome_packet, None
        assert answer is not None
        if answer.reason:
            self._discard(made)
            raise refusal(answer, self.version, place)
        if answer.session_present and self.options.clean:
            self._discard(made)
            raise LinkError(f"{place}: {SESSION_OF_NOBODY}", code=Failure.MALFORMED)
        if self.connection is not made:
            raise LinkError(f"{place} accepted the connection and closed it at once", code=Failure.CLOSED)
        expiry_s = answer.properties.session_expiry_s
        return Opened(answer.session_present, answer.reason, self.welcome_ns, expiry_s)

    def welcomed(self, connection: Connection, answer: ConnAck, at_ns: int) -> None:
        """CONNACK came: from here on the link is usable, whatever else is in the same chunk."""
        self.welcome_packet, self.welcome_ns = answer, at_ns
        if answer.reason:
            connection.leave()
            return
        if answer.session_present and self.options.clean:
            # Who has no session must close [MQTT-3.2.2-4]; in 3.1.1 it is a protocol violation [MQTT-4.8.0-1].
            self.listener.malformed(self, SESSION_OF_NOBODY)
            if self.version == V5:
                connection.send(encode(Disconnect(PROTOCOL_ERROR), V5))
            connection.leave()
            return
        limits = self.limits = limits_of(answer)
        self.client_id = answer.properties.assigned_client_id or self.client_id
        self.window = min(self.options.inflight, limits.receive_maximum, LAST_ID)
        self.aliases = {} if self.accepts_aliases and limits.topic_aliases else None
        self.full = False
        self.connection = connection
        keep_alive_s = self.options.keep_alive_s if limits.keep_alive_s is None else limits.keep_alive_s
        connection.keep_alive(keep_alive_s)
        if self.reading_paused:
            connection.transport.pause_reading()
        self.settle(answer.session_present)

    def _discard(self, connection: Connection | None) -> None:
        if connection is not None:
            connection.leave()
            connection.transport.abort()
            if self.connection is connection:
                self.connection = None

    async def close(self) -> None:
        """Send DISCONNECT and close; raises LinkError when the broker may not have got it."""
        connection = self._detach()
        if connection is None:
            return
        connection.goodbye(encode(Disconnect(), self.version))
        await shut_down(connection.transport, name_of(self.endpoint), "DISCONNECT")

    def abort(self) -> None:
        """Drop the connection without a word, as a crash would."""
        connection = self._detach()
        if connection is not None:
            connection.transport.abort()

    def _detach(self) -> Connection | None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.leave()
            self._fail_requests(LinkError(f"{self.client_id} was closed"))
        return connection

    def lost(self, connection: Connection, detail: str, reason: int) -> None:
        """A connection ended without our asking."""
        if self.connection is connection:
            self.connection = None
            self._fail_requests(LinkError(detail, code=reason))
            self.listener.closed(self, detail, reason)

    # ── subscriptions ────────────────────────────────────────────────────────────────────────────────────────────

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> list[Granted]:
        """Ask for topics in one request, or several where the broker takes no larger packets; one answer each.

        A filter too long for any packet the broker takes is refused without being sent.
        """
        filters = [wanted.wire_filter for wanted in subscriptions]
        runs, too_large = cut_to_size(filters, 1, self.version, self.limits.maximum_packet_bytes)
        granted = {place: Granted(subscriptions[place], -1, PACKET_TOO_LARGE) for place in too_large}
        for run in runs:
            answers = await self._subscribe(subscriptions[run.start : run.stop])
            granted.update(zip(run, answers, strict=False))
        return [granted[place] for place in range(len(subscriptions))]

    async def _subscribe(self, subscriptions: Sequence[Subscription]) -> list[Granted]:
        filters = tuple(FilterRequest(wanted.wire_filter, wanted.qos) for wanted in subscriptions)
        reasons = await self._request("SUBSCRIBE", lambda packet_id: Subscribe(packet_id, filters), len(filters))
        return [
            Granted(wanted, reason if reason <= 2 else -1, reason)
            for wanted, reason in zip(subscriptions, reasons, strict=True)
        ]

    async def unsubscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """Stop them again."""
        filters = [wanted.wire_filter for wanted in subscriptions]
        runs, too_large = cut_to_size(filters, 0, self.version, self.limits.maximum_packet_bytes)
        for run in runs:
            await self._unsubscribe(subscriptions[run.start : run.stop])
        if too_large:
            words = f"{len(too_large)} filters are too long for the packets that {name_of(self.endpoint)} takes"
            raise LinkError(f"UNSUBSCRIBE was not sent: {words}", code=PACKET_TOO_LARGE)

    async def _unsubscribe(self, subscriptions: Sequence[Subscription]) -> None:
        filters = tuple(wanted.wire_filter for wanted in subscriptions)
        results = len(filters) if self.version == V5 else 0
        await self._request("UNSUBSCRIBE", lambda packet_id: Unsubscribe(packet_id, filters), results)

    async def _request(self, name: str, build: Callable[[int], Packet], results: int) -> tuple[int, ...]:
        """Send a request under a fresh packet id and wait for its answer."""
        connection, session = self.connection, self.session
        if connection is None:
            raise LinkError(f"{name} needs an open link")
        if session.free_ids() < 1:
            raise LinkError(f"{name} found no free packet id", hint="Use a smaller in-flight window.")
        if session.requests is None:
            session.requests = {}
        requests = session.requests
        packet_id = session.take_ids(1)[0].start
        try:
            frame = encode(build(packet_id), self.version)
        except MalformedPacket as fault:
            raise LinkError(f"{name} cannot be sent: {fault}", code=fault.reason) from fault
        answer: asyncio.Future[tuple[int, ...]] = asyncio.get_running_loop().create_future()
        requests[packet_id] = Request(answer, _ANSWERED_BY[name], results)
        connection.send(frame)
        timeout_s = self.options.connect_timeout_s
        try:
            return await asyncio.wait_for(answer, timeout_s)
        except TimeoutError:
            words = f"{name_of(self.endpoint)} did not answer {name} within {timeout_s:g} s"
            raise LinkError(words, code=Failure.TIMEOUT) from None
        finally:
            requests.pop(packet_id, None)
            if not requests and session.requests is requests:
                session.requests = None

    def answered(self, packet: SubAck | UnsubAck) -> None:
        """SUBACK or UNSUBACK came in; MalformedPacket when it cannot be the answer to what was asked."""
        request = (self.session.requests or {}).get(packet.packet_id)
        if request is None or request.answer.done():
            self.session.ignored += 1
            return
        name, results = type(packet).__name__.upper(), len(packet.reasons)
        if name != request.answered_by:
            words = f"packet id {packet.packet_id} is answered with {name}, not {request.answered_by}"
            raise MalformedPacket(words, PROTOCOL_ERROR)
        if results != request.results:
            words = f"a {name} answers {request.results} topic filters with {results} results"
            raise MalformedPacket(words, PROTOCOL_ERROR)
        request.answer.set_result(packet.reasons)

    def _fail_requests(self, error: LinkError) -> None:
        requests, self.session.requests = self.session.requests, None
        for request in (requests or {}).values():
            if not request.answer.done():
                request.answer.set_exception(error)

    @property
    def stray_acknowledgements(self) -> int:
        """Acknowledgements that named nothing of ours."""
        return self.session.ignored

    # ── a slow reader ────────────────────────────────────────────────────────────────────────────────────────────

    def pause_reading(self) -> None:
        """Stop taking bytes from the broker; stays so when connecting again."""
        self.reading_paused = True
        if self.connection is not None:
            self.connection.transport.pause_reading()

    def resume_reading(self) -> None:
        """Take bytes again."""
        if self.reading_paused and self.connection is not None:
            self.connection.reads_again()
        self.reading_paused = False
        if self.connection is not None:
            self.connection.transport.resume_reading()


LINK = MqttLink


def __getattr__(name: str) -> type[Link]:
    """`SCRIPTED`, imported only when somebody speaks a dialect: it is built around this very link."""
    if name == "SCRIPTED":
        from battlebrokers.protocols.mqtt.scripted import ScriptedMqttLink

        return ScriptedMqttLink
    raise AttributeError(name)
