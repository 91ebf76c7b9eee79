"""The analyst: a process that keeps one Spark session warm and analyses runs one after another.

Started by `client` as `python -m battlebrokers.pipeline.analyst`. Orders come as JSON lines on standard input, events
leave as JSON lines on standard output. Until it is given a run it takes only CPU time nobody else wants.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from battlebrokers.errors import BattleError, ExitCode
from battlebrokers.pipeline.graph import analyze
from battlebrokers.pipeline.session import Session, start_session
from battlebrokers.pipeline.warm_up import write_tiny_run


class _Enough(Exception):  # noqa: N818 - no error: a real run is waiting
    """The warm-up is cut short."""


class Analyst:
    """Reads orders in a thread, so that a run is heard of while the session still warms up."""

    def __init__(self, orders: IO[str], answers: IO[str], *, idle: bool) -> None:
        self._answers = answers
        self._idle = idle
        self._session: Session | None = None
        self._orders: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._wanted = threading.Event()
        threading.Thread(target=self._listen, args=(orders,), daemon=True).start()

    def serve(self, master: str, expected_events: int) -> None:
        """Start the session, warm it, then work until told to end or left alone."""
        if self._idle:
            self._set_policy(idle=True)
        try:
            self._session = start_session(master, expected_events)
        except BattleError as error:
            self._refuse_all(error)
            return
        with self._session as session:
            if self._wanted.is_set():
                self._set_policy(idle=False)
            if self._idle:
                self._warm_up(session)
            self._say(event="ready")
            while (order := self._orders.get()) is not None:
                if order["do"] == "analyze":
                    self._analyze(session, order)
                elif order["do"] == "rest" and self._idle:
                    self._wanted.clear()
                    self._set_policy(idle=True)

    def _listen(self, orders: IO[str]) -> None:
        for line in orders:
            with contextlib.suppress(json.JSONDecodeError):
                order = json.loads(line)
                if order.get("do") == "analyze":
                    self._wanted.set()
                    self._set_policy(idle=False)
                self._orders.put(order)
        self._wanted.set()
        self._orders.put(None)

    def _warm_up(self, session: Session) -> None:
        """Analyse a made-up run: the same code is generated, compiled and loaded that the first real one needs."""

        def until_wanted(_step: str, _done: int, _of: int) -> None:
            if self._wanted.is_set():
                raise _Enough

        with tempfile.TemporaryDirectory(prefix="bb-warm-up-") as folder, contextlib.suppress(_Enough):
            try:
                until_wanted("", 0, 0)
                write_tiny_run(Path(folder))
                analyze(session.spark, folder, on_progress=until_wanted)
            except BattleError:
                traceback.print_exc()

    def _analyze(self, session: Session, order: dict[str, Any]) -> None:
        def tell(step: str, done: int, of: int) -> None:
            self._say(event="progress", step=step, done=done, of=of)

        try:
            outcome = analyze(session.spark, order["run"], order.get("out"), tell)
        except BattleError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - the client must hear of it, whatever it is
            traceback.print_exc()
            self._say(event="failed", message=f"{type(error).__name__}: {error}", hint="", exit_code=int(ExitCode.BUG))
        else:
            self._say(event="done", seconds=outcome.seconds, steps=outcome.steps, defects=len(outcome.defects))

    def _refuse_all(self, error: BattleError) -> None:
        while (order := self._orders.get()) is not None:
            if order["do"] == "analyze":
                self._fail(error)

    def _fail(self, error: BattleError) -> None:
        self._say(event="failed", message=error.message, hint=error.hint, exit_code=int(error.exit_code))

    def _say(self, **event: Any) -> None:
        with contextlib.suppress(OSError):
            self._answers.write(json.dumps(event) + "\n")
            self._answers.flush()

    def _set_policy(self, *, idle: bool) -> None:
        pids = [os.getpid(), *([self._session.pid] if self._session is not None else [])]
        set_policy(pids, idle=idle)


def set_policy(pids: Iterable[int], *, idle: bool) -> None:
    """Let all threads of these processes run only on idle CPUs, or like everyone else, as far as that is allowed."""
    if not hasattr(os, "SCHED_IDLE"):
        return
    policy = os.SCHED_IDLE if idle else os.SCHED_OTHER
    for pid in pids:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError, ValueError):
                    os.sched_setscheduler(int(task.name), policy, os.sched_param(0))


def main(arguments: list[str]) -> None:
    """Entry point of the analyst's process."""
    parser = argparse.ArgumentParser(prog="battlebrokers.pipeline.analyst")
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--expected-events", type=int, default=0)
    parser.add_argument("--idle", action="store_true")
    options = parser.parse_args(arguments)
    # What Spark or Java print must not mix with our answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    Analyst(sys.stdin, answers, idle=options.idle).serve(options.master, options.expected_events)


if __name__ == "__main__":
    main(sys.argv[1:])
