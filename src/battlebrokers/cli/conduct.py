"""Runs an orchestrator to its end under a progress bar, with Ctrl-C meaning "finish what you have"."""

from __future__ import annotations

import asyncio
from pathlib import Path

from battlebrokers import leftovers, signals
from battlebrokers.cli.progress import RunProgress
from battlebrokers.clock import SECOND_NS
from battlebrokers.errors import Interrupted
from battlebrokers.pipeline.client import Analyst
from battlebrokers.pipeline.jvm import find_java
from battlebrokers.run.analysis_checks import analysis
from battlebrokers.run.machine import gather
from battlebrokers.run.orchestrator import Orchestrator, RunRequest
from battlebrokers.run.preflight import Needs, require
from battlebrokers.scenario.plan import Plan
from battlebrokers.tables.run_folder import RunFolder

_KEEPING = "Ctrl-C: ending the load and keeping what was measured; press again to stop at once."
_ONLY_STARTING = "Ctrl-C: ending the broker, which was still starting; nothing was measured yet."


def conduct(request: RunRequest, progress: RunProgress, analyst: Analyst) -> RunFolder:
    """One run; the first signal ends it early and keeps the evidence, the second ends this process at once.

    The analyst gets ready meanwhile, and is held as long as devices are connected.
    """

    async def under_signals() -> RunFolder:
        orchestrator = Orchestrator(request, progress.glimpse, analyst, progress.warn)
        loop = asyncio.get_running_loop()

        def interrupt() -> None:
            loop.call_soon_threadsafe(end)

        def end() -> None:
            progress.say(_KEEPING if orchestrator.has_begun else _ONLY_STARTING)
            orchestrator.interrupt()

        def kept() -> str:
            folder = orchestrator.folder
            if folder is None or not orchestrator.has_begun:
                return "nothing was measured"
            return kept_in(folder) if orchestrator.has_measured else f"nothing was measured; {folder.path} tells so"

        forget = leftovers.register(leftovers.Order.FILES, lambda _within_s: orchestrator.abandon())
        try:
            with signals.keeping(kept), signals.reacting(interrupt):
                return await orchestrator.run()
        finally:
            forget()

    if signals.interrupted():
        raise Interrupted("interrupted before the run began; nothing was measured")
    return asyncio.run(under_signals())


def start_analyst(spark_master: str, events: int, runs: Path) -> Analyst:
    """The analysis process for runs; what it would lack after the load is told before anything is started."""
    machine = gather(runs, programs=False)
    require(analysis(machine, Needs(events=events)))
    find_java()
    return Analyst.start(spark_master, events)


def kept_in(folder: RunFolder | None) -> str:
    """What to tell of a run whose evidence is there, and whose verdict may not be."""
    return "" if folder is None else f"what was measured is kept in {folder.path}: `bb analyze {folder.path}` judges it"


def expected_events(plan: Plan) -> int:
    """How many messages and deliveries a run of the plan will record; Spark starts smaller and sooner for few."""
    per_s = plan.messages_per_s + plan.deliveries_per_s
    return max(1, round(per_s * plan.phases.load_ns / SECOND_NS))
