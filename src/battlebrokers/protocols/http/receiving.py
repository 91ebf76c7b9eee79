"""The half of a scripted HTTP link that listens: subscriptions step by step, and notifications on every way they come.

Made by the link when its client first subscribes, thrown away when it leaves. It measures nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Failure, Granted, Subscription
from battlebrokers.protocols.http.callbacks import CallbackServer, Caller, answer_bytes, callback_server
from battlebrokers.protocols.http.connection import Connection
from battlebrokers.protocols.http.fetching import Fetch
from battlebrokers.protocols.http.head import Head
from battlebrokers.protocols.http.notifications import Unreadable, messages_in
from battlebrokers.protocols.http.polling import Poll
from battlebrokers.protocols.http.request import Call, Dialect
from battlebrokers.protocols.http.sender import names_of_topic, next_id
from battlebrokers.protocols.http.streaming import Stream
from battlebrokers.protocols.phrase import Phrase, Value, picked, read_json
from battlebrokers.protocols.script import Listening
from battlebrokers.scenario.topics import filter_matches

if TYPE_CHECKING:
    from battlebrokers.protocols.http.scripted import ScriptedHttpLink

WILDCARDS_NOT_SUPPORTED, SHARES_NOT_SUPPORTED = 0xA2, 0x9E
_OF_A_TOPIC = frozenset({"topic", "resource", "filter"})


@dataclass(slots=True)
class Target:
    """One topic, or one filter, that a subscription is about."""

    known: dict[str, Value]
    topic: bytes
    fetch: Fetch | None = None
    kept: dict[str, str] = field(default_factory=dict)


class Reception:
    """The subscriptions of one client."""

    __slots__ = (
        "_dialect", "_fetch", "_granted", "_link", "_listening", "_path", "_postponed", "_server", "_topic_names",
        "endpoint", "now_ns", "options", "paused", "rendered",
    )  # fmt: skip

    def __init__(self, link: ScriptedHttpLink, dialect: Dialect, listening: Listening) -> None:
        self._link = link
        self._dialect = dialect
        self._listening = listening
        self._granted: dict[str, list[Target]] = {}
        """By filter as a broker would see it."""
        self._fetch: Fetch | None = None
        """The one for all topics, where one is enough."""
        self._path = ""
        self._server: CallbackServer | None = None
        self._postponed: list[Caller] = []
        self.paused = link.reading_paused
        self.endpoint, self.options = link.endpoint, link.options
        self.now_ns, self.rendered = link.now_ns, link.rendered
        self._topic_names = self._names_of_topics()

    # ── subscribing ──────────────────────────────────────────────────────────────────────────────────────────────

    async def callback_url(self) -> str:
        """Where the middleware can call this client."""
        self._server = callback_server(self._link.local_address)
        self._server.largest_bytes = max(self._server.largest_bytes, self.options.largest_bytes)
        self._path, url = await self._server.add(self, self.options.client_id)
        return url

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> list[Granted]:
        """Say what the dialect says; one answer each."""
        refused = {each: reason for each in subscriptions if (reason := self._refusal_of(each))}
        asked = [each for each in dict.fromkeys(subscriptions) if each not in refused]
        wanted = [(each, target) for each in asked for target in self._targets(each)]
        for each in asked:
            self._granted.setdefault(each.wire_filter, [])
        once_said: set[int] = set()
        gate = asyncio.Semaphore(self._link.window)

        async def enter(subscription: Subscription, target: Target) -> bool:
            try:
                await self._enter(target, once_said, gate)
            except LinkError as error:
                if error.code <= 0:
                    raise
                refused[subscription] = error.code
                return False
            self._granted[subscription.wire_filter].append(target)
            return True

        # The first one says what is said once; then as many at a time as the window allows.
        place = 0
        while place < len(wanted):
            place += 1
            if await enter(*wanted[place - 1]):
                break
        results = await asyncio.gather(*(enter(*each) for each in wanted[place:]), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [
            Granted(each, -1, refused[each]) if each in refused else Granted(each, min(each.qos, 1), min(each.qos, 1))
            for each in subscriptions
        ]

    def _refusal_of(self, subscription: Subscription) -> int:
        """Why it cannot even be asked for; 0 when it can."""
        if subscription.share:
            return SHARES_NOT_SUPPORTED
        return 0 if self._targets(subscription) else WILDCARDS_NOT_SUPPORTED

    def _targets(self, subscription: Subscription) -> list[Target]:
        wanted = subscription.filter
        if self._listening.wildcards:
            return [self._target(wanted, {"filter": wanted})]
        if "+" not in wanted and "#" not in wanted:
            return [self._target(wanted, {"filter": wanted})]
        topics = sorted(topic for topic in self.options.known_of_topics if filter_matches(wanted, topic))
        return [self._target(topic, {"filter": topic}) for topic in topics]

    def _target(self, topic: str, own: dict[str, Value]) -> Target:
        known = {**own, **names_of_topic(topic), **self.options.known_of_topics.get(topic, {})}
        return Target(known, topic.encode())

    async def _enter(self, target: Target, once_said: set[int], gate: asyncio.Semaphore) -> None:
        link = self._link
        async with gate:
            for number, call in enumerate(self._dialect.steps):
                if self._is_of_topic(call):
                    _, _, kept = await link.say(call, {**link.known(), **target.known, **target.kept})
                    target.kept.update(kept)
                elif number not in once_said:
                    _, _, kept = await link.say(call, link.known())
                    link.keep(kept)
                    once_said.add(number)
        await self._begin_fetch(target)

    def _names_of_topics(self) -> set[str]:
        """Names whose values differ from topic to topic; all resources keep the same ones."""
        resource = next(iter(self.options.known_of_topics.values()), {})
        names = _OF_A_TOPIC | (resource.keys() - self._link.known().keys())
        for call in self._dialect.steps:
            if call.say.repeat or call.names & names:
                names |= call.say.keep.keys()
        return set(names)

    def _is_of_topic(self, call: Call) -> bool:
        """Whether a call is said for each topic, not once."""
        return call.say.repeat or not self._topic_names.isdisjoint(call.names)

    async def _begin_fetch(self, target: Target) -> None:
        call = self._dialect.fetch
        if call is None or self._listening.way == "callback":
            return
        kind = Stream if self._listening.way == "stream" else Poll
        known = self._link.known()
        if self._is_of_topic(call):
            fetch = target.fetch = kind(self, call, {**known, **target.known, **target.kept}, target.topic)
        elif self._fetch is None:
            fetch = self._fetch = kind(self, call, known, b"")
        else:
            return
        await fetch.accepted

    # ── leaving ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def unsubscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """Undo them; the last one takes everything with it. One that fails does not keep the others."""
        link = self._link
        refusals: list[LinkError] = []
        said: list[tuple[Call, dict[str, Value]]] = []
        for subscription in subscriptions:
            for target in self._granted.pop(subscription.wire_filter, ()):
                if target.fetch is not None:
                    target.fetch.stop()
                own = {**link.known(), **target.known, **target.kept}
                said += [(call, own) for call in self._dialect.undo if self._is_of_topic(call)]
        if not self._granted:
            if self._fetch is not None:
                self._fetch.stop()
                self._fetch = None
            said += [(call, link.known()) for call in self._dialect.undo if not self._is_of_topic(call)]
        for call, known in said:
            try:
                await link.say(call, known)
            except LinkError as error:
                refusals.append(error)
        if refusals:
            raise refusals[0]

    async def leave(self) -> None:
        """Undo everything that is still there."""
        if self._granted:
            await self.unsubscribe([Subscription(each) for each in self._granted])

    def stop(self) -> None:
        """End without a word."""
        if self._server is not None:
            self._server.remove(self._path)
            self._server = None
        fetches = [target.fetch for targets in self._granted.values() for target in targets]
        for fetch in (self._fetch, *fetches):
            if fetch is not None:
                fetch.stop()
        self._granted.clear()
        self._fetch = None
        self._postponed.clear()

    # ── what comes in ────────────────────────────────────────────────────────────────────────────────────────────

    def hear(self, body: bytes, at_ns: int, wire_bytes: int, topic: bytes) -> int:
        """A notification came in; returns how many messages it had."""
        link = self._link
        try:
            messages = messages_in(self._dialect.script.notification, body)
        except Unreadable as fault:
            link.listener.malformed(link, str(fault), Failure.UNEXPECTED)
            return 0
        if not messages:
            return 0
        share, rest = divmod(wire_bytes, len(messages))
        for place, (own_topic, payload) in enumerate(messages):
            own_bytes = share + (rest if not place else 0)
            link.listener.arrived(link, at_ns, 0, own_topic or topic, payload, own_bytes)
        return len(messages)

    def called(self, head: Head, body: bytes, at_ns: int, wire_bytes: int) -> bytes:
        """The middleware called; returns our answer."""
        self.hear(body, at_ns, wire_bytes, b"")
        return self._answer_to(head, body)

    def _answer_to(self, head: Head, body: bytes) -> bytes:
        dialect = self._dialect
        say = dialect.script.notification.answer
        if say is None:
            return answer_bytes(200, {}, b"")
        values: dict[str, Value] = {**self._link.known(), "id": next_id()}
        if say.keep:
            document = read_json(body)
            for name, where in say.keep.items():
                values[name] = picked(where, document, head.headers, 0) or ""
        headers = {name: _header(phrase, values) for name, phrase in dialect.answer_headers}
        content = b"" if dialect.answer_body is None else _filled(dialect.answer_body, values)
        return answer_bytes(say.statuses[0] if say.statuses else 200, headers, content)

    def postpone(self, caller: Caller) -> None:
        """The middleware called while we are paused; it is answered later."""
        self._postponed.append(caller)

    def pause(self) -> None:
        """Read nothing, answer nothing."""
        self.paused = True
        for fetch in self._fetches():
            fetch.pause()

    def resume(self) -> None:
        """Read and answer again, the postponed first."""
        self.paused = False
        for fetch in self._fetches():
            fetch.resume()
        postponed, self._postponed = self._postponed, []
        for place, caller in enumerate(postponed):
            # What one of them brought may have been as much as we take for now.
            if self.paused:
                self._postponed += postponed[place:]
                return
            caller.go_on()

    def _fetches(self) -> list[Fetch]:
        every = [target.fetch for targets in self._granted.values() for target in targets]
        return [fetch for fetch in (self._fetch, *every) if fetch is not None]

    def malformed(self, detail: str) -> None:
        """What came is no notification."""
        self._link.listener.malformed(self._link, detail)

    def lost(self, detail: str, reason: int) -> None:
        """Notifications will not come back by themselves."""
        self._link.lost(detail, reason)

    def idle_lost(self, connection: Connection) -> None:
        """The server closed a connection between two requests."""


def _filled(phrase: Phrase, values: Mapping[str, Value]) -> bytes:
    return phrase.render({name: values.get(name, "") for name in phrase.names})


def _header(phrase: Phrase, values: Mapping[str, Value]) -> str:
    """Nobody's value begins a header of its own."""
    text = _filled(phrase, values).decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else " " for letter in text)
