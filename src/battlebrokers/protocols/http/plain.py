"""The HTTP link of a server without a dialect: a message is a POST to its topic's path, and any 2xx is success.

Made by the registry; base class of the scripted one. It cannot subscribe, and says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Capabilities, Granted, Opened, Subscription
from battlebrokers.protocols.http.connection import TRANSPORTS
from battlebrokers.protocols.http.sender import Sender

COMPLETION = dict.fromkeys((0, 1), "the server answered the request with success")
_GOODBYE_S = 2.0


class PlainHttpLink(Sender):
    """One device."""

    __slots__ = ("local_address",)

    capabilities = Capabilities(
        protocol="http",
        qos=frozenset({0, 1}),
        receive=False,
        wildcards=False,
        acknowledges=frozenset({0, 1}),
        transports=TRANSPORTS,
        completion=COMPLETION,
    )

    local_address: str
    """By which we reach the server."""

    async def open(self) -> Opened:
        """Make the first connection, which shows that the server is there."""
        if self.is_open:
            raise LinkError(f"{self.options.client_id} is already connected")
        self._kept.clear()
        self._bound.clear()
        connection = await self.dialled()
        self.local_address = str(connection.transport.get_extra_info("sockname")[0])
        self._idle.append(connection)
        self.is_open = True
        return Opened(session_present=False, reason=0, received_ns=self.now_ns())

    def must_be_open(self) -> None:
        """LinkError when it is not."""
        if not self.is_open:
            raise LinkError("the link is not open")

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> list[Granted]:  # noqa: ARG002
        """Plain HTTP has no subscriptions."""
        self.must_be_open()
        raise LinkError(
            "plain HTTP cannot subscribe",
            hint="A contender's file says how with `speak.http.subscribe`: by callback, stream or poll.",
        )

    async def unsubscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """There is nothing to stop."""

    def pause_reading(self) -> None:
        """There is nothing to hear."""

    def resume_reading(self) -> None:
        """There is nothing to hear."""

    async def close(self) -> None:
        """Wait a moment for answers, then close."""
        if self.is_open:
            try:
                await asyncio.wait_for(self.settled(), _GOODBYE_S)
            except TimeoutError:
                self.drop_all()
                return
            self.is_open = False
            idle, self._idle = self._idle, []
            for connection in idle:
                connection.leave()
        self.drop_all()

    def abort(self) -> None:
        """Drop every connection without a word, as a crash would."""
        self.drop_all()
