"""Long polling: the same request again and again, each with what the last answer left behind (such as a timestamp).

Begun by a client's subscriptions. Errors slow it down; answers without news that come at once do too.
"""

from __future__ import annotations

import asyncio

from battlebrokers.clock import SECOND_NS
from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Completion, Failure
from battlebrokers.protocols.http.connection import Connection, dial
from battlebrokers.protocols.http.fetching import Fetch
from battlebrokers.protocols.http.waiting import NoAnswer, Waiting
from battlebrokers.protocols.wheel import patience

_LONGER_S = 60.0
"""A long poll may take so much longer than any other answer."""
_PAUSE_S = 0.1
"""A server that says at once that there is nothing new is not asked more often than that."""


class Poll(Fetch):
    """One request, repeated."""

    _goes_on: asyncio.Event | None = None

    async def once(self) -> bool:
        """Ask once, and hear what there is."""
        if self.audience.paused:
            self._goes_on = asyncio.Event()
            await self._goes_on.wait()
        call, audience = self.call, self.audience
        # What it keeps itself is unknown the first time.
        unknown = dict.fromkeys(call.say.keep.keys() - self.known.keys(), "")
        data = audience.rendered(call, {**unknown, **self.known})
        connection = self._connection
        if connection is None or not connection.trusted:
            self.drop()
            connection = self._connection = await dial(
                audience.endpoint, audience.options, lambda wheel: Connection(audience, wheel)
            )
        waiting = Waiting(audience.now_ns)
        asked_ns = audience.now_ns()
        connection.ask(data, waiting, patience(audience.options.answer_timeout_s + _LONGER_S))
        if not self.accepted.done():
            await self._see_whether_accepted(waiting)
        try:
            answer = await waiting.future
        except NoAnswer as error:
            if error.failure is Failure.MALFORMED:
                audience.malformed(error.detail)
            raise LinkError(f"{call.title}: {error.detail}", code=error.failure) from None
        completion, reason, document = call.judge(answer.head, answer.body)
        if completion is not Completion.ACKED:
            raise LinkError(f"{call.title} was answered with {reason}", code=reason)
        self.known.update(call.kept(answer.head, document))
        if not self.accepted.done():
            self.accepted.set_result(None)
        heard = audience.hear(answer.body, answer.at_ns, answer.wire_bytes, self.topic) if answer.body else 0
        if not heard and answer.at_ns - asked_ns < _PAUSE_S * SECOND_NS:
            await asyncio.sleep(_PAUSE_S)
        return True

    async def _see_whether_accepted(self, waiting: Waiting) -> None:
        """A poll that is not refused within a moment waits at the server: so the client is subscribed."""
        done, _ = await asyncio.wait([waiting.future], timeout=_PAUSE_S)
        if not done and not self.accepted.done():
            self.accepted.set_result(None)

    def resume(self) -> None:
        """Take bytes again."""
        if self._goes_on is not None:
            self._goes_on.set()
        super().resume()
