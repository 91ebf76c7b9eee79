"""A node: what devices and clients share. It connects, comes back after a loss, and goes away when planned.

Created by the engine, told by the stopwatch when its link breaks. Tasks exist only while (re)connecting.
"""

from __future__ import annotations

import asyncio
from typing import Any

from battlebrokers.clock import SECOND_NS
from battlebrokers.devices.stopwatch import Stopwatch
from battlebrokers.errors import LinkError
from battlebrokers.protocols.backoff import backoff_delays
from battlebrokers.protocols.base import Failure, Link
from battlebrokers.scenario.plan import AwayPlan, ConnectionPlan
from battlebrokers.secrets import masked_text
from battlebrokers.visible import visible

NO_REASON = -1
"""Nobody gave one: neither a code of the broker's, nor a `Failure`."""


def outcome_of(code: int) -> str:
    """What an operation that ended with a LinkError of this code is recorded as."""
    return "refused" if code > 0 else "timeout" if code == Failure.TIMEOUT else "error"


class Node:
    """Base of `Device` and `Client`."""

    __slots__ = (
        "_absent", "_away", "_connected_once", "_connection", "_returning", "_seed", "attempts", "connected", "link",
        "number", "refusal", "session_s", "stopped", "stopwatch",
    )  # fmt: skip

    role = "node"

    def __init__(
        self, number: int, link: Link, stopwatch: Stopwatch, connection: ConnectionPlan, *, seed: int,
        away: AwayPlan | None,
    ) -> None:  # fmt: skip
        self.number = number
        self.link = link
        self.stopwatch = stopwatch
        self.session_s = connection.lasts_s()
        """How long its session outlives a connection: 0 not at all, None without end."""
        self._connection = connection
        self.connected = False
        self.stopped = False
        self.attempts = 0
        self.refusal = ""
        self._connected_once = False
        self._absent = False
        self._away = away
        self._seed = seed
        self._returning: asyncio.Task[None] | None = None
        link.owner = self
        link.basket = stopwatch.basket

    async def connect(self, planned_ns: int | None = None) -> bool:
        """Try once; the operation is recorded whatever comes of it, from its planned moment on if it has one."""
        self.attempts += 1
        started_ns = self.stopwatch.now_ns() if planned_ns is None else planned_ns
        try:
            opened = await self.link.open()
        except LinkError as error:
            self._operation("connect", started_ns, outcome_of(error.code), reason=error.code, detail=error.message)
            self.refusal = visible(self._masked(error.message))
            return False
        self.session_s = self._connection.lasts_s(opened.session_expiry_s)
        self._operation(
            "connect", started_ns, "ok", ended_ns=opened.received_ns, session_present=opened.session_present
        )
        if self.stopped:
            self.link.abort()
            return False
        self.connected = True
        self._connected_once = True
        await self._arrive(opened.session_present)
        return self.connected

    async def connect_or_return(self, planned_ns: int | None = None) -> bool:
        """Try once now; when it fails, keep trying in the background."""
        if await self.connect(planned_ns):
            return True
        self._come_back()
        return False

    def start_absences(self, load_start_ns: int) -> None:
        """Arm the planned absence, if there is one."""
        if self._away is not None:
            delay_s = (load_start_ns + self._away.at_ns - self.stopwatch.now_ns()) / SECOND_NS
            asyncio.get_running_loop().call_later(max(0.0, delay_s), self._leave)

    def dropped(self, detail: str, reason: int) -> None:
        """The connection broke without our asking."""
        if not self.connected:
            return
        self.connected = False
        now_ns = self.stopwatch.now_ns()
        self._operation("lost", now_ns, "error", ended_ns=now_ns, reason=reason, detail=detail)
        self._depart()
        if not self.stopped and not self._absent:
            self._come_back()

    async def stop(self) -> None:
        """Leave for good, politely."""
        self.stopped = True
        if self._returning is not None:
            self._returning.cancel()
        if self.connected:
            self.connected = False
            now_ns = self.stopwatch.now_ns()
            await self._say_goodbye(now_ns)
        else:
            self.link.abort()

    def writable(self) -> None:
        """Only devices care."""

    def heard(self, count: int) -> None:
        """Only clients care."""

    async def _arrive(self, session_present: bool) -> None:
        """What to do once connected."""

    def _depart(self) -> None:
        """What to do once disconnected."""

    def _come_back(self) -> None:
        if self._returning is None or self._returning.done():
            self._returning = asyncio.get_running_loop().create_task(self._keep_trying())

    async def _keep_trying(self) -> None:
        for delay_s in backoff_delays(self._seed + self.attempts):
            await asyncio.sleep(delay_s)
            if self.stopped or self._absent or await self.connect():
                return

    def _leave(self) -> None:
        away = self._away
        if away is None or self.stopped:
            return
        self._absent = True
        loop = asyncio.get_running_loop()
        if self.connected:
            self.connected = False
            now_ns = self.stopwatch.now_ns()
            if away.abrupt:
                self.link.abort()
                self._operation("lost", now_ns, "ok", ended_ns=now_ns, detail="planned absence")
            else:
                self._returning = loop.create_task(self._say_goodbye(now_ns, "planned absence"))
            self._depart()
        loop.call_later(away.for_ns / SECOND_NS, self._return)
        if away.every_ns:
            loop.call_later(away.every_ns / SECOND_NS, self._leave)

    async def _say_goodbye(self, started_ns: int, why: str = "") -> None:
        try:
            await self.link.close()
        except LinkError as error:
            code = error.code
            self._operation("disconnect", started_ns, outcome_of(code), reason=code, detail=error.message)
        else:
            self._operation("disconnect", started_ns, "ok", detail=why)

    def _return(self) -> None:
        self._absent = False
        if not self.stopped and not self.connected:
            loop = asyncio.get_running_loop()
            self._returning = loop.create_task(self._return_at_once(self._returning))

    async def _return_at_once(self, goodbye: asyncio.Task[None] | None) -> None:
        if goodbye is not None and not goodbye.done():
            await asyncio.wait([goodbye])
        if not await self.connect():
            await self._keep_trying()

    def _masked(self, words: str) -> str:
        """What a broker or a library said, without what may not be recorded; some repeat what they were sent."""
        password = self._connection.password
        return masked_text(words, [password] if password is not None else [])

    def _operation(
        self, kind: str, started_ns: int, outcome: str, *, ended_ns: int | None = None, reason: int = NO_REASON,
        detail: str = "", session_present: bool | None = None, subscription: tuple[Any, ...] = (None, None, None, None),
    ) -> None:  # fmt: skip
        self.stopwatch.recorder.operation(
            (
                self.role,
                self.number,
                kind,
                started_ns,
                ended_ns if ended_ns is not None else self.stopwatch.now_ns(),
                outcome,
                None if reason == NO_REASON else reason,
                detail if outcome == "ok" else self._masked(detail),
                *subscription,
                session_present,
                self.session_s != 0,
                self.session_s or None,
                min(self.attempts, 32_767),
            )
        )
