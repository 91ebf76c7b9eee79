"""The half of an AMQP link that speaks: room, publishing in bulk, confirms.

Base class of `AmqpLink`. A batch is one bytes object and one write; nothing here waits.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from pamqp import commands

from battlebrokers.errors import InputError, LinkError
from battlebrokers.protocols.amqp.connection import CONFIRM_CHANNEL, PLAIN_CHANNEL, WRITE_HIGH_BYTES
from battlebrokers.protocols.amqp.frames import LONGEST_KEY_BYTES, PERSISTENT, Envelope, key_of_topic
from battlebrokers.protocols.base import Completion, Failure, Held, Link, LinkOptions, Listener, Outgoing
from battlebrokers.protocols.phrase import Value
from battlebrokers.protocols.script import Known, Say
from battlebrokers.protocols.wheel import patience
from battlebrokers.protocols.wrapping import Request, completed, publishing, window_of

if TYPE_CHECKING:
    from battlebrokers.protocols.amqp.connection import Connection

EXCHANGE = "amq.topic"
NACKED = 120
"""basic.nack has no code; its method number stands for it."""
TOPIC_INVALID, RETAIN_NOT_SUPPORTED, QOS_NOT_SUPPORTED = 0x90, 0x9A, 0x9B
"""Our own refusals bear MQTT's reason codes, which reports know."""
DEFAULT_WINDOW = 65_535


class Publisher(Link):
    """What an AMQP link needs to publish."""

    __slots__ = (
        "_deadlines", "_envelopes", "_ids", "_next_tag", "_open", "_refusals", "_requests", "_typical_bytes",
        "connection", "exchange", "full", "listener", "options", "script", "window",
    )  # fmt: skip

    def __init__(self, options: LinkOptions, listener: Listener) -> None:
        super().__init__()
        self.options = options
        self.script = completed(options.script)
        self.listener = listener
        self.connection: Connection | None = None
        self.exchange = EXCHANGE
        self.window = window_of(options.script, options, DEFAULT_WINDOW)
        self.full = False
        """The window was hit, and the listener has not been told of room since."""
        self._open: dict[int, int] = {}
        """Delivery tag → token, oldest first."""
        self._deadlines: deque[tuple[int, int]] = deque()
        """(tick, last delivery tag of a batch): when its confirm is too late."""
        self._refusals: dict[int, int] = {}
        """Delivery tag → the code it was returned with; the confirm that follows settles it."""
        self._next_tag = 1
        self._envelopes: dict[tuple[bytes, int], Envelope] = {}
        self._requests: dict[bytes, Request] = {}
        self._ids = itertools.count(1)
        self._typical_bytes = 1024

    def begin(self, connection: Connection) -> None:
        """A new connection: tags count from one."""
        self.forget()
        self.connection = connection

    def forget(self) -> None:
        """Nothing is in flight any more."""
        self._open.clear()
        self._deadlines.clear()
        self._refusals.clear()
        self._next_tag = 1
        self.full = False

    def in_flight_tokens(self) -> list[int]:
        """The tokens nobody has confirmed."""
        return list(self._open.values())

    def _connected(self) -> Connection:
        if self.connection is None:
            raise LinkError("the link is not open")
        return self.connection

    # ── room ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def held(self) -> Held:
        """Whether, and why, a message handed over now would have to wait."""
        if self.connection is None:
            return Held.OFFLINE
        if self.connection.paused:
            return Held.SOCKET
        if len(self._open) >= self.window:
            self.full = True
            return Held.WINDOW
        return Held.NO

    def room(self, qos: int) -> int:
        """How many messages of that QoS `publish` takes now; 0 when held."""
        connection = self.connection
        if connection is None or connection.paused:
            return 0
        # While the transport is not paused, one message is always welcome, however large.
        fitting = max(1, (WRITE_HIGH_BYTES - connection.transport.get_write_buffer_size()) // self._typical_bytes)
        if not qos:
            return fitting
        left = self.window - len(self._open)
        if left <= 0:
            self.full = True
            return 0
        return min(fitting, left)

    def drained(self) -> None:
        """The transport takes bytes again."""
        self.listener.writable(self)

    @property
    def unacknowledged(self) -> int:
        """Messages nobody has confirmed."""
        return len(self._open)

    # ── publishing ───────────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, outgoing: Outgoing) -> int:
        """Hand over a batch of at most `room` messages; returns the bytes written to the transport."""
        connection = self._connected()
        count = outgoing.count
        if not count:
            return 0
        tokens = range(outgoing.first_token, outgoing.first_token + count)
        refusal = _refusal_of(outgoing)
        if refusal:
            tell = partial(self.listener.acknowledged, self, tokens, self.listener.now_ns(), Completion.REFUSED)
            asyncio.get_running_loop().call_soon(tell, refusal)
            return 0
        script = self.script
        if script is None or script.publish is None:
            data = self._envelope(outgoing.topic, outgoing.qos).batch(outgoing.payloads, connection.frame_max)
        else:
            data = self._wrapped(outgoing, connection.frame_max)
        if outgoing.qos:
            first = self._next_tag
            self._next_tag = first + count
            self._open.update(zip(range(first, self._next_tag), tokens, strict=True))
            late = connection.wheel.tick + patience(self.options.answer_timeout_s)
            self._deadlines.append((late, self._next_tag - 1))
        self._typical_bytes = len(data) // count or 1
        connection.write(data)
        return len(data)

    def _envelope(self, topic: bytes, qos: int) -> Envelope:
        found = self._envelopes.get((topic, qos))
        if found is None:
            channel = CONFIRM_CHANNEL if qos else PLAIN_CHANNEL
            properties = commands.Basic.Properties(delivery_mode=PERSISTENT if qos else None)
            key = key_of_topic(topic).decode("utf-8", "replace")
            found = self._envelopes[topic, qos] = Envelope(channel, self.exchange, key, properties)
        return found

    def _wrapped(self, outgoing: Outgoing, frame_max: int) -> bytes:
        """A batch as the contender's dialect wants it: routing key, headers and body of each message rendered."""
        request = self._requests.get(outgoing.topic)
        if request is None:
            script = self.script
            assert script is not None
            assert script.publish is not None
            request = self._requests[outgoing.topic] = publishing(script.publish, self.options, outgoing.topic.decode())
        payloads = outgoing.payloads
        each = (row.tobytes() for row in payloads) if isinstance(payloads, np.ndarray) else payloads
        parts = []
        for place, payload in enumerate(each):
            number = str(next(self._ids))
            values: dict[str, Value] = {"payload": payload, "id": number, "seq": number}
            tag = self._next_tag + place if outgoing.qos else 0
            parts.append(self.letter(request, values, frame_max, tag=tag, key=key_of_topic(outgoing.topic)))
        return b"".join(parts)

    def letter(
        self, request: Request, values: dict[str, Value], frame_max: int, *, tag: int = 0, key: bytes = b""
    ) -> bytes:
        """One message of a dialect; with a tag it is confirmed, and `key` is its routing key unless it names one."""
        target, body, pairs = request.render(values)
        headers = {name: value.decode("utf-8", "replace") for name, value in pairs}
        exchange = headers.pop("exchange", self.exchange)
        mandatory = headers.pop("mandatory", "") == "true"
        properties = commands.Basic.Properties(
            content_type=headers.pop("content_type", None),
            headers=dict(headers) or None,
            delivery_mode=PERSISTENT if tag else None,
            # A returned message has no delivery tag: this tells which one it is.
            message_id=str(tag) if mandatory and tag else None,
        )
        route = (target or key).decode()
        self.structure_bytes, self.url_bytes = len(body), len(route)
        channel = CONFIRM_CHANNEL if tag else PLAIN_CHANNEL
        return Envelope(channel, exchange, route, properties, mandatory=mandatory).single(body, frame_max)

    def said(self, says: Iterable[Say], known: Known) -> list[bytes]:
        """The messages of a dialogue, ready to be written; nobody answers them."""
        connection = self._connected()
        made = []
        for say in says:
            try:
                request = Request(say, known, ("id", "seq"))
            except InputError as error:
                raise LinkError(error.message, hint=error.hint) from error
            number = str(next(self._ids))
            made.append(self.letter(request, {"id": number, "seq": number}, connection.frame_max))
        return made

    # ── confirms ─────────────────────────────────────────────────────────────────────────────────────────────────

    def returned(self, tag: int, code: int, at_ns: int) -> None:  # noqa: ARG002
        """Nobody wanted a mandatory message; its confirm comes right behind."""
        if tag in self._open:
            self._refusals[tag] = code

    def confirmed(self, tag: int, multiple: bool, good: bool, at_ns: int) -> None:
        """basic.ack or basic.nack came."""
        waiting = self._open
        if multiple:
            tags = list(itertools.takewhile(lambda each: each <= tag, waiting)) if tag else list(waiting)
        else:
            tags = [tag] if tag in waiting else []
        if not tags:
            return
        refused = [(waiting.pop(each), self._refusals.pop(each)) for each in tags if each in self._refusals]
        tokens = [waiting.pop(each) for each in tags if each in waiting]
        if tokens and good:
            self.listener.acknowledged(self, tokens, at_ns, Completion.ACKED, 0)
        elif tokens:
            self.listener.acknowledged(self, tokens, at_ns, Completion.REFUSED, NACKED)
        for token, code in refused:
            self.listener.acknowledged(self, (token,), at_ns, Completion.REFUSED, code)
        self._told_of_room()

    def expire(self, tick: int) -> None:
        """Confirms that are due by now have failed."""
        deadlines, waiting = self._deadlines, self._open
        oldest = next(iter(waiting), self._next_tag)
        last = 0
        while deadlines and (deadlines[0][0] <= tick or deadlines[0][1] < oldest):
            last = deadlines.popleft()[1]
        tags = list(itertools.takewhile(lambda each: each <= last, waiting))
        late = [waiting.pop(each) for each in tags]
        if late:
            self.listener.acknowledged(self, late, self.listener.now_ns(), Completion.FAILED, Failure.TIMEOUT)
            self._told_of_room()

    def _told_of_room(self) -> None:
        if self.full and self.connection is not None and len(self._open) < self.window:
            self.full = False
            self.listener.writable(self)


def _refusal_of(outgoing: Outgoing) -> int:
    if outgoing.retain:
        return RETAIN_NOT_SUPPORTED
    if outgoing.qos > 1:
        return QOS_NOT_SUPPORTED
    return 0 if 0 < len(outgoing.topic) <= LONGEST_KEY_BYTES else TOPIC_INVALID
