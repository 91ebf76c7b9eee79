"""Streams: a response that never ends, one notification after the other. Begun by a client's subscriptions.

When it ends, it is asked for again; what the server sends meanwhile is the server's business.
"""

from __future__ import annotations

import asyncio

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Failure
from battlebrokers.protocols.http.connection import Connection, dial
from battlebrokers.protocols.http.fetching import Fetch
from battlebrokers.protocols.http.head import Head, Malformed
from battlebrokers.protocols.http.objects import Objects
from battlebrokers.protocols.wheel import patience


class StreamConnection(Connection):
    """A connection whose answer is handed on while it comes."""

    __slots__ = ("begun", "stream")

    stream: Stream
    begun: bool

    def data_received(self, data: bytes) -> None:
        """Bytes came in."""
        if self.asker is None:
            return
        stream, reader = self.stream, self.reader
        at_ns = stream.now_ns()
        body_bytes = len(data)
        try:
            complete = reader.feed(data)
            if reader.head is not None and not self.begun:
                self.begun = True
                body_bytes = reader.fed_bytes - reader.head_bytes
                # From here on silence is no failure.
                self.deadline_tick = 0
                stream.begin(reader.head)
            if self.begun and self.asker is not None:
                stream.hear(reader.take(), at_ns, body_bytes)
        except Malformed as fault:
            self.fail(Failure.MALFORMED, str(fault))
            return
        if complete and self.asker is not None:
            self._finish(self.asker, at_ns)


class Stream(Fetch):
    """One response that never ends."""

    _ended: asyncio.Future[None] | None = None
    _objects: Objects
    _heard = 0
    _other_bytes = 0
    """Bytes on the wire that belong to no piece yet."""

    async def once(self) -> bool:
        """Ask, and hear until it ends."""
        audience = self.audience
        data = audience.rendered(self.call, self.known)
        self._heard = self._other_bytes = 0
        self._ended = asyncio.get_running_loop().create_future()
        connection = await dial(audience.endpoint, audience.options, lambda wheel: StreamConnection(audience, wheel))
        connection.stream, connection.begun = self, False
        self._connection = connection
        connection.ask(data, self, patience(audience.options.answer_timeout_s))
        if audience.paused:
            self.pause()
        try:
            await self._ended
        finally:
            self.drop()
        return self._heard > 0

    def now_ns(self) -> int:
        """The clock arrivals are stamped with."""
        return self.audience.now_ns()

    def begin(self, head: Head) -> None:
        """The head came."""
        if self.call.succeeds(head.status):
            are_events = head.headers.get("content-type", "").startswith("text/event-stream")
            self._objects = Objects(are_events=are_events, limit_bytes=self.audience.options.largest_bytes)
            if not self.accepted.done():
                self.accepted.set_result(None)
            return
        words = f"{self.call.title} was answered with status {head.status}"
        self._end(LinkError(words, code=head.status))
        self.drop()

    def hear(self, piece: bytes, at_ns: int, wire_bytes: int) -> None:
        """A piece of the body came."""
        wire_bytes += self._other_bytes
        found = self._objects.feed(piece)
        if not found:
            self._other_bytes = wire_bytes
            return
        self._other_bytes = 0
        # What separates the pieces, chunks and line ends, belongs to each of them alike.
        share, rest = divmod(max(0, wire_bytes - sum(map(len, found))), len(found))
        for place, body in enumerate(found):
            own_bytes = len(body) + share + (rest if not place else 0)
            self._heard += self.audience.hear(body, at_ns, own_bytes, self.topic)

    def answered(self, connection: Connection, head: Head, body: bytes, at_ns: int) -> None:
        """It ended properly."""
        if isinstance(connection, StreamConnection) and not connection.begun:
            self.begin(head)
        if body:
            self.hear(body, at_ns, 0)
        self._end(None)

    def failed(self, connection: Connection, failure: Failure, detail: str) -> None:  # noqa: ARG002
        """It broke."""
        if failure is Failure.MALFORMED:
            self.audience.malformed(detail)
        self._end(LinkError(detail, code=failure))

    def _end(self, error: LinkError | None) -> None:
        ended = self._ended
        if ended is None or ended.done():
            return
        # One that brought something and then broke off is simply asked for again.
        if error is None or self._heard:
            ended.set_result(None)
        else:
            ended.set_exception(error)
