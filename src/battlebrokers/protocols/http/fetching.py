"""What streams and polls share: a request made again and again in the background, with patience, until it is hopeless.

Begun by a client's subscriptions. A fetch that fails a few times in a row tells its audience that it is lost.
"""

from __future__ import annotations

import abc
import asyncio
import zlib
from collections.abc import Mapping
from typing import Protocol

from battlebrokers.errors import LinkError
from battlebrokers.protocols.backoff import backoff_delays
from battlebrokers.protocols.base import Endpoint, LinkOptions
from battlebrokers.protocols.http.connection import Connection
from battlebrokers.protocols.http.request import Call
from battlebrokers.protocols.phrase import Value

MOST_FAILURES = 5
"""In a row; then the client counts as disconnected."""


class Audience(Protocol):
    """Who hears what is fetched."""

    endpoint: Endpoint
    options: LinkOptions
    paused: bool

    def now_ns(self) -> int:
        """The clock arrivals are stamped with."""

    def rendered(self, call: Call, known: Mapping[str, Value]) -> bytes:
        """A request with everything filled in."""

    def hear(self, body: bytes, at_ns: int, wire_bytes: int, topic: bytes) -> int:
        """A notification came in; returns how many messages it had."""

    def malformed(self, detail: str) -> None:
        """What came is none."""

    def lost(self, detail: str, reason: int) -> None:
        """It will not come back by itself."""

    def idle_lost(self, connection: Connection) -> None:
        """The server closed a connection between two requests."""


class Fetch(abc.ABC):
    """One request that brings notifications, for one topic or for all."""

    _connection: Connection | None = None

    def __init__(self, audience: Audience, call: Call, known: Mapping[str, Value], topic: bytes) -> None:
        self.audience = audience
        self.call = call
        self.known: dict[str, Value] = dict(known)
        self.topic = topic
        self.accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the first request was accepted, or refused with a LinkError."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    @abc.abstractmethod
    async def once(self) -> bool:
        """Make the request; True when it brought something. LinkError when it failed."""

    def drop(self) -> None:
        """Close what is open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.drop()

    def pause(self) -> None:
        """Take no more bytes for now."""
        if self._connection is not None and not self._connection.transport.is_closing():
            self._connection.transport.pause_reading()

    def resume(self) -> None:
        """Take bytes again."""
        if self._connection is not None and not self._connection.transport.is_closing():
            self._connection.transport.resume_reading()

    async def _run(self) -> None:
        seed = zlib.crc32(self.audience.options.client_id.encode())
        delays = backoff_delays(seed)
        failures = 0
        while True:
            try:
                if await self.once():
                    failures = 0
                    delays = backoff_delays(seed)
                    continue
                detail, reason = "it ends at once, again and again", -1
            except LinkError as error:
                if not self.accepted.done():
                    # Nobody was subscribed yet: whoever wanted to be hears of it at once.
                    self.accepted.set_exception(error)
                    return
                detail, reason = error.message, error.code
            failures += 1
            if failures >= MOST_FAILURES:
                self.audience.lost(f"{self.call.title} failed {failures} times in a row: {detail}", reason)
                return
            await asyncio.sleep(next(delays))

    def stop(self) -> None:
        """End it; nothing is told any more."""
        if not self.accepted.done():
            self.accepted.cancel()
        elif not self.accepted.cancelled():
            # Looked at, so that nobody complains of a failure nobody waited for.
            self.accepted.exception()
        # `lost` may end us from within our own task.
        if self._task is not asyncio.current_task():
            self._task.cancel()
        self.drop()
