"""What a run has to be registered with its contender for, and what links then know. Called by the orchestrator.

For a contender without a dialect nothing happens here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from battlebrokers.contenders.broker_url import parse_broker_url
from battlebrokers.contenders.lifecycle import RunningContender
from battlebrokers.contenders.model import facts_of
from battlebrokers.devices.controller import Controller, Registered, listeners_of_topics
from battlebrokers.errors import ContenderError
from battlebrokers.protocols.script import Known
from battlebrokers.record.segments import write_rows
from battlebrokers.scenario.plan import Plan
from battlebrokers.tables import OPERATIONS

_REMOVE_WITHIN_S = 120.0


class Registering:
    """One run's registration with one contender: `register` before the worker connects, `remove` when it has left."""

    def __init__(
        self,
        contender: RunningContender,
        plan: Plan,
        now_ns: Callable[[], int],
        watch: Callable[[int, int], None],
    ) -> None:
        self._contender = contender
        self._plan = plan
        self.phase = ""
        """`register` or `remove` while it lasts."""
        self._controller: Controller | None = None
        if contender.registration is not None:
            url = contender.endpoints.get("http")
            if url is None:
                raise ContenderError(
                    f"{contender.name} wants to be registered with over HTTP, and has no http endpoint",
                    hint="Its file needs `http` among the `endpoints`.",
                )
            self._controller = Controller(
                contender.registration, parse_broker_url(url), plan, known_by_all(contender, plan.run_id), now_ns, watch
            )

    def stop(self) -> None:
        """The user wants it to end: register nobody else."""
        if self._controller is not None:
            self._controller.stop()

    @property
    def listed(self) -> int | None:
        """How many the contender listed when all was registered; None where nobody asks."""
        return None if self._controller is None else self._controller.listed

    async def register(self) -> Registered:
        """Register everything; what all know is there even where nothing has to be registered."""
        registered = Registered(known_by_all(self._contender, self._plan.run_id))
        if self._controller is not None:
            self.phase = "register"
            try:
                registered = await self._controller.register()
            finally:
                self.phase = ""
        if self._contender.model is not None:
            for topic in self._plan.matching.topics:
                registered.topics.setdefault(topic, {}).update(facts_of(topic))
        listeners_of_topics(self._plan, registered, self._contender.scripts)
        return registered

    async def remove(self, evidence: Path) -> int:
        """Remove what was registered, and write down every call; returns how many removals failed."""
        if self._controller is None:
            return 0
        self.phase = "remove"
        failed = 0
        try:
            if self._contender.alive():
                failed = await asyncio.wait_for(self._controller.remove(), _REMOVE_WITHIN_S)
        except TimeoutError:
            failed = -1
        finally:
            self.phase = ""
            write_rows(evidence, OPERATIONS, "orchestrator", self._controller.rows)
        return failed


def known_by_all(contender: RunningContender, run_id: str) -> Known:
    """What every template may use, whoever speaks."""
    username, password = contender.credentials
    return {
        **contender.known,
        "run": run_id,
        "username": username or "",
        "password": password.reveal() if password else "",
    }
