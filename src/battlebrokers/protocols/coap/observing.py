"""One observed resource: asked for until it exists, then told of as it changes (RFC 7641).

Used by the CoAP link: one for each topic of a client, or one for all where the dialect names none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from battlebrokers.protocols.base import Failure, Subscription
from battlebrokers.protocols.coap.message import CON, METHODS, OBSERVE, Message, Option
from battlebrokers.protocols.coap.talk import Exchange, Talk

NOT_FOUND = 404
HALF = 1 << 23
"""Numbers of notifications have 24 bits and begin anew behind the largest."""
FRESH_AFTER_NS = 128_000_000_000
FIRST_RETRY_S = 0.05
LAST_RETRY_S = 1.0

Told = Callable[[Subscription, Message, int, bool], None]
"""Subscription, the whole notification, when it came, whether it is the state from before the subscription."""


def is_fresher(last: int, last_ns: int, number: int, at_ns: int) -> bool:
    """Whether a notification with that number is newer than the last one (RFC 7641 §3.4)."""
    if at_ns > last_ns + FRESH_AFTER_NS:
        return True
    return (last < number and number - last < HALF) or (last > number and last - number > HALF)


class Observation:
    """A GET with Observe, and what follows."""

    __slots__ = (
        "_asked",
        "_freshest",
        "_now_ns",
        "_options",
        "_retry",
        "_retry_s",
        "_stopped",
        "_talk",
        "_told",
        "address",
        "granted",
        "quiet",
        "token",
        "topics",
        "wanted",
    )

    def __init__(
        self,
        talk: Talk,
        wanted: Subscription,
        options: Sequence[Option],
        told: Told,
        now_ns: Callable[[], int],
    ) -> None:
        self._talk = talk
        self.wanted = wanted
        self.token = talk.fresh_token()
        self.address = b""
        """What is asked for, where topics may share it."""
        self.topics = 0
        """How many topics need it."""
        self.granted = False
        """The server has answered the first request, if only that there is nothing yet."""
        self.quiet = False
        """The server says nothing until there is news: that it has the request is its answer."""
        self._options = list(options)
        self._told = told
        self._now_ns = now_ns
        self._retry: asyncio.TimerHandle | None = None
        self._retry_s = FIRST_RETRY_S
        self._asked: asyncio.Future[int] | None = None
        self._stopped = False
        self._freshest: tuple[int, int] | None = None
        """Number and time of the newest notification."""

    async def begin(self) -> int:
        """Ask, if nobody has; 0 when granted, a status when refused, a `Failure` when nobody answers."""
        if self._asked is None:
            self._asked = asyncio.get_running_loop().create_future()
            self._ask()
        # Others may wait for the same answer when this one no longer does.
        return await asyncio.shield(self._asked)

    def _ask(self) -> None:
        self._retry = None
        options = [*self._options, (OBSERVE, b"")]
        heard = self._acknowledged if self.quiet else None
        self._talk.ask(CON, METHODS["get"], options, b"", self._answered, token=self.token, heard=heard)

    def _acknowledged(self, exchange: Exchange) -> None:
        # Whatever comes with this token from now on is a notification, however late it comes.
        self._talk.release(exchange)
        self._settle(0)

    def _answered(self, _: Exchange, result: int, message: Message | None) -> None:
        if self._stopped:
            return
        first = not self.granted
        if result == NOT_FOUND or (result == Failure.TIMEOUT and not first):
            # There is nothing yet: look again soon, and less often the longer that lasts.
            self._settle(0)
            self._retry = asyncio.get_running_loop().call_later(self._retry_s, self._ask)
            self._retry_s = min(LAST_RETRY_S, self._retry_s * 2)
        elif message is None or result // 100 != 2:
            self._settle(result)
        elif message.option(OBSERVE) is None:
            # The server gives the value once and will never tell of another.
            self._settle(result)
        else:
            self._settle(0)
            self._begun(message)
            # What is there at the first look was there before us, unless the server speaks of news only.
            self._complete(message, retained=first and not self.quiet)

    def _settle(self, result: int) -> None:
        self.granted = result == 0
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(result)

    def notified(self, message: Message) -> None:
        """The state has changed."""
        if message.code >> 5 != 2:
            # The resource is gone, and the observation with it: look again.
            if self._retry is None and not self._stopped:
                self._retry = asyncio.get_running_loop().call_later(self._retry_s, self._ask)
                self._retry_s = min(LAST_RETRY_S, self._retry_s * 2)
            return
        if self._fresh(message):
            self._complete(message, retained=False)

    def _begun(self, message: Message) -> None:
        """An answer to our request is what notifications are compared with; servers may count anew."""
        self._freshest = None
        self._fresh(message)

    def _fresh(self, message: Message) -> bool:
        """Whether this is newer than what was told last: UDP may deliver them in any order."""
        value = message.option(OBSERVE)
        if value is None:
            # The server's last word about the resource.
            return True
        number, at_ns = int.from_bytes(value[-3:], "big"), self._now_ns()
        if self._freshest is not None and not is_fresher(*self._freshest, number, at_ns):
            return False
        self._freshest = (number, at_ns)
        return True

    def _complete(self, message: Message, *, retained: bool) -> None:
        at_ns = self._now_ns()

        def done(whole: Message | None) -> None:
            # A long value that changed while its blocks were fetched is followed by its successor.
            if whole is not None:
                self._told(self.wanted, whole, at_ns, retained)

        self._talk.whole(self._options, message, done)

    def cancel(self) -> None:
        """Tell the server that nobody listens any more."""
        self.stop()
        self._talk.say(METHODS["get"], [*self._options, (OBSERVE, b"\x01")], self.token)

    def stop(self) -> None:
        """Ask no more."""
        self._stopped = True
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(Failure.CLOSED)
