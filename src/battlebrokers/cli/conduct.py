"""Runs an orchestrator to its end under a progress bar, with Ctrl-C meaning "finish what you have"."""

from __future__ import annotations

import asyncio
import signal

from battlebrokers.cli.progress import RunProgress
from battlebrokers.run.orchestrator import Orchestrator, RunRequest
from battlebrokers.tables.run_folder import RunFolder


def conduct(request: RunRequest, progress: RunProgress) -> RunFolder:
    """One run; the first Ctrl-C ends it early and keeps the evidence, the second stops at once."""

    async def under_signals() -> RunFolder:
        orchestrator = Orchestrator(request, progress.glimpse)
        loop = asyncio.get_running_loop()
        task = loop.create_task(orchestrator.run())
        pressed = 0

        def interrupt() -> None:
            nonlocal pressed
            pressed += 1
            if pressed == 1:
                progress.say("Ctrl-C: ending the load and keeping what was measured; press again to stop at once.")
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
