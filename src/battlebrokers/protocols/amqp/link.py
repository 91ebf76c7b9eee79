"""AMQP 0-9-1 as a link: topics are routing keys of a topic exchange, a client's filters are bindings of its queue.

Made by the registry. It meets MQTT clients of a broker that bridges both (RabbitMQ's amq.topic). QoS 1 waits for the
publisher confirm. Lost connections fail what was in flight; nothing is sent again and no connection made by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from pamqp import base, commands

from battlebrokers.errors import InputError, LinkError
from battlebrokers.protocols.amqp.connection import (
    CONFIRM_CHANNEL,
    PLAIN_CHANNEL,
    PROBE_CHANNEL,
    Connection,
    close_answered,
)
from battlebrokers.protocols.amqp.frames import key_of_filter, marshalled
from battlebrokers.protocols.amqp.publisher import Publisher
from battlebrokers.protocols.amqp.queues import Queue, queue_for, session_queue
from battlebrokers.protocols.base import (
    Capabilities,
    Completion,
    Endpoint,
    Failure,
    Granted,
    LinkOptions,
    Listener,
    Opened,
    Subscription,
    TlsFiles,
)
from battlebrokers.protocols.phrase import plain
from battlebrokers.protocols.script import Known, Say
from battlebrokers.protocols.shutdown import shut_down
from battlebrokers.protocols.tls import tls_context, why_unreachable
from battlebrokers.protocols.wheel import wheel_of
from battlebrokers.protocols.wrapping import Request, known_about, unwrapped

WILDCARDS_NOT_SUPPORTED = 0xA2

Binding = tuple[str, str]
"""Exchange and binding key."""


class AmqpLink(Publisher):
    """One AMQP connection of a device or client."""

    __slots__ = ("_bound", "_consumed", "endpoint", "reading_paused", "unwraps")

    capabilities = Capabilities(
        protocol="amqp",
        qos=frozenset({0, 1}),
        persistent_session=True,
        shared_subscription=True,
        acknowledges=frozenset({1}),
        transports=frozenset({"tcp", "tls"}),
        completion={0: "handed to the transport", 1: "basic.ack received (publisher confirm)"},
    )

    def __init__(self, endpoint: Endpoint, options: LinkOptions, listener: Listener) -> None:
        super().__init__(options, listener)
        self.endpoint = endpoint
        self.reading_paused = False
        self.unwraps = options.script is not None
        """Whether the contender's dialect says where the payload is."""
        self._consumed: dict[str, str] = {}
        """Consumer tag → the name of the queue it consumes, on this connection."""
        self._bound: dict[str, tuple[Subscription, str, list[Binding]]] = {}
        """Filter as the broker sees it → the subscription, its consumer's tag, and what the queue was bound to."""

    # ── opening and closing ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def virtual_host(self) -> str:
        """The path of the URL; none is `/`."""
        return self.endpoint.path.removeprefix("/") or "/"

    @property
    def _place(self) -> str:
        scheme = "amqps" if self.endpoint.transport == "tls" else "amqp"
        return f"{scheme}://{self.endpoint.host}:{self.endpoint.port}"

    def introduction(self) -> base.Frame:
        """Who we are; guest when nobody said."""
        options, script = self.options, self.script
        username = options.username or "guest"
        password = options.password.reveal() if options.password else "guest"
        if script is not None and script.username:
            username = plain(script.username).bind(options.known).require().render({}).decode()
            password = plain(script.password).bind(options.known).require().render({}).decode()
        can = {"publisher_confirms": True, "basic.nack": True, "consumer_cancel_notify": True}
        return commands.Connection.StartOk(
            client_properties={
                "product": "BattleBrokers",
                "connection_name": options.client_id,
                "capabilities": {**can, "authentication_failure_close": True},
            },
            response=f"\0{username}\0{password}",
        )

    async def open(self) -> Opened:
        """Connect, log in, and take up the queue of a kept session."""
        if self.connection is not None:
            raise LinkError(f"{self.options.client_id} is already connected")
        options = self.options
        made: Connection | None = None
        try:
            async with asyncio.timeout(options.connect_timeout_s):
                made = await self._connect()
                received_ns = self.listener.now_ns()
                present = await self._prepare(made)
        except BaseException as error:
            if made is not None:
                made.leave()
                made.transport.abort()
            if self.connection is made:
                self.connection = None
            if isinstance(error, TimeoutError):
                stage = "did not let us in" if made is not None else "could not be reached, or is no AMQP broker,"
                words = f"{self._place} {stage} within {options.connect_timeout_s:g} s"
                raise LinkError(words, code=Failure.TIMEOUT) from None
            if isinstance(error, LinkError) and made is not None:
                raise LinkError(f"{self._place}: {error.message}", hint=error.hint, code=error.code) from error
            raise
        return Opened(present, 0, received_ns)

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        started: asyncio.Future[None] = loop.create_future()
        made = Connection(self, wheel_of(loop), started)
        secure = self.endpoint.transport == "tls"
        source = self.options.source_address
        try:
            await loop.create_connection(
                lambda: made,
                self.endpoint.host,
                self.endpoint.port,
                ssl=tls_context(self.options.tls or TlsFiles()) if secure else None,
                server_hostname=self.endpoint.host if secure else None,
                local_addr=(source, 0) if source else None,
            )
        except OSError as error:
            raise why_unreachable(error, self._place, source) from error
        try:
            await started
        except BaseException as error:
            made.leave()
            made.transport.abort()
            if isinstance(error, LinkError):
                hint = "Are user, password and virtual host right?" if error.code in {402, 403, 530} else error.hint
                raise LinkError(f"{self._place}: {error.message}", hint=hint, code=error.code) from error
            raise
        return made

    async def _prepare(self, made: Connection) -> bool:
        """Channels, prefetch and the kept session; whether there was one."""
        options = self.options
        prefetch = commands.Basic.Qos(prefetch_count=min(options.receive_maximum, 65_535))
        await asyncio.gather(
            made.ask(PLAIN_CHANNEL, [commands.Channel.Open(), prefetch]),
            made.ask(CONFIRM_CHANNEL, [commands.Channel.Open(), commands.Confirm.Select()]),
        )
        found = [] if options.clean else await self._kept_queues(made)
        if made.gone:
            raise LinkError("the broker accepted the connection and closed it at once", code=Failure.CLOSED)
        made.started = None
        self.begin(made)
        if self.reading_paused:
            made.transport.pause_reading()
        for queue in found:
            self._consumed[queue.consumer] = queue.name
            await made.ask(PLAIN_CHANNEL, [queue.consume(queue.name)])
        if self.script is not None:
            made.write(b"".join(self.said(self.script.login, self.options.known)))
        return bool(found)

    async def _kept_queues(self, made: Connection) -> list[Queue]:
        """Those queues of the session the broker still has; asked for one it has not, it closes the channel."""
        found = []
        for qos in (0, 1):
            queue = session_queue(self.options, qos)
            try:
                await made.ask(
                    PROBE_CHANNEL, [commands.Channel.Open(), commands.Queue.Declare(queue=queue.name, passive=True)]
                )
            except LinkError as error:
                if error.code != 404:
                    raise
                continue
            found.append(queue)
            await made.ask(PROBE_CHANNEL, [commands.Channel.Close(200, "", 0, 0)])
        return found

    async def close(self) -> None:
        """Undo and log out as the dialect says, say goodbye properly and close."""
        last_words = self._last_words()
        connection = self._detach()
        if connection is None:
            return
        connection.write(last_words + marshalled(0, commands.Connection.Close(200, "goodbye", 0, 0)))
        await shut_down(connection.transport, self._place, "connection.close", close_answered())

    def _last_words(self) -> bytes:
        script = self.script
        if self.connection is None or script is None:
            return b""
        # A kept session stays subscribed: only who asks for nothing to be kept takes it back.
        left = self._bound.values() if self.options.clean else ()
        undone = [word for wanted, _, _ in left for word in self._undone(wanted)]
        return b"".join([*undone, *self.said(script.logout, self.options.known)])

    def abort(self) -> None:
        """Drop the connection without a word, as a crash would."""
        connection = self._detach()
        if connection is not None:
            connection.transport.abort()

    def _detach(self) -> Connection | None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.leave()
            connection.drop_requests(LinkError(f"{self.options.client_id} was closed"))
        self._forget()
        return connection

    def _forget(self) -> None:
        self.forget()
        self._consumed.clear()
        self._bound.clear()

    def lost(self, connection: Connection, detail: str, reason: int, completion: Completion) -> None:
        """A connection ended without our asking: what was in flight has failed."""
        if self.connection is not connection:
            return
        self.connection = None
        tokens = self.in_flight_tokens()
        self._forget()
        if tokens:
            code = reason if completion is Completion.REFUSED or reason < 0 else Failure.CLOSED
            self.listener.acknowledged(self, tokens, self.listener.now_ns(), completion, code)
        self.listener.closed(self, detail, reason)

    # ── subscriptions ────────────────────────────────────────────────────────────────────────────────────────────

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> list[Granted]:
        """Declare the queues, bind the filters, consume; one round trip for each step, whatever the number."""
        connection = self._connected()
        async with self._answering("a subscription"):
            return [await self._subscribe(connection, wanted) for wanted in subscriptions]

    async def _subscribe(self, connection: Connection, wanted: Subscription) -> Granted:
        script = self.script
        listening = script.listening if script is not None else None
        if listening is not None and not listening.wildcards and {"+", "#"} & set(wanted.filter.split("/")):
            return Granted(wanted, -1, WILDCARDS_NOT_SUPPORTED)
        queue = queue_for(wanted, self.options)
        name = self._consumed.get(queue.consumer)
        if name is None:
            answer = (await connection.ask(PLAIN_CHANNEL, [queue.declare()]))[0]
            assert isinstance(answer, commands.Queue.DeclareOk)
            name = str(answer.queue)
        bindings: list[Binding] = []
        ask: list[base.Frame] = []
        for step in self._steps(wanted):
            if not isinstance(step, bytes):
                bindings.append(step)
                ask.append(commands.Queue.Bind(queue=name, exchange=step[0], routing_key=step[1]))
                continue
            if ask:
                await connection.ask(PLAIN_CHANNEL, ask)
                ask = []
            connection.write(step)
        if queue.consumer not in self._consumed:
            self._consumed[queue.consumer] = name
            ask.append(queue.consume(name))
        if ask:
            await connection.ask(PLAIN_CHANNEL, ask)
        self._bound[wanted.wire_filter] = (wanted, queue.consumer, bindings)
        return Granted(wanted, queue.qos, queue.qos)

    def _steps(self, wanted: Subscription) -> list[Binding | bytes]:
        """What a subscription does in order: bindings to make, and messages of the dialect to send."""
        listening = self.script.listening if self.script is not None else None
        if listening is None or not listening.steps:
            return [(self.exchange, key_of_filter(wanted.filter))]
        steps: list[Binding | bytes] = []
        for say in listening.steps:
            if say.verb == "subscribe":
                steps.append(self._binding(say, wanted.filter))
            else:
                steps += self.said([say], self._known_of(wanted.filter))
        return steps

    def _binding(self, say: Say, topic: str) -> Binding:
        try:
            key, _, headers = Request(say, self._known_of(topic), ("id",)).render({"id": "0"})
        except InputError as error:
            raise LinkError(error.message, hint=error.hint) from error
        return dict(headers).get("exchange", self.exchange.encode()).decode(), key.decode()

    def _known_of(self, topic: str) -> Known:
        return {**known_about(self.options, topic), "filter": topic}

    async def unsubscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """Take the bindings away that nobody else needs; a shared group's queue is only left."""
        connection = self._connected()
        async with self._answering("an unsubscription"):
            for wanted in subscriptions:
                _, consumer, bindings = self._bound.pop(wanted.wire_filter, (wanted, "", []))
                if not consumer:
                    # Of a session that was kept: what is bound is what would be bound now.
                    consumer = queue_for(wanted, self.options).consumer
                    bindings = [step for step in self._steps(wanted) if not isinstance(step, bytes)]
                name = self._consumed.get(consumer)
                if name is None:
                    continue
                if wanted.share:
                    del self._consumed[consumer]
                    await connection.ask(PLAIN_CHANNEL, [commands.Basic.Cancel(consumer_tag=consumer)])
                else:
                    needed = {each for _, other, bound in self._bound.values() if other == consumer for each in bound}
                    for exchange, key in dict.fromkeys(each for each in bindings if each not in needed):
                        unbind = commands.Queue.Unbind(queue=name, exchange=exchange, routing_key=key)
                        await connection.ask(PLAIN_CHANNEL, [unbind])
                connection.write(b"".join(self._undone(wanted)))

    def _undone(self, wanted: Subscription) -> list[bytes]:
        listening = self.script.listening if self.script is not None else None
        return self.said(listening.undo, self._known_of(wanted.filter)) if listening is not None else []

    @contextlib.asynccontextmanager
    async def _answering(self, what: str) -> AsyncIterator[None]:
        timeout_s = self.options.connect_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                yield
        except TimeoutError:
            words = f"{self._place} did not answer {what} within {timeout_s:g} s"
            raise LinkError(words, code=Failure.TIMEOUT) from None

    def arrived(self, at_ns: int, flags: int, topic: bytes, payload: bytes, wire_bytes: int) -> None:
        """One message came in; a dialect says where its payload is."""
        script = self.script
        if script is None:
            self.listener.arrived(self, at_ns, flags, topic, payload, wire_bytes)
            return
        found = unwrapped(script.notification, payload, topic)
        if found is None:
            words = f"a message of {len(payload)} bytes is no notification"
            self.listener.malformed(self, words, Failure.UNEXPECTED)
            return
        for name, inner in found:
            self.listener.arrived(self, at_ns, flags, name, inner, wire_bytes)

    # ── a slow reader ────────────────────────────────────────────────────────────────────────────────────────────

    def pause_reading(self) -> None:
        """Stop taking bytes from the broker; stays so when connecting again."""
        self.reading_paused = True
        if self.connection is not None:
            self.connection.transport.pause_reading()

    def resume_reading(self) -> None:
        """Take bytes again."""
        self.reading_paused = False
        if self.connection is not None:
            self.connection.heard_tick = self.connection.wheel.tick
            self.connection.transport.resume_reading()


class ScriptedAmqpLink(AmqpLink):
    """One that wraps its messages as the contender wants them."""

    __slots__ = ()

    structured = True


LINK = AmqpLink
SCRIPTED = ScriptedAmqpLink
