"""The HTTP link of a contender with a dialect: logs in, publishes and subscribes as its file says.

Made by the registry, one for each device or client. Connections come and go by themselves; only when notifications
cannot be had any more is the link told as closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Capabilities, Endpoint, Granted, LinkOptions, Listener, Opened, Subscription
from battlebrokers.protocols.http.connection import TRANSPORTS
from battlebrokers.protocols.http.plain import COMPLETION, PlainHttpLink
from battlebrokers.protocols.http.receiving import Reception

_GOODBYE_S = 5.0
_WAYS = frozenset({"callback", "stream", "poll"})


class ScriptedHttpLink(PlainHttpLink):
    """One device or client that speaks a dialect."""

    __slots__ = ("_reception", "reading_paused")

    capabilities = Capabilities(
        protocol="http",
        qos=frozenset({0, 1}),
        wildcards=False,
        acknowledges=frozenset({0, 1}),
        transports=TRANSPORTS,
        completion=COMPLETION,
    )

    def __init__(self, endpoint: Endpoint, options: LinkOptions, listener: Listener) -> None:
        super().__init__(endpoint, options, listener)
        self._reception: Reception | None = None
        self.reading_paused = False

    async def open(self) -> Opened:
        """Connect, and say what the dialect says to log in."""
        await super().open()
        try:
            for call in self._dialect.login:
                if "callback" in call.names:
                    await self._listen()
                _, _, kept = await self.say(call, self.known())
                self.keep(kept)
        except BaseException:
            self.abort()
            raise
        return Opened(session_present=False, reason=0, received_ns=self.now_ns())

    async def subscribe(self, subscriptions: Sequence[Subscription]) -> list[Granted]:
        """Say what the dialect says to subscribe; one answer each."""
        self.must_be_open()
        await self._listen()
        assert self._reception is not None
        return await self._reception.subscribe(subscriptions)

    async def unsubscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """Undo them again."""
        self.must_be_open()
        if self._reception is not None:
            await self._reception.unsubscribe(subscriptions)

    async def _listen(self) -> None:
        if self._reception is not None:
            return
        listening = self._dialect.script.listening
        if listening is None:
            raise LinkError("this contender's file does not say how to subscribe over HTTP")
        if listening.way not in _WAYS:
            hint = f"There are: {', '.join(sorted(_WAYS))}."
            raise LinkError(f"HTTP has no subscriptions by {listening.way!r}", hint=hint)
        if listening.way != "callback" and listening.fetch is None:
            raise LinkError(f"subscriptions by {listening.way!r} need a `fetch`", hint="Say which request to make.")
        self._reception = Reception(self, self._dialect, listening)
        if listening.way == "callback":
            self.keep({"callback": await self._reception.callback_url()})

    def pause_reading(self) -> None:
        """Hear no notifications for now: callbacks are answered late, streams and polls are not read."""
        if not self.reading_paused:
            self.reading_paused = True
            if self._reception is not None:
                self._reception.pause()

    def resume_reading(self) -> None:
        """Hear them again."""
        if self.reading_paused:
            self.reading_paused = False
            if self._reception is not None:
                self._reception.resume()

    async def close(self) -> None:
        """Undo the subscriptions, log out, and close."""
        if self.is_open:
            with suppress(LinkError, TimeoutError):
                async with asyncio.timeout(_GOODBYE_S):
                    await self.settled()
                    if self._reception is not None:
                        await self._reception.leave()
                    for call in self._dialect.logout:
                        await self.say(call, self.known())
        self._stop_listening()
        await super().close()

    def abort(self) -> None:
        """Drop everything without a word, as a crash would."""
        self._stop_listening()
        super().abort()

    def _stop_listening(self) -> None:
        reception, self._reception = self._reception, None
        if reception is not None:
            reception.stop()

    def lost(self, detail: str, reason: int) -> None:
        """Notifications will not come back by themselves: whoever wants them has to begin anew."""
        if self.is_open:
            self.abort()
            self.listener.closed(self, detail, reason)
