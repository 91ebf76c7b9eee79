"""Topics as resources: which address a name has, and which of them the gateway's host hears. Asked by the gateway.

Every `look` compares with what the controller says, so that deleted resources, lost subscriptions, a controller with
another memory and what a killed gateway left are all put right in one place.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from battlebrokers.protocols.mqtt.encode import encode
from battlebrokers.protocols.mqtt.malformed import MalformedPacket
from battlebrokers.protocols.mqtt.packets import V311, Publish
from battlebrokers.scenario.topics import filter_matches
from battlebrokers.sdn.gateway.interest import Interest, has_wildcard
from battlebrokers.sdn.gateway.registry import Listed, Registry
from battlebrokers.sdn.gateway.settings import LONGEST_NAME, Away, Limits, NotForwarded

_LOG = logging.getLogger(__name__)
_AT_ONCE: Final = 8
_TRY_AGAIN_S: Final = 0.25


@dataclass(slots=True, eq=False)
class Topic:
    """One name, and what we know of its resource."""

    name: str
    address: str = ""
    """Empty as long as there is none."""
    heard: bool = False
    from_resource: bool = True
    ours: bool = False
    """Whether this gateway asked for it first."""
    changed_s: float = float("-inf")
    """When we learned that by ourselves: a listing asked for earlier knows less."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Topics:
    """All topics one gateway has to do with."""

    def __init__(
        self, registry: Registry, interest: Interest[Any], hears: str | None, speaks: str | None, limits: Limits
    ) -> None:
        self._registry = registry
        self._interest = interest
        self._hears = hears
        """The subscribing host's MAC address; None: no such host."""
        self._speaks = speaks
        self._limits = limits
        self._topics: dict[str, Topic] = {}
        self._names: dict[str, str] = {}
        self._few = asyncio.Semaphore(_AT_ONCE)
        self._told: set[str] = set()
        self._away = False

    def address(self, name: str) -> str:
        """Where to publish; empty when `open` has to be asked first."""
        topic = self._topics.get(name)
        return topic.address if topic is not None else ""

    def name(self, address: str) -> str | None:
        """Whose address that is."""
        return self._names.get(address)

    async def open(self, name: str) -> str:
        """The address to publish a topic at; whoever wants it here hears it from the first message on."""
        topic = self._topic(name)

        async def opened() -> None:
            async with topic.lock:
                await self._obtained(topic)
                if self._hears and topic.from_resource and self._interest.wants(name):
                    await self._subscribed(topic)

        await self._patiently(opened)
        return topic.address

    async def hear(self, topic_filter: str) -> None:
        """Receive what a filter matches, from the return on; an exact topic is created when there is none."""
        if not has_wildcard(topic_filter) and not topic_filter.startswith("$"):
            await self._patiently(lambda: self._hear_one(self._topic(topic_filter)))
            return

        async def found() -> None:
            await self._learn()
            wanted = (one for one in self._topics.values() if filter_matches(topic_filter, one.name))
            await self._each(self._hear_one(one) for one in wanted if self._can_hear(one))

        await self._patiently(found)

    async def look(self) -> None:
        """Compare with the controller: hear what is wanted, leave what is not."""
        try:
            await self._learn()
            if self._hears:
                await self._each(self._differences())
        except Away as why:
            if not self._away:
                _LOG.warning("the controller does not answer (%s): known topics go on, new ones wait", why)
            self._away = True
        else:
            if self._away:
                _LOG.warning("the controller answers again")
            self._away = False

    def _differences(self) -> list[Coroutine[Any, Any, None]]:
        known, wants = self._topics.values(), self._interest.wants
        named = [name for name in self._interest.exact() if name not in self._topics and not name.startswith("$")]
        return [
            *(self._hear_one(one) for one in known if self._lacks(one)),
            *(self._leave(one) for one in known if one.heard and not wants(one.name)),
            *(self._hear_named(name) for name in named),
        ]

    def _topic(self, name: str) -> Topic:
        if name.startswith("$"):
            raise NotForwarded("topic refused", "topics that begin with $ belong to the broker")
        if len(name) > LONGEST_NAME:
            raise NotForwarded("topic refused", f"a topic has at most {LONGEST_NAME} characters here")
        found = self._topics.get(name)
        if found is None:
            if sum(one.ours for one in self._topics.values()) >= self._limits.topics:
                raise NotForwarded("topic refused", f"this gateway has created {self._limits.topics} topics already")
            found = self._topics[name] = Topic(name, ours=True)
        return found

    async def _learn(self) -> None:
        asked_s = time.monotonic()
        listed = {one.name: one for one in await self._registry.listed()}
        for name, one in listed.items():
            topic = self._topics.get(name)
            if topic is None:
                if not _is_topic(name):
                    continue
                topic = self._topics[name] = Topic(name)
            if topic.changed_s < asked_s and not topic.lock.locked():
                self._note(topic, one)
        for topic in self._topics.values():
            if topic.name not in listed and topic.address and topic.changed_s < asked_s and not topic.lock.locked():
                self._lose(topic)

    def _note(self, topic: Topic, told: Listed) -> None:
        if topic.address != told.address:
            self._lose(topic)
            topic.address = told.address
            self._names[told.address] = topic.name
        topic.from_resource = told.from_resource
        topic.heard = self._hears in told.subscribers
        if self._speaks in told.subscribers:
            words = "the publishing host is subscribed to it, so the network drops what it publishes"
            self._tell_once(topic, f"resource {topic.address} ({topic.name!r}): {words}")

    def _lose(self, topic: Topic) -> None:
        if self._names.get(topic.address) == topic.name:
            del self._names[topic.address]
        topic.address, topic.heard = "", False

    def _lacks(self, topic: Topic) -> bool:
        wanted = not topic.heard and self._interest.wants(topic.name)
        # One that is gone comes back for those who named it, not for those whose filter happened to match.
        return wanted and (self._can_hear(topic) if topic.address else topic.name in self._interest.exact())

    def _can_hear(self, topic: Topic) -> bool:
        if topic.address and not topic.from_resource:
            self._tell_once(topic, _from_publisher(topic))
        return bool(topic.address) and topic.from_resource

    def _tell_once(self, topic: Topic, words: str) -> None:
        if topic.name not in self._told:
            self._told.add(topic.name)
            _LOG.warning("%s", words)

    async def _hear_named(self, name: str) -> None:
        await self._hear_one(self._topic(name))

    async def _hear_one(self, topic: Topic) -> None:
        async with topic.lock:
            await self._obtained(topic)
            await self._subscribed(topic)

    async def _obtained(self, topic: Topic) -> None:
        if not topic.address:
            told = await self._registry.obtain(topic.name)
            self._note(topic, told)
            topic.changed_s = time.monotonic()

    async def _subscribed(self, topic: Topic) -> None:
        if topic.heard:
            return
        if not topic.from_resource:
            raise NotForwarded("subscription refused", _from_publisher(topic))
        if not await self._registry.subscribe(topic.address):
            self._lose(topic)
            raise Away(f"the resource of {topic.name} is gone")
        topic.heard, topic.changed_s = True, time.monotonic()

    async def _leave(self, topic: Topic) -> None:
        async with topic.lock:
            if topic.heard and not self._interest.wants(topic.name):
                # First, so that somebody who comes meanwhile subscribes again.
                topic.heard = False
                await self._registry.unsubscribe(topic.address)
                topic.changed_s = time.monotonic()

    async def _each(self, work: Iterable[Coroutine[Any, Any, None]]) -> None:
        """All of it, a few at a time; one topic that is refused does not stop the others."""

        async def one(doing: Coroutine[Any, Any, None]) -> None:
            async with self._few:
                try:
                    await doing
                except NotForwarded as why:
                    _LOG.debug("%s", why.words)

        faults = await asyncio.gather(*map(one, work), return_exceptions=True)
        for fault in faults:
            if fault is not None:
                raise fault

    async def _patiently(self, attempt: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Again and again while the controller is away, but not for ever."""
        last_s = time.monotonic() + self._limits.patience_s
        while True:
            try:
                return await attempt()
            except Away as why:
                if time.monotonic() + _TRY_AGAIN_S > last_s:
                    raise NotForwarded("controller away", f"the controller does not answer: {why}") from why
            await asyncio.sleep(_TRY_AGAIN_S)


def _is_topic(name: str) -> bool:
    """Whether MQTT can say it: whoever created a resource may have called it anything."""
    try:
        encode(Publish(name), V311)
    except MalformedPacket:
        return False
    return True


def _from_publisher(topic: Topic) -> str:
    return (
        f"resource {topic.address} ({topic.name!r}) keeps the publisher's address, so nobody can tell its topic: "
        "create it with `--from resource`"
    )
