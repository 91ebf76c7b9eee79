"""Datagrams in a contender's dialect: wrapped, sent to an address of the topic's, in a network of the node's own.

Made by the registry. A client asks by datagram, or over HTTP where the contender answers there, and is told on its own
socket or at an address of the topic's. Without a dialect a link is plain.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import TYPE_CHECKING

from battlebrokers.errors import InputError, LinkError
from battlebrokers.protocols.base import Endpoint, Failure, Granted, LinkOptions, Listener, Opened, Subscription
from battlebrokers.protocols.datagrams import Datagrams
from battlebrokers.protocols.phrase import plain
from battlebrokers.protocols.script import Known, Listening, Notification, Say
from battlebrokers.protocols.udp.plain import SHARES_NOT_SUPPORTED, UdpLink
from battlebrokers.protocols.wrapping import Request, completed, known_about, publishing, subscribing, unwrapped

if TYPE_CHECKING:
    from battlebrokers.protocols.udp.asking import Asking

GOODBYE_TIMEOUT_S = 2.0
PAYLOAD_ALONE = "${payload}"


class ScriptedUdpLink(UdpLink):
    """One that says what the contender wants to hear."""

    __slots__ = ("_ids", "_learned", "_plainly_told", "_requests", "_script")

    structured = True

    def __init__(self, endpoint: Endpoint, options: LinkOptions, listener: Listener) -> None:
        super().__init__(endpoint, options, listener)
        script = completed(options.script)
        assert script is not None
        self._script = script
        self._plainly_told = script.notification == Notification()
        """Whether a notification is the payload and nothing else."""
        self._requests: dict[bytes, Request] = {}
        self._learned: dict[str, Known] = {}
        """Filter → what the answers to its subscription gave to remember."""
        self._ids = itertools.count(1)

    async def open(self) -> Opened:
        """Open a socket where the node lives, and log in."""
        if self._script.namespace:
            self._namespace = self._filled(self._script.namespace)
        opened = await super().open()
        for say in self._script.login:
            self._send(say)
        return opened

    def _why_not(self, error: OSError, place: str) -> LinkError:
        if not self._namespace:
            return super()._why_not(error, place)
        if error.errno in (errno.EPERM, errno.EACCES):
            return LinkError(f"sockets in the network {self._namespace} need root rights", hint="run it with sudo")
        words = f"the network {self._namespace} cannot be used: {error.strerror or error}"
        return LinkError(words, hint="is it there? `ip netns list`")

    def _send(self, say: Say) -> None:
        request = Request(say, self.options.known, ("id",))
        self._opened().send(request.render({"id": str(next(self._ids))})[1])

    def _filled(self, template: str, topic: str = "") -> str:
        known = known_about(self.options, topic) if topic else self.options.known
        try:
            return plain(template).bind(known).require().render({}).decode("utf-8", "replace")
        except InputError as error:
            raise LinkError(error.message, hint=error.hint) from error

    # ── subscriptions ────────────────────────────────────────────────────────────────────────────────────────────

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> list[Granted]:
        """Say what the dialect says for each; shared groups are refused, and so is what the contender refuses."""
        self._opened()
        listening = self._script.listening
        if listening is None:
            return await super().subscribe(subscriptions)
        answers = []
        async with self._asking(listening.steps) as asking:
            for wanted in subscriptions:
                if wanted.share:
                    answers.append(Granted(wanted, -1, SHARES_NOT_SUPPORTED))
                else:
                    answers.append(await self._agree(listening, wanted, asking))
        return answers

    async def _agree(self, listening: Listening, wanted: Subscription, asking: Asking | None) -> Granted:
        """Listen first, then ask: what comes right after the answer is not missed."""
        if listening.at:
            bound = self._bind(wanted, self._filled(listening.at, wanted.filter), wanted.filter.encode())
            if bound.qos < 0:
                return bound
        else:
            self._bound[wanted.filter] = (None, wanted.filter.encode())
        try:
            self._learned[wanted.filter] = await self._say(listening.steps, wanted.filter, asking)
        except LinkError as error:
            self._unbind(wanted.filter)
            if error.code in {Failure.TIMEOUT, Failure.CLOSED}:
                raise
            return Granted(wanted, -1, error.code)
        return Granted(wanted, 0, 0)

    async def unsubscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """Give the addresses back, once the contender has heard of it."""
        self._opened()
        undo = self._script.listening.undo if self._script.listening is not None else []
        async with self._asking(undo) as asking:
            for wanted in subscriptions:
                if wanted.filter in self._bound:
                    try:
                        await self._say(undo, wanted.filter, asking)
                    finally:
                        self._unbind(wanted.filter)
                        self._learned.pop(wanted.filter, None)

    async def _say(self, says: Sequence[Say], topic: str, asking: Asking | None) -> Known:
        """Say steps about a topic; what their answers give to remember."""
        learned = dict(self._learned.get(topic, {}))
        for say in says:
            is_request = say.verb != "send"
            request = subscribing(say, self.options, topic, learned=learned, url=is_request)
            number = str(next(self._ids))
            if is_request and asking is not None:
                learned |= await asking.ask(request, number)
            else:
                self._opened().send(request.render({"id": number})[1])
        return learned

    def _asking(self, says: Sequence[Say]) -> AbstractAsyncContextManager[Asking | None]:
        if all(say.verb == "send" for say in says):
            return nullcontext()
        from battlebrokers.protocols.udp.asking import asking  # slow to import, and few dialects need it

        return asking(self.options.requests_at, self.options.answer_timeout_s)

    async def close(self) -> None:
        """Leave what was subscribed to, log out and close the sockets."""
        if self._broker is not None:
            with suppress(LinkError, TimeoutError):
                async with asyncio.timeout(GOODBYE_TIMEOUT_S):
                    await self.unsubscribe([Subscription(topic) for topic in self._bound])
        if self._broker is not None:
            for say in self._script.logout:
                self._send(say)
        self.abort()

    def abort(self) -> None:
        """Close the sockets."""
        self._learned.clear()
        super().abort()

    # ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _goes_to(self, topic: str) -> str:
        return self._filled(self._script.to, topic) if self._script.to else ""

    def _wrapped(self, topic: bytes, payloads: list[bytes]) -> list[bytes]:
        request = self._requests.get(topic)
        if request is None:
            say = self._script.publish
            if say is None:
                return payloads
            if say.text == PAYLOAD_ALONE and say.json is None:
                self.structure_bytes = len(payloads[-1])
                return payloads
            request = self._requests[topic] = publishing(say, self.options, topic.decode())
        wrapped = []
        for payload in payloads:
            number = str(next(self._ids))
            wrapped.append(request.render({"payload": payload, "id": number, "seq": number})[1])
        self.structure_bytes = len(wrapped[-1])
        return wrapped

    def datagrams_came(self, source: Datagrams, datagrams: list[bytes]) -> None:
        """What comes at a topic's address is of that topic; what comes from the broker, its dialect tells."""
        topic = self._topics.get(source)
        if topic is not None and self._plainly_told:
            self._tell(self.listener.now_ns(), topic, datagrams)
            return
        if topic is None:
            if source is not self._broker or self._script.listening is None or not self._bound:
                return
            topic = next(iter(self._bound.values()))[1]
        at_ns = self.listener.now_ns()
        for data in datagrams:
            found = unwrapped(self._script.notification, data, topic)
            if found is None:
                words = f"a datagram of {len(data)} bytes is no notification"
                self.listener.malformed(self, words, Failure.UNEXPECTED)
                continue
            for name, payload in found:
                self.listener.arrived(self, at_ns, 0, name, payload, len(data))
