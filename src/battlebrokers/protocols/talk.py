"""A conversation in a contender's dialect: logging in, publishing, subscribing, taking leave.

Base class of links that carry such messages over one connection (WebSocket, MQTT): they write what is rendered here
and hand in what they read. It opens no connection itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from battlebrokers.errors import InputError, LinkError
from battlebrokers.protocols.base import (
    Endpoint,
    Failure,
    Granted,
    Held,
    LinkOptions,
    Listener,
    Outgoing,
    Subscription,
)
from battlebrokers.protocols.hearing import Hearing, code_of, shown
from battlebrokers.protocols.phrase import Value, fits, picked
from battlebrokers.protocols.script import Known, Listening, Say, Script
from battlebrokers.protocols.wrapping import Request, resource_of
from battlebrokers.scenario.topics import filter_matches
from battlebrokers.secrets import remember_named

GOODBYE_TIMEOUT_S = 2.0
_MOST_BOUND = 4096

Values = dict[str, Value]


class Talk(Hearing):
    """A link that speaks a dialect; subclasses bring the connection."""

    __slots__ = ("_bound", "places")

    def __init__(self, endpoint: Endpoint, options: LinkOptions, listener: Listener, script: Script) -> None:
        super().__init__(endpoint, options, listener, script)
        self._bound: dict[bytes, Request] = {}
        """The publish of each topic, ready to be filled in."""
        self.places: dict[str, list[Known]] = {}
        """What was subscribed to, and what the answers gave to remember for leaving again."""

    @abstractmethod
    def send(self, request: Request, values: Sequence[Values], outgoing: Outgoing) -> int:
        """Write the messages of a batch; returns the bytes."""

    # ── publishing ───────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def answered(self) -> bool:
        """Whether a publish is answered by the contender itself."""
        return self.script.publish is not None and self.script.publish.answer is not None

    @property
    def held(self) -> Held:
        """Whether, and why, a message handed over now would have to wait."""
        if not self.ready:
            return Held.OFFLINE
        if self.answered and len(self.pending) >= self.window:
            self.full = True
            return Held.WINDOW
        return Held.NO

    def left(self) -> int:
        """How many more messages may wait for their answer."""
        left = self.window - len(self.pending)
        if left <= 0:
            self.full = True
            return 0
        return left

    @property
    def unacknowledged(self) -> int:
        """Requests without an answer."""
        return len(self.pending)

    def publish(self, outgoing: Outgoing) -> int:
        """Render and hand over a batch of at most `room` messages; returns the bytes written."""
        say = self.script.publish
        if say is None:
            raise LinkError("the contender's file does not say how to publish")
        if not self.ready:
            raise LinkError("the link is not open")
        request = self._bound.get(outgoing.topic)
        if request is None:
            request = self._bind(say, outgoing.topic)
        payloads = outgoing.payloads
        count = len(payloads)
        first = self.serial + 1
        self.serial += count
        if isinstance(payloads, np.ndarray):
            data, size = payloads.tobytes(), payloads.shape[1]
            payloads = [data[at : at + size] for at in range(0, count * size, size)]
        values: list[Values] = [
            {"payload": payload, "id": serial, "seq": serial} for serial, payload in enumerate(payloads, first)
        ]
        if say.answer is not None:
            tick = self.await_answers()
            pending, shift = self.pending, outgoing.first_token - first
            for serial in range(first, first + count):
                pending[serial] = (say, serial + shift, tick, None)
            if not self.script.ids:
                self.queue_of(say).extend(range(first, first + count))
            if len(pending) >= self.window:
                self.full = True
        return self.send(request, values, outgoing)

    def _bind(self, say: Say, topic: bytes) -> Request:
        name = topic.decode("utf-8", "replace")
        known = {**self.known(), **_called(name), **self.options.known_of_topics.get(name, {})}
        try:
            request = Request(say, known, ("payload", "id", "seq"))
        except InputError as error:
            raise LinkError(error.message, hint=error.hint) from error
        if len(self._bound) >= _MOST_BOUND:
            self._bound.clear()
        self._bound[topic] = request
        return request

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def login(self) -> None:
        """Say the steps of the login; what their answers give is known from then on. Raises LinkError."""
        self.kept = {}
        self._bound.clear()
        self.places.clear()
        for say in self.script.login:
            self.kept |= await self.step(say, {})
            # A notification may have been answered before this was known.
            self.reply = None

    async def step(self, say: Say, place: Known, qos: int = 0) -> Known:  # noqa: ARG002 - for brokers below
        """Say one thing, wait for its answer if it has one; what it gives to remember. Raises LinkError."""
        try:
            request = Request(say, {**self.known(), **place}, ("id", "seq"))
        except InputError as error:
            raise LinkError(error.message, hint=error.hint) from error
        self.serial += 1
        serial = self.serial
        target, body, _ = request.render({"id": serial, "seq": serial})
        if say.answer is None:
            self.say(target, body)
            return {}
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.pending[serial] = (say, -1, self.await_answers(), waiter)
        if not self.script.ids:
            self.queue_of(say).append(serial)
        try:
            self.say(target, body)
            document = await waiter
        finally:
            self.pending.pop(serial, None)
        if say.success and not fits(document, say.success):
            words = shown(str(document).encode("utf-8", "replace"))
            code = code_of(document, [*say.success, *say.answer])
            raise LinkError(f"it said no to {shown(body)}: {words}", code=code if code > 0 else Failure.UNEXPECTED)
        kept: Known = {}
        for name, where in say.keep.items():
            value = picked(where, document, {}, 0)
            if value is None:
                words = f"its answer to {shown(body)} has no {where} (`keep: {name}`)"
                raise LinkError(words, code=Failure.UNEXPECTED)
            kept[name] = value
        remember_named(kept)
        return kept

    # ── subscriptions ────────────────────────────────────────────────────────────────────────────────────────────

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> list[Granted]:
        """Say what the contender wants to hear for each; a refusal is an answer, silence a LinkError."""
        listening = self.script.listening
        if listening is None:
            raise LinkError("the contender's file does not say how to subscribe")
        if not self.ready:
            raise LinkError("subscribing needs an open link")
        # Notifications may come before the answer does.
        self.listens = True
        granted: list[Granted] = []
        said: dict[int, Known] = {}
        for wanted in subscriptions:
            places = self._concerned(listening, wanted)
            if wanted.share:
                granted.append(Granted(wanted, -1, Failure.UNEXPECTED))
                continue
            try:
                await self._along(listening.steps, places, wanted, said)
            except LinkError as error:
                if not self.ready or error.code in {Failure.TIMEOUT, Failure.CLOSED, Failure.TRUNCATED}:
                    raise
                granted.append(Granted(wanted, -1, error.code))
            else:
                self.places[wanted.wire_filter] = places
                granted.append(Granted(wanted, min(wanted.qos, max(self.capabilities.qos)), 0))
        self.listens = bool(self.places)
        return granted

    async def unsubscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """Stop them again."""
        listening = self.script.listening
        said: dict[int, Known] = {}
        for wanted in subscriptions:
            places = self.places.pop(wanted.wire_filter, None)
            if places is not None and listening is not None:
                await self._along(listening.undo, places, wanted, said)
        self.listens = bool(self.places)

    async def leave(self) -> None:
        """Undo what was subscribed to and log out, as far as that is answered soon."""
        if not self.ready:
            return
        with contextlib.suppress(LinkError, TimeoutError):
            async with asyncio.timeout(GOODBYE_TIMEOUT_S):
                await self.unsubscribe([Subscription(name) for name in self.places])
                for say in self.script.logout:
                    await self.step(say, {})

    def _concerned(self, listening: Listening, wanted: Subscription) -> list[Known]:
        """What templates may use for a subscription: one set for the filter, or one for every topic under it."""
        topics = [wanted.filter]
        if not listening.wildcards:
            known = self.options.known_of_topics
            topics = [topic for topic in known if filter_matches(wanted.filter, topic)] or topics
        return [{**_called(topic), **self.options.known_of_topics.get(topic, {}), "filter": topic} for topic in topics]

    async def _along(
        self, says: Sequence[Say], places: list[Known], wanted: Subscription, said: dict[int, Known]
    ) -> None:
        """Say steps for every place, or once if they name none; places remember what the answers gave."""
        for say in says:
            if say.repeat:
                for place in places:
                    place |= await self.step(say, place, wanted.qos)
                continue
            gained = said.get(id(say))
            if gained is None or b"${filter" in msgspec.json.encode(say):
                gained = await self.step(say, {**places[0], "filter": wanted.filter}, wanted.qos)
                said[id(say)] = gained
            for place in places:
                place |= gained


def _called(topic: str) -> Known:
    return {"topic": topic, "resource": resource_of(topic)}
