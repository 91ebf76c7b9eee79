"""A contender's dialect over MQTT: JSON to its own topics, answers on another, notifications taken apart.

A link around an MQTT link: that one speaks with the broker, this one with the middleware behind it. Where the dialect
knows no answer to a publish, MQTT's own completion contract holds.
"""

# ruff: noqa: ARG002 - the only link it listens to is its own
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from battlebrokers.errors import InputError, LinkError
from battlebrokers.protocols.base import (
    Arrivals,
    Capabilities,
    Completion,
    Endpoint,
    EqualArrivals,
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
from battlebrokers.protocols.hearing import Heard
from battlebrokers.protocols.mqtt.link import MqttLink
from battlebrokers.protocols.mqtt.transport import name_of
from battlebrokers.protocols.phrase import plain
from battlebrokers.protocols.script import Known, Listening, Say, Script
from battlebrokers.protocols.talk import Talk, Values
from battlebrokers.protocols.wrapping import Request
from battlebrokers.scenario.topics import filter_matches
from battlebrokers.secrets import Secret

_NO_SCRIPT = Script("mqtt")
_OF_A_DIALOGUE = -1
"""The token of what is no message of the scenario."""
_MOST_PLACES = 1024


class _Honest:
    """What links of the class can do, or one link with its dialect: who acknowledges depends on that."""

    def __init__(self) -> None:
        self.of_class = replace(
            MqttLink.capabilities,
            # What the broker keeps or sends by itself is not in the dialect.
            persistent_session=False,
            will=False,
            shared_subscription=False,
            completion={**MqttLink.capabilities.completion, 0: "handed to the transport, or the answer received"},
        )

    def __get__(self, link: ScriptedMqttLink | None, owner: type[ScriptedMqttLink]) -> Capabilities:
        if link is None:
            return self.of_class
        listening = link.script.listening
        found = replace(
            self.of_class, receive=listening is not None, wildcards=listening is not None and listening.wildcards
        )
        if not link.answered:
            return replace(found, completion=MqttLink.capabilities.completion)
        return replace(found, acknowledges=found.qos, completion=dict.fromkeys(found.qos, "the answer received"))


class ScriptedMqttLink(Talk):
    """One device or client of a middleware behind an MQTT broker; listens to its own MQTT link."""

    __slots__ = ("_inner", "_places_heard", "_reading_paused", "_replies", "_strays_before")

    capabilities = _Honest()

    def __init__(self, endpoint: Endpoint, options: LinkOptions, listener: Listener) -> None:
        super().__init__(endpoint, options, listener, options.script or _NO_SCRIPT)
        self._inner: MqttLink | None = None
        self._replies = ""
        self._places_heard: dict[tuple[bytes, int], Heard] = {}
        self._reading_paused = False
        self._strays_before = 0
        """Of connections whose link was replaced."""

    # ── opening and closing ──────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> Opened:
        """Connect with the dialect's credentials, listen for replies, log in."""
        self.kept = {}
        try:
            options = self._credentials()
            self._replies = self._filled(self.script.replies)
        except InputError as error:
            raise LinkError(error.message, hint=error.hint) from error
        # What waits for an answer of the middleware has failed with the old connection and must not be sent again.
        if self._inner is None or self.answered:
            self._strays_before = self.stray_acknowledgements
            self._inner = MqttLink(self.endpoint, options, self)
            if self._reading_paused:
                self._inner.pause_reading()
        inner = self._inner
        self._places_heard.clear()
        opened = await inner.open()
        self.heard_ns = opened.received_ns
        try:
            if self._replies:
                await self._ask_for(self._replies, 1)
            await self.login()
            self._check_there(inner)
        except LinkError as error:
            self._discard(inner)
            raise LinkError(f"{name_of(self.endpoint)}: {error.message}", hint=error.hint, code=error.code) from error
        except BaseException:
            self._discard(inner)
            raise
        self.ready = True
        return replace(opened, received_ns=max(self.heard_ns, opened.received_ns))

    def _credentials(self) -> LinkOptions:
        options, script = self.options, self.script
        username, password = options.username, options.password
        if script.username:
            username = self._filled(script.username)
        if script.password:
            password = Secret(self._filled(script.password))
        return replace(options, script=None, username=username, password=password)

    def _filled(self, template: str) -> str:
        return plain(template).bind(self.known()).require().render({}).decode()

    def _check_there(self, inner: MqttLink) -> None:
        if inner.connection is None:
            raise LinkError("it accepted the connection and closed it at once", code=Failure.CLOSED)

    def _discard(self, inner: MqttLink) -> None:
        inner.abort()
        self.drop("the login failed", Failure.CLOSED)

    async def close(self) -> None:
        """Undo, log out, say goodbye properly and close."""
        await self.leave()
        if self._inner is not None:
            try:
                await self._inner.close()
            finally:
                self.drop("the link was closed", Failure.CLOSED)

    def abort(self) -> None:
        """Drop the connection without a word, as a crash would."""
        if self._inner is not None:
            self._inner.abort()
            self.drop("the link was closed", Failure.CLOSED)

    def fail(self, detail: str, reason: int) -> None:
        """End the connection and tell so."""
        was_ready = self.ready
        if self._inner is not None:
            self._inner.abort()
        self.drop(detail, reason)
        if was_ready:
            self.listener.closed(self, detail, reason)

    # ── speaking ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def held(self) -> Held:
        """Whether, and why, a message handed over now would have to wait."""
        if self.ready and self._inner is not None and self._inner.held is not Held.NO:
            return self._inner.held
        return super().held

    def room(self, qos: int) -> int:
        """How many messages of that QoS `publish` takes now; 0 when held."""
        if not self.ready or self._inner is None:
            return 0
        room = self._inner.room(qos)
        return min(room, self.left()) if self.answered else room

    @property
    def unacknowledged(self) -> int:
        """Messages whose completion contract is still open."""
        if self.answered:
            return len(self.pending)
        return self._inner.unacknowledged if self._inner is not None else 0

    @property
    def stray_acknowledgements(self) -> int:
        """Acknowledgements of the broker that named nothing of ours."""
        return self._strays_before + (self._inner.stray_acknowledgements if self._inner is not None else 0)

    def say(self, target: bytes, body: bytes) -> None:
        """Publish one message of a dialogue now."""
        inner = self._inner
        if inner is None or inner.connection is None:
            raise LinkError("the link is not open", code=Failure.CLOSED)
        qos = 1 if inner.room(1) else 0
        inner.publish(Outgoing(target, [body], qos, retain=False, first_token=_OF_A_DIALOGUE))

    def send(self, request: Request, values: Sequence[Values], outgoing: Outgoing) -> int:
        """Publish the messages of a batch; returns the bytes."""
        inner = self._inner
        assert inner is not None
        render = request.body.render if request.body is not None else None
        bodies = [render(each) for each in values] if render else [b""] * len(values)
        if not bodies:
            return 0
        target, qos, retain, token = request.target, outgoing.qos, outgoing.retain, outgoing.first_token
        self.structure_bytes = len(bodies[-1])
        if not target.names:
            topic = target.render({})
            self.url_bytes = len(topic)
            return inner.publish(Outgoing(topic, bodies, qos, retain, token))
        written = 0
        for place, (each, body) in enumerate(zip(values, bodies, strict=True)):
            topic = target.render(each)
            self.url_bytes = len(topic)
            written += inner.publish(Outgoing(topic, [body], qos, retain, token + place))
        return written

    # ── subscriptions ────────────────────────────────────────────────────────────────────────────────────────────

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> list[Granted]:
        """Say the dialect's steps for each, or ask the broker itself where the dialect has none."""
        listening = self.script.listening
        if listening is None or listening.steps or not self.ready or self._inner is None:
            return await super().subscribe(subscriptions)
        self.listens = True
        granted = await self._inner.subscribe(subscriptions)
        self.listens = any(each.qos >= 0 for each in granted)
        return granted

    async def unsubscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """Stop them again: topics of the dialect's own are left, too."""
        listening = self.script.listening
        inner = self._inner
        if listening is None or inner is None:
            return
        if not listening.steps:
            await inner.unsubscribe(subscriptions)
            return
        before = self._topics()
        await super().unsubscribe(subscriptions)
        left = before - self._topics()
        if left:
            await inner.unsubscribe([Subscription(topic) for topic in sorted(left)])

    def _topics(self) -> set[str]:
        """The topics of the dialect's own that all subscriptions need."""
        says = [say for say in (self.script.listening or Listening()).steps if say.verb == "subscribe"]
        return {self._topic(say, place) for say in says for places in self.places.values() for place in places}

    async def step(self, say: Say, place: Known, qos: int = 0) -> Known:
        """Say one thing; `subscribe` is said to the broker itself."""
        if say.verb != "subscribe":
            return await super().step(say, place, qos)
        await self._ask_for(self._topic(say, place), qos)
        return {}

    def _topic(self, say: Say, place: Known) -> str:
        try:
            return Request(say, {**self.known(), **place}, ()).target.render({}).decode()
        except InputError as error:
            raise LinkError(error.message, hint=error.hint) from error

    async def _ask_for(self, topic: str, qos: int) -> None:
        assert self._inner is not None
        (granted,) = await self._inner.subscribe([Subscription(topic, qos)])
        if granted.qos < 0:
            raise LinkError(f"the broker refused a subscription to {topic}", code=granted.reason)

    # ── what the MQTT link tells ─────────────────────────────────────────────────────────────────────────────────

    def now_ns(self) -> int:
        """The clock to stamp arrivals with."""
        return self.listener.now_ns()

    def acknowledged(self, link: Link, tokens: Sequence[int], at_ns: int, completion: Completion, reason: int) -> None:
        """The broker's word counts where the middleware has none of its own; its no always does."""
        ours = [token for token in tokens if token != _OF_A_DIALOGUE]
        if self.answered and completion is Completion.ACKED:
            return
        if self.answered:
            self.forget(serial for serial, asked in [*self.pending.items()] if asked[1] in set(ours))
        if ours:
            self.listener.acknowledged(self, ours, at_ns, completion, reason)

    def resent(self, link: Link, tokens: Sequence[int]) -> None:
        """Passed on, without what is no message of the scenario."""
        ours = [token for token in tokens if token != _OF_A_DIALOGUE]
        if ours:
            self.listener.resent(self, ours)

    def arrived(self, link: Link, at_ns: int, flags: int, topic: bytes, payload: bytes, wire_size: int) -> None:
        """One MQTT message: an answer or a notification."""
        self.hear(bytes(payload), at_ns, wire_size, self._heard_on(bytes(topic), flags))
        self.settle(at_ns)

    def arrived_many(self, link: Link, at_ns: int, arrivals: Arrivals | EqualArrivals) -> None:
        """Several MQTT messages of one chunk."""
        data = arrivals.data
        for flags, topic, topic_size, start, size, wire_bytes in zip(
            arrivals.flags.tolist(), arrivals.topic_starts.tolist(), arrivals.topic_sizes.tolist(),
            arrivals.payload_starts.tolist(), arrivals.payload_sizes.tolist(), arrivals.wire_sizes.tolist(),
            strict=True,
        ):  # fmt: skip
            heard = self._heard_on(data[topic : topic + topic_size], flags)
            self.hear(data[start : start + size], at_ns, wire_bytes, heard)
        self.settle(at_ns)

    def _heard_on(self, topic: bytes, flags: int) -> Heard:
        found = self._places_heard.get((topic, flags))
        if found is None:
            replies = self._replies
            is_reply = bool(replies) and filter_matches(replies, topic.decode("utf-8", "replace"))
            found = Heard(topic, flags, may_answer=is_reply or not replies, may_notify=not is_reply)
            if len(self._places_heard) >= _MOST_PLACES:
                self._places_heard.clear()
            self._places_heard[topic, flags] = found
        return found

    def writable(self, link: Link) -> None:
        """The MQTT link takes messages again."""
        if self.ready:
            self.listener.writable(self)

    def closed(self, link: Link, detail: str, reason: int) -> None:
        """The connection ended without our asking."""
        was_ready = self.ready
        self.drop(detail, Failure.CLOSED)
        if was_ready:
            self.listener.closed(self, detail, reason)

    def malformed(self, link: Link, detail: str, kind: Failure = Failure.MALFORMED) -> None:
        """Passed on."""
        self.listener.malformed(self, detail, kind)

    # ── a slow reader ────────────────────────────────────────────────────────────────────────────────────────────

    def pause_reading(self) -> None:
        """Stop taking bytes from the broker; stays so when connecting again."""
        self._reading_paused = True
        if self._inner is not None:
            self._inner.pause_reading()

    def resume_reading(self) -> None:
        """Take bytes again."""
        self._reading_paused = False
        if self._inner is not None:
            self._inner.resume_reading()
