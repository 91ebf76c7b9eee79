"""Runs an orchestrator to its end under a progress bar, with Ctrl-C meaning "finish what you have"."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading

from battlebrokers.cli.progress import RunProgress
from battlebrokers.clock import SECOND_NS
from battlebrokers.errors import BattleError
from battlebrokers.pipeline.client import Analyst
from battlebrokers.run.orchestrator import Orchestrator, RunRequest
from battlebrokers.scenario.plan import Plan
from battlebrokers.tables.run_folder import RunFolder

_KEEPING = "Ctrl-C: ending the load and keeping what was measured; press again to stop at once."
_ONLY_STARTING = "Ctrl-C: ending the broker, which was still starting; nothing was measured yet."


def conduct(request: RunRequest, progress: RunProgress, analyst: Analyst) -> RunFolder:
    """One run; the first Ctrl-C ends it early and keeps the evidence, the second stops at once.

    The load starts once the analyst has woken up: by then broker and devices are mostly there as well.
    """
    awake = threading.Event()
    threading.Thread(target=_wait_for, args=(analyst, awake), daemon=True).start()

    async def under_signals() -> RunFolder:
        orchestrator = Orchestrator(request, progress.glimpse, awake.is_set, progress.warn)
        loop = asyncio.get_running_loop()
        task = loop.create_task(orchestrator.run())
        pressed = 0

        def interrupt() -> None:
            nonlocal pressed
            pressed += 1
            if pressed == 1:
                progress.say(_KEEPING if orchestrator.has_begun else _ONLY_STARTING)
                orchestrator.interrupt()
            else:
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, interrupt)
        try:
            return await task
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    return asyncio.run(under_signals())


def expected_events(plan: Plan) -> int:
    """How many messages and deliveries a run of the plan will record; Spark starts smaller and sooner for few."""
    per_s = plan.messages_per_s + plan.deliveries_per_s
    return max(1, round(per_s * plan.phases.load_ns / SECOND_NS))


def _wait_for(analyst: Analyst, awake: threading.Event) -> None:
    # Whatever is wrong with it is told when it is given the run; the evidence is recorded all the same.
    with contextlib.suppress(BattleError):
        analyst.wait_until_ready()
    awake.set()
