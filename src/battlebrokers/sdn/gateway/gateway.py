"""The gateway: MQTT clients on one side, the network on the other. Started inside a running event loop.

Nothing goes from client to client within it: every message leaves as a datagram and comes back as the network's copy.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
import weakref
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from typing import Any, Final

from battlebrokers.protocols.mqtt.encode import encode
from battlebrokers.protocols.mqtt.packets import FilterRequest, Publish, WillMessage
from battlebrokers.sdn.gateway.connection import Connection
from battlebrokers.sdn.gateway.counters import Counters
from battlebrokers.sdn.gateway.feet import Feet
from battlebrokers.sdn.gateway.guest import TAKEN_OVER, Guest, retain_of
from battlebrokers.sdn.gateway.interest import Interest
from battlebrokers.sdn.gateway.registry import Registry, RestRegistry
from battlebrokers.sdn.gateway.retained import Retained
from battlebrokers.sdn.gateway.settings import LARGEST_PAYLOAD_BYTES, NotForwarded, Settings
from battlebrokers.sdn.gateway.topics import Topics
from battlebrokers.sdn.refused_port import cannot_listen

_LOG = logging.getLogger(__name__)
_SHUTTING_DOWN: Final = 0x8B
_LAST_WILLS_S: Final = 2.0
_FAREWELL_S: Final = 10.0
"""For a controller that is slow; one that is away says so at once."""


class Gateway:
    """One of them; `await start()`, later `await stop()`."""

    def __init__(self, settings: Settings, feet: Feet, registry: Registry | None = None) -> None:
        self._settings = settings
        self._feet = feet
        self.limits = settings.limits
        self.counters = Counters()
        self.port = 0
        """Where MQTT clients find it, once it is started."""
        self._interest: Interest[Guest] = Interest()
        self._retained = Retained(settings.limits.retained)
        self._guests: dict[str, Guest] = {}
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._looking: asyncio.Task[None] | None = None
        hears = feet.subscriber
        self._rest = None
        if registry is None:
            mac, ipv4 = (hears.mac, hears.ipv4) if hears else ("", "")
            registry = self._rest = RestRegistry(settings.url, settings.mode, mac, ipv4, settings.token)
        speaks = feet.publisher.mac if feet.publisher else None
        self._topics = Topics(registry, self._interest, hears.mac if hears else None, speaks, settings.limits)

    async def start(self) -> int:
        """Begin; returns the port clients find it at."""
        await self._feet.open(self._arrived)
        settings = self._settings
        try:
            self._server = await asyncio.get_running_loop().create_server(self._welcome, settings.host, settings.port)
        except OSError as fault:
            self._feet.close()
            raise cannot_listen("MQTT", f"{settings.host}:{settings.port}", fault, "--port") from fault
        self.port = int(self._server.sockets[0].getsockname()[1])
        self._looking = asyncio.get_running_loop().create_task(self._look_for_ever())
        return self.port

    async def stop(self) -> None:
        """End: clients are sent away, their wills published, the network's subscriptions ended."""
        if self._server is not None:
            self._server.close()
        if self._looking is not None:
            self._looking.cancel()
            with suppress(asyncio.CancelledError):
                await self._looking
        for guest in list(self._guests.values()):
            guest.end(_SHUTTING_DOWN)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LAST_WILLS_S)
        for task in self._tasks:
            task.cancel()
        for connection in list(self._connections):
            connection.abandon()
        try:
            # Nobody wants anything any more, so this leaves every resource.
            await asyncio.wait_for(self._topics.look(), _FAREWELL_S)
        except TimeoutError:
            _LOG.warning("the controller is slow: subscriptions that are left end when a gateway starts here again")
        self._feet.close()
        if self._rest is not None:
            await self._rest.close()
        if self._server is not None:
            await self._server.wait_closed()

    def summary(self) -> str:
        """What happened so far, in one line."""
        self.counters.overrun = self._feet.overrun()
        return self.counters.summary()

    # what guests ask

    def admit(self, guest: Guest, client_id: str) -> str | None:
        """Let a client in, instead of another of that name; the name it has, or None when there is no room."""
        name = client_id or f"bb-{uuid.uuid4().hex[:16]}"
        other = self._guests.get(name)
        if other is not None:
            self.counters.taken_over += 1
            other.end(TAKEN_OVER)
        elif len(self._guests) >= self.limits.clients:
            return None
        self._guests[name] = guest
        self.counters.clients += 1
        return name

    def publish(self, topic: str, payload: bytes, retain_s: float | None) -> Awaitable[None] | None:
        """Send to the network, and keep for so long; None when it is out already. Raises `NotForwarded`."""
        if len(payload) > LARGEST_PAYLOAD_BYTES:
            raise NotForwarded(
                "too large", f"{len(payload)} bytes do not fit into one datagram of {LARGEST_PAYLOAD_BYTES}"
            )
        if self._feet.publisher is None:
            raise NotForwarded("no publishing host", "this gateway has no host to publish from (--publish-as)")
        if topic.startswith("$"):
            raise NotForwarded("topic refused", "topics that begin with $ belong to the broker")
        address = self._topics.address(topic)
        if not address:
            return self._publish_later(topic, payload, retain_s)
        pending = self._feet.send(payload, address)
        if pending is not None:
            return self._finish(pending, topic, payload, retain_s)
        self._published(topic, payload, retain_s)
        return None

    async def subscribe(self, guest: Guest, request: FilterRequest) -> bool:
        """In effect when it returns; whether it is new. Raises `NotForwarded`."""
        if self._feet.subscriber is None:
            raise NotForwarded("subscription refused", "this gateway has no host to subscribe with (--subscribe-as)")
        if self._interest.count(guest) >= self.limits.filters:
            raise NotForwarded("subscription refused", f"a client has at most {self.limits.filters} filters")
        # Before asking the controller: a topic created meanwhile must see that somebody wants it.
        new = self._interest.add(guest, request.filter)
        try:
            await self._topics.hear(request.filter)
        except NotForwarded:
            if new:
                self._interest.remove(guest, request.filter)
            raise
        if self._guests.get(guest.client_id) is not guest:
            self._interest.forget(guest)
        return new

    def tell_retained(self, guest: Guest, topic_filter: str) -> None:
        """What was kept for new subscribers."""
        for topic, payload in list(self._retained.matching(topic_filter, time.monotonic())):
            if guest.deliver(encode(Publish(topic, payload, retain=True), guest.version)):
                self.counters.from_store += 1
            else:
                self.counters.lost_to_slow += 1

    def unsubscribe(self, guest: Guest, topic_filter: str) -> bool:
        """Whether there was such a subscription; the network's ends at the next look."""
        return self._interest.remove(guest, topic_filter)

    def depart(self, guest: Guest, will: WillMessage | None) -> None:
        """A client is gone; a will is to be published."""
        self._interest.forget(guest)
        if self._guests.get(guest.client_id) is guest:
            del self._guests[guest.client_id]
        if will is not None:
            self._spawn(self._publish_will(guest.client_id, will))

    # within

    def _welcome(self) -> Connection:
        connection = Connection(self.limits)
        self._connections.add(connection)
        connection.talker = Guest(self, connection)
        return connection

    async def _publish_later(self, topic: str, payload: bytes, retain_s: float | None) -> None:
        address = await self._topics.open(topic)
        pending = self._feet.send(payload, address)
        if pending is not None:
            await pending
        self._published(topic, payload, retain_s)

    async def _finish(self, pending: Awaitable[None], topic: str, payload: bytes, retain_s: float | None) -> None:
        await pending
        self._published(topic, payload, retain_s)

    def _published(self, topic: str, payload: bytes, retain_s: float | None) -> None:
        self.counters.published += 1
        if retain_s is not None:
            self._retained.set(topic, payload, time.monotonic() + retain_s)

    async def _publish_will(self, client_id: str, will: WillMessage) -> None:
        try:
            pending = self.publish(will.topic, will.payload, retain_of(will))
            if pending is not None:
                await pending
        except NotForwarded as why:
            self.counters.not_forwarded[why.kind] += 1
            _LOG.info("the will of client %r on %.80r is not forwarded: %s", client_id, will.topic, why.words)
        else:
            self.counters.wills += 1

    def _arrived(self, payload: bytes, address: str) -> None:
        counters = self.counters
        counters.arrived += 1
        topic = self._topics.name(address)
        listeners = self._interest.listeners(topic) if topic is not None else ()
        if topic is None or not listeners:
            counters.unwanted += 1
            return
        frames: dict[int, bytes] = {}
        for guest in listeners:
            frame = frames.get(guest.version)
            if frame is None:
                frame = frames[guest.version] = encode(Publish(topic, payload), guest.version)
            if guest.deliver(frame):
                counters.delivered += 1
            else:
                counters.lost_to_slow += 1

    async def _look_for_ever(self) -> None:
        while True:
            try:
                await self._topics.look()
            except Exception:  # noqa: BLE001 - the next look may go well
                _LOG.exception("looking for topics failed")
            await asyncio.sleep(self._settings.look_s)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
