"""The half of a CoAP link that publishes: room, requests, and what their answers mean.

Base class of `CoapLink`, which adds opening, closing and observing. Nothing here waits.
"""

from __future__ import annotations

import asyncio
import itertools
from functools import partial

import numpy as np

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Completion, Endpoint, Held, Link, LinkOptions, Listener, Outgoing
from battlebrokers.protocols.coap.dialogue import Plain, Wrapped, judged, wrapped
from battlebrokers.protocols.coap.message import CON, LONGEST_SEGMENT_BYTES, NON, Message
from battlebrokers.protocols.coap.talk import Exchange, Talk
from battlebrokers.protocols.datagrams import Datagrams
from battlebrokers.protocols.script import Known
from battlebrokers.protocols.wrapping import completed, window_of

DEFAULT_WINDOW = 8
"""Requests in flight unless somebody says otherwise; the RFC's own device has one."""
LARGEST_WINDOW = 16_384
TOPIC_INVALID = 0x90


class Publisher(Link):
    """What a CoAP link needs to publish."""

    __slots__ = (
        "_full", "_in_flight", "_publishes", "_window", "endpoint", "ids", "learned", "listener", "options", "script",
        "socket", "talk",
    )  # fmt: skip

    def __init__(self, endpoint: Endpoint, options: LinkOptions, listener: Listener) -> None:
        super().__init__()
        self.endpoint = endpoint
        self.options = options
        self.listener = listener
        self.script = completed(options.script)
        self.socket: Datagrams | None = None
        self.talk: Talk | None = None
        self.learned: Known = {}
        """What answers to the dialect's steps gave to remember."""
        self.ids = itertools.count(1)
        self._window = min(window_of(options.script, options, DEFAULT_WINDOW), LARGEST_WINDOW)
        self._publishes: dict[bytes, Plain | Wrapped] = {}
        self._in_flight = 0
        self._full = False

    def opened(self) -> Talk:
        """The talk of an open link; else LinkError."""
        if self.talk is None:
            raise LinkError("the link is not open")
        return self.talk

    def forget(self) -> None:
        """Nothing is in flight, and nothing known of earlier answers."""
        self.learned.clear()
        self._publishes.clear()
        self._in_flight = 0
        self._full = False

    @property
    def held(self) -> Held:
        """Whether, and why, a message handed over now would have to wait."""
        if self.talk is None or self.socket is None:
            return Held.OFFLINE
        if self.socket.waiting:
            return Held.SOCKET
        if self._in_flight >= self._window:
            self._full = True
            return Held.WINDOW
        return Held.NO

    def room(self, qos: int) -> int:  # noqa: ARG002
        """What the window leaves; requests of every QoS are answered."""
        if self.socket is None or self.socket.waiting:
            return 0
        left = self._window - self._in_flight
        if left <= 0:
            self._full = True
        return max(0, left)

    def publish(self, outgoing: Outgoing) -> int:
        """Send one request for each message."""
        talk = self.opened()
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
            ask = publish.ask(payload, str(next(self.ids)))
            written += talk.ask(
                kind, ask.code, ask.options, ask.body, self._published, encoded=ask.encoded, label=token
            )
            self.structure_bytes, self.url_bytes = len(ask.body), ask.url_bytes
        return written

    def _publish_of(self, topic: str) -> Plain | Wrapped:
        script = self.script
        if script is None or script.publish is None:
            return Plain(self.endpoint, topic)
        return wrapped(self.endpoint, script.publish, self.options, topic, self.learned)

    def _refuse(self, tokens: range, reason: int) -> None:
        tell = partial(self.listener.acknowledged, self, tokens, self.listener.now_ns(), Completion.REFUSED, reason)
        asyncio.get_running_loop().call_soon(tell)

    def _published(self, exchange: Exchange, result: int, message: Message | None) -> None:
        script = self.script
        wrong = judged(script.publish if script is not None else None, result, message)
        self._in_flight -= 1
        completion = Completion.ACKED if not wrong else Completion.REFUSED if wrong > 0 else Completion.FAILED
        self.listener.acknowledged(self, (exchange.label,), self.listener.now_ns(), completion, wrong)
        if self._full and self._in_flight < self._window and self.talk is not None:
            self._full = False
            self.listener.writable(self)

    @property
    def unacknowledged(self) -> int:
        """Requests nobody has answered."""
        return self._in_flight
