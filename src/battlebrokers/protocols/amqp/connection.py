"""One AMQP connection on the wire: frames in and out, requests and their answers, deliveries, heartbeats, the end.

Made by the link for each `open` and thrown away with the socket. It tells the link, and never waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
from pamqp import base, commands

from battlebrokers.errors import LinkError
from battlebrokers.protocols.amqp.frames import (
    ACK,
    BODY,
    DELIVER,
    FRAME,
    FRAME_ERROR,
    FRAME_OVERHEAD,
    HEADER,
    HEARTBEAT,
    HEARTBEAT_FRAME,
    LONG_LONG,
    METHOD,
    NACK,
    PERSISTENT,
    MalformedFrame,
    foreign,
    marshalled,
    read_content,
    read_delivery,
    topic_of_key,
    unmarshalled,
)
from battlebrokers.protocols.base import Arrivals, Completion, Failure
from battlebrokers.protocols.shutdown import Shutdown
from battlebrokers.protocols.wheel import TICK_S, Wheel

if TYPE_CHECKING:
    from battlebrokers.protocols.amqp.link import AmqpLink

WRITE_HIGH_BYTES = 256 * 1024
WRITE_LOW_BYTES = 64 * 1024
PLAIN_CHANNEL = 1
"""Consumers, and publishes nobody confirms."""
CONFIRM_CHANNEL = 2
PROBE_CHANNEL = 3
"""Asks for things that may not exist; the broker closes it when they do not."""
FEW = 8
BEAT_TICKS = 5
DUP = 8
CHARACTER_ONE = ord("1")
_MOST_TOPICS = 10_000

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"


class Connection(asyncio.Protocol):
    """The protocol of one TCP or TLS connection."""

    __slots__ = (
        "_body_left", "_body_parts", "_content", "_mode", "_tail", "_too_large", "_topics", "_waiting", "_wire",
        "frame_max", "gone", "heard_tick", "heartbeat_ticks", "link", "paused", "returned", "sent_tick", "slot",
        "started", "transport", "wheel",
    )  # fmt: skip

    transport: asyncio.Transport

    def __init__(self, link: AmqpLink, wheel: Wheel, started: asyncio.Future[None]) -> None:
        self.link = link
        self.wheel = wheel
        self.started: asyncio.Future[None] | None = started
        """Resolved when the broker has let us in; None after that."""
        self.gone = False
        """Nothing is told from here on."""
        self.paused = False
        self.frame_max = 131_072
        self.heartbeat_ticks = self.slot = 0
        self.sent_tick = self.heard_tick = wheel.tick
        self.returned: int | None = None
        """The code of a basic.return whose content is still coming."""
        self._tail = b""
        self._waiting: dict[tuple[int, str], deque[asyncio.Future[base.Frame]]] = {}
        self._content: tuple[int, int, int, bytes] | None = None
        """The delivery whose header or body is still coming."""
        self._mode = 0
        self._body_left = -1
        """Bytes of the body to come; -1: the header has not come yet."""
        self._too_large = False
        """The message that is coming is larger than anything we wait for."""
        self._body_parts: list[bytes] = []
        self._wire = 0
        self._topics: dict[bytes, bytes] = {}

    # ── the socket ───────────────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected: say which protocol."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        self.transport.write(PROTOCOL_HEADER)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        if not self.gone:
            why = f"the connection broke: {exc}" if exc else "the broker closed the connection"
            self.end(why, Failure.TRUNCATED if self._tail else Failure.CLOSED)

    def pause_writing(self) -> None:
        """Our write buffer is full."""
        self.paused = True

    def resume_writing(self) -> None:
        """Our write buffer has drained."""
        self.paused = False
        if not self.gone:
            self.link.drained()

    def write(self, data: bytes) -> None:
        """Write and note that we spoke."""
        self.sent_tick = self.wheel.tick
        self.transport.write(data)

    async def ask(self, channel: int, methods: Sequence[base.Frame]) -> list[base.Frame]:
        """Send methods in one write; their answers, in order. Raises LinkError when the broker refuses one."""
        if self.gone:
            raise LinkError("the link is not open")
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[base.Frame]] = []
        for method in methods:
            answer: asyncio.Future[base.Frame] = loop.create_future()
            self._waiting.setdefault((channel, method.valid_responses[0]), deque()).append(answer)
            answers.append(answer)
        self.write(marshalled(channel, *methods))
        try:
            # The first refusal is the one that says why.
            return list(await asyncio.gather(*answers))
        finally:
            for answer in answers:
                answer.cancel()

    # ── what comes in ────────────────────────────────────────────────────────────────────────────────────────────

    def data_received(self, data: bytes) -> None:
        """Read all whole frames of a chunk; deliveries are told together."""
        if self.gone:
            return
        at_ns = self.link.listener.now_ns()
        self.heard_tick = self.wheel.tick
        if self._tail:
            data = self._tail + data
            self._tail = b""
        arrivals: list[tuple[int, bytes, int, int, int]] = []
        last_tag = 0
        place, size = 0, len(data)
        try:
            while size - place >= 8:
                kind, channel, length = FRAME.unpack_from(data, place)
                start = place + 7
                end = start + length
                if kind not in (METHOD, HEADER, BODY, HEARTBEAT):
                    raise MalformedFrame(foreign(data[place : place + 8]))  # noqa: TRY301
                if length + FRAME_OVERHEAD > self.frame_max:
                    words = f"a frame of {length + FRAME_OVERHEAD} bytes is larger than the agreed {self.frame_max}"
                    raise MalformedFrame(words, FRAME_ERROR)  # noqa: TRY301
                if kind == HEARTBEAT and (channel or length):
                    words = f"a heartbeat came on channel {channel} with {length} bytes in it"
                    raise MalformedFrame(words, FRAME_ERROR)  # noqa: TRY301
                if end >= size:
                    break
                if data[end] != 0xCE:
                    raise MalformedFrame("a frame has no end where it should")  # noqa: TRY301
                content = self._content
                if kind == METHOD:
                    which = data[start : start + 4]
                    if content is not None:
                        raise MalformedFrame("a method came where content was due")  # noqa: TRY301
                    if which == DELIVER:
                        self._content = read_delivery(data, start + 4, end)
                        self._body_left, self._wire = -1, length + 8
                    elif which in (ACK, NACK):
                        self._confirmed(data, start + 4, end, which == ACK, at_ns)
                    else:
                        self._tell(at_ns, data, arrivals)
                        arrivals.clear()
                        self._method(channel, data[place : end + 1])
                    if self.gone:
                        return
                elif kind == HEADER:
                    self._header(data, start, end)
                    if self._body_left == 0:
                        last_tag = self._whole(at_ns, data, arrivals, b"") or last_tag
                elif kind == BODY:
                    if content is None or self._body_left < length:
                        raise MalformedFrame("a body came that nobody announced")  # noqa: TRY301
                    self._wire += length + 8
                    self._body_left -= length
                    if self._body_left:
                        if not self._too_large:
                            self._body_parts.append(data[start:end])
                    elif self._body_parts or content[3] is _RETURNED:
                        last_tag = self._whole(at_ns, data, arrivals, data[start:end]) or last_tag
                    else:
                        first, tag, again, key = content
                        arrivals.append((self._flags(first, again), key, start, length, self._wire))
                        self._content = None
                        if first == CHARACTER_ONE:
                            last_tag = tag
                place = end + 1
        except MalformedFrame as fault:
            self._tell(at_ns, data, arrivals)
            self.fail(fault)
            return
        self._tail = data[place:]
        if arrivals:
            self._tell(at_ns, data, arrivals)
        if last_tag and not self.gone:
            self.write(marshalled(PLAIN_CHANNEL, commands.Basic.Ack(delivery_tag=last_tag, multiple=True)))

    def _flags(self, first: int, redelivered: int) -> int:
        qos = 1 if first == CHARACTER_ONE and self._mode == PERSISTENT else 0
        return qos << 1 | (DUP if redelivered else 0)

    def _header(self, data: bytes, start: int, end: int) -> None:
        if self._content is None or self._body_left >= 0:
            raise MalformedFrame("a content header came that nobody announced")
        self._body_left, self._mode = read_content(data, start, end)
        self._wire += end - start + 8
        self._too_large = self._body_left > self.link.options.largest_bytes
        if self._too_large:
            self._body_parts = [b""]  # what comes is not kept, and its last frame is no message either
        if self._content[3] is _RETURNED:
            properties = getattr(unmarshalled(data[start - 7 : end + 1]), "properties", None)
            named = str(getattr(properties, "message_id", ""))
            self._content = (0, int(named) if named.isdecimal() else 0, 0, _RETURNED)

    def _whole(self, at_ns: int, data: bytes, arrivals: list[tuple[int, bytes, int, int, int]], last: bytes) -> int:
        """A message without a body, or with one of several frames, is complete; its tag if it must be acknowledged."""
        assert self._content is not None
        first, tag, again, key = self._content
        payload = b"".join((*self._body_parts, last))
        self._content = None
        self._body_parts = []
        if self._too_large and key is not _RETURNED:
            words = f"a message of more than {self.link.options.largest_bytes} bytes"
            self.link.listener.malformed(self.link, words, Failure.OVERSIZED)
            return tag if first == CHARACTER_ONE else 0
        if key is _RETURNED:
            self.link.returned(tag, self.returned or 0, at_ns)
            self.returned = None
            return 0
        self._tell(at_ns, data, arrivals)
        arrivals.clear()
        self.link.arrived(at_ns, self._flags(first, again), self._topic(key), payload, self._wire)
        return tag if first == CHARACTER_ONE else 0

    def _topic(self, key: bytes) -> bytes:
        topic = self._topics.get(key)
        if topic is None:
            if len(self._topics) >= _MOST_TOPICS:
                self._topics.clear()
            topic = self._topics[key] = topic_of_key(key)
        return topic

    def _tell(self, at_ns: int, data: bytes, arrivals: list[tuple[int, bytes, int, int, int]]) -> None:
        link = self.link
        if self.gone:
            return
        if len(arrivals) < FEW or link.unwraps:
            for flags, key, start, size, wire in arrivals:
                link.arrived(at_ns, flags, self._topic(key), data[start : start + size], wire)
            return
        table = np.array([(flags, start, size, wire) for flags, _, start, size, wire in arrivals], np.int64)
        # Routing keys have dots where topics have slashes: the topics stand behind the chunk.
        places: dict[bytes, tuple[int, int]] = {}
        topics: list[bytes] = []
        end = len(data)
        for _, key, *_ in arrivals:
            if key not in places:
                topic = self._topic(key)
                places[key] = (end, len(topic))
                topics.append(topic)
                end += len(topic)
        spots = np.array([places[key] for _, key, *_ in arrivals], np.int64)
        told = Arrivals(
            data + b"".join(topics), table[:, 0].astype(np.uint8), spots[:, 0], spots[:, 1],
            table[:, 1], table[:, 2], table[:, 3],
        )  # fmt: skip
        link.listener.arrived_many(link, at_ns, told)

    def _confirmed(self, data: bytes, start: int, end: int, good: bool, at_ns: int) -> None:
        if end - start < 9:
            raise MalformedFrame("a confirmation ends in the middle")
        (tag,) = LONG_LONG.unpack_from(data, start)
        self.link.confirmed(tag, bool(data[start + 8] & 1), good, at_ns)

    # ── methods ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _method(self, channel: int, data: bytes) -> None:
        method = unmarshalled(data)
        match method:
            case commands.Connection.Start():
                self.write(marshalled(0, self.link.introduction()))
            case commands.Connection.Tune():
                self._tuned(method)
            case commands.Connection.OpenOk():
                if self.started is not None and not self.started.done():
                    self.started.set_result(None)
            case commands.Connection.Close():
                self.write(marshalled(0, commands.Connection.CloseOk()))
                # What becomes of messages that are not confirmed yet, the broker does not say.
                self.end(f"the broker closed the connection: {method.reply_text}", method.reply_code or 0)
            case commands.Channel.Close():
                self._channel_closed(channel, method)
            case commands.Basic.Return():
                self.returned = method.reply_code or 0
                self._content, self._body_left = (0, 0, 0, _RETURNED), -1
            case commands.Basic.Cancel():
                self.end("the broker cancelled a consumer: its queue is gone", Failure.CLOSED)
            case base.Frame():
                answers = self._waiting.get((channel, method.name))
                while answers:
                    answer = answers.popleft()
                    if not answer.done():
                        answer.set_result(method)
                        break

    def _tuned(self, tune: commands.Connection.Tune) -> None:
        wanted_s = self.link.options.keep_alive_s
        offered_s = tune.heartbeat or 0
        # Zero switches it off on either side.
        heartbeat_s = min(wanted_s, offered_s) if wanted_s and offered_s else wanted_s
        heartbeat_s = min(heartbeat_s, 65_535)
        self.frame_max = min(max(tune.frame_max or self.frame_max, 4096), self.frame_max)
        self.heartbeat_ticks = max(1, int(heartbeat_s / 2 / TICK_S)) if heartbeat_s else 0
        answer = commands.Connection.TuneOk(tune.channel_max or 0, self.frame_max, heartbeat_s)
        self.write(marshalled(0, answer, commands.Connection.Open(virtual_host=self.link.virtual_host)))
        self.wheel.enter(self, self.wheel.tick + BEAT_TICKS)

    def _channel_closed(self, channel: int, method: commands.Channel.Close) -> None:
        self.write(marshalled(channel, commands.Channel.CloseOk()))
        error = LinkError(f"the broker refused: {method.reply_text}", code=method.reply_code or 0)
        if channel == PROBE_CHANNEL:
            self.drop_requests(error, channel)
            return
        # It closes for one publish; only when there is no other is it known for which.
        refused = (method.class_id, method.method_id) == _PUBLISH and self.link.unacknowledged == 1
        words = f"the broker closed the channel: {method.reply_text}"
        self.end(words, method.reply_code or 0, refused=refused and channel == CONFIRM_CHANNEL)

    def drop_requests(self, error: LinkError, channel: int | None = None) -> None:
        """Nobody will answer what was asked."""
        for (where, _), answers in self._waiting.items():
            if channel is None or where == channel:
                for answer in answers:
                    if not answer.done():
                        answer.set_exception(error)

    # ── time, and the end ────────────────────────────────────────────────────────────────────────────────────────

    def beat(self) -> int:
        """Called by the wheel: late confirmations, our heartbeat, the broker's silence."""
        now, every = self.wheel.tick, self.heartbeat_ticks
        self.link.expire(now)
        if every:
            if now - self.sent_tick >= every:
                self.write(HEARTBEAT_FRAME)
            if now - self.heard_tick > 5 * every and not self.link.reading_paused:
                self.end(f"the broker has been silent for {(now - self.heard_tick) * TICK_S:.1f} s", Failure.TIMEOUT)
                return 0
        return now + BEAT_TICKS

    def fail(self, fault: MalformedFrame) -> None:
        """The broker sent nonsense: it is told where the specification wants that, then the connection ends."""
        if self.started is None:
            self.link.listener.malformed(self.link, str(fault))
        if fault.code and not self.gone:
            self.write(marshalled(0, commands.Connection.Close(fault.code, f"FRAME_ERROR - {fault}", 0, 0)))
        self.end(f"closed after malformed bytes: {fault}", Failure.MALFORMED, asked=bool(fault.code))

    def end(self, detail: str, reason: int, *, refused: bool = False, asked: bool = False) -> None:
        """Close the socket and tell the link, once; `asked`: our own close has still to be answered."""
        if self.gone:
            return
        self.leave()
        # What was written last (our goodbye) still goes out; then the socket closes.
        if asked and not self.paused and not self.transport.is_closing():
            Shutdown(self.transport, self.wheel.loop, close_answered())
        else:
            self.transport.close()
        error = LinkError(detail, code=reason)
        self.drop_requests(error)
        if self.started is not None:
            if not self.started.done():
                self.started.set_exception(error)
            return
        self.link.lost(self, detail, reason, Completion.REFUSED if refused else Completion.FAILED)

    def leave(self) -> None:
        """From here on nothing of this connection is told."""
        self.gone = True
        self._tail = b""
        self.wheel.leave(self)


def close_answered() -> Callable[[bytes], bool]:
    """Whether the broker's answer to our Connection.Close came; RabbitMQ then waits for us to close the socket."""
    tail = b""

    def answered(data: bytes) -> bool:
        nonlocal tail
        tail = (tail + data[-len(_CLOSE_OK) :])[-len(_CLOSE_OK) :]
        return tail == _CLOSE_OK

    return answered


_PUBLISH = (60, 40)
"""The class and method of basic.publish."""
_CLOSE_OK = marshalled(0, commands.Connection.CloseOk())
_RETURNED = b"\x00returned"
"""Stands in place of a routing key while the content of a basic.return comes in."""
