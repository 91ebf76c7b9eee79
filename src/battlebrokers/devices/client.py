"""A client: subscribes, listens, and may read slowly on purpose. Created by the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from battlebrokers.clock import SECOND_NS
from battlebrokers.devices.node import Node, outcome_of
from battlebrokers.devices.stopwatch import Stopwatch
from battlebrokers.errors import LinkError
from battlebrokers.protocols.base import Granted, Link, Subscription
from battlebrokers.scenario.plan import ClientPlan, FilterPlan


class Client(Node):
    """One subscriber; `subscriptions` are what it asks for and the filters they stand for, where they differ."""

    __slots__ = ("_budget_at_ns", "_meant", "_reads_per_s", "_resting", "join_ns", "subscribed", "subscriptions")

    role = "client"

    def __init__(
        self, plan: ClientPlan, link: Link, stopwatch: Stopwatch, subscriptions: Mapping[FilterPlan, str] | None = None
    ) -> None:
        super().__init__(plan.number, link, stopwatch, plan.connection, seed=plan.seed, away=plan.away)
        asked = subscriptions if subscriptions is not None else {f: f.filter for f in plan.subscriptions}
        self.subscriptions = tuple(Subscription(f.filter, f.qos, f.share) for f in asked)
        self._meant = {f.filter: meant for f, meant in asked.items() if meant != f.filter}
        self.join_ns = plan.join_ns
        self.subscribed = False
        self._reads_per_s = plan.reads_per_s
        if plan.reads_per_s:
            # Whoever reads slowly has to hear of every message at once.
            link.basket = None
        self._budget_at_ns = 0
        self._resting = False

    async def _arrive(self, session_present: bool) -> None:
        if self.subscriptions and not (session_present and self.subscribed):
            await self._subscribe()

    async def _subscribe(self) -> None:
        started_ns = self.stopwatch.now_ns()
        try:
            answers = await self.link.subscribe(self.subscriptions)
        except LinkError as error:
            self._record_subscribe(started_ns, [Granted(s, -1, error.code) for s in self.subscriptions], error.message)
            if self.connected:
                self.link.abort()
                self.dropped(f"subscribe failed: {error.message}", error.code)
            return
        self._record_subscribe(started_ns, answers, "")
        self.subscribed = True

    def _record_subscribe(self, started_ns: int, answers: list[Granted], detail: str) -> None:
        ended_ns = self.stopwatch.now_ns()
        for answer in answers:
            asked = answer.subscription
            granted = answer.qos if answer.qos >= 0 else None
            outcome = outcome_of(answer.reason) if detail else "ok" if granted is not None else "refused"
            self._operation(
                "subscribe", started_ns, outcome, ended_ns=ended_ns, reason=answer.reason,
                detail=detail or self._stands_for(asked.filter),
                subscription=(asked.filter, asked.share, asked.qos, granted),
            )  # fmt: skip

    def _stands_for(self, topic: str) -> str:
        return f"one of the topics of {self._meant[topic]}" if topic in self._meant else ""

    def heard(self, count: int) -> None:
        """Keep to the reading speed the plan allows: pause until the budget is earned again."""
        if not self._reads_per_s:
            return
        now_ns = self.stopwatch.now_ns()
        self._budget_at_ns = max(self._budget_at_ns, now_ns) + int(count * SECOND_NS / self._reads_per_s)
        if self._budget_at_ns > now_ns + SECOND_NS // 100 and not self._resting:
            self._resting = True
            self.link.pause_reading()
            asyncio.get_running_loop().call_later((self._budget_at_ns - now_ns) / SECOND_NS, self._read_again)

    def _read_again(self) -> None:
        # What came in the same chunk as the message that began the pause counts as well.
        remaining_ns = self._budget_at_ns - self.stopwatch.now_ns()
        if remaining_ns > 0:
            asyncio.get_running_loop().call_later(remaining_ns / SECOND_NS, self._read_again)
            return
        self._resting = False
        # Without a connection too: the pause would outlast it.
        self.link.resume_reading()
