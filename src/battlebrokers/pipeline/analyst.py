"""The analyst: a process of its own that holds a Spark session and analyses one run after the other.

Started by `client.Analyst`; speaks JSON lines on its standard input and output. While a measurement is going on it
runs with idle priority, and so does its JVM. It ends when its standard input closes, and takes the JVM with it.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import psutil

from battlebrokers.errors import BattleError, EnvironmentNotReady, PipelineError
from battlebrokers.pipeline.jvm import java_is_gone
from battlebrokers.pipeline.without_pandas import hide_pandas
from battlebrokers.tables.manifest import PairingFacts

if TYPE_CHECKING:
    from battlebrokers.pipeline.session import Session

Progress = Callable[[str, int, int], None]

_REHEARSALS = 2
_PR_SET_PDEATHSIG = 1
BEAT_EVERY_S = 2.0
_WORK = ("analyze", "decode")
"""Orders whose outcome somebody waits for."""


class _Priority:
    """Idle while others measure, normal while someone waits for us; where the system forbids a change, so be it."""

    def __init__(self) -> None:
        self.jvm_pid: int | None = None

    def idle(self) -> None:
        """Use only CPU time nobody else wants."""
        self._apply(getattr(os, "SCHED_IDLE", None))

    def normal(self) -> None:
        """Work like everybody else."""
        self._apply(getattr(os, "SCHED_OTHER", None))

    def _apply(self, policy: int | None) -> None:
        if policy is None:
            return
        for pid in filter(None, (os.getpid(), self.jvm_pid)):
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    with contextlib.suppress(OSError):
                        os.sched_setscheduler(int(task.name), policy, os.sched_param(0))


class _Desk:
    """Where orders come in and news goes out."""

    def __init__(self, news: IO[str], priority: _Priority) -> None:
        self.orders: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.busy = False
        self.awaited = True
        """Whether somebody may be waiting: while Spark starts, and while there is work."""
        self._news = news
        self._telling = threading.Lock()
        self._priority = priority
        threading.Thread(target=self._listen, name="orders", daemon=True).start()
        threading.Thread(target=self._beat, name="beat", daemon=True).start()

    def tell(self, event: str, **details: Any) -> None:
        """One line of news; nobody listening any more is not an error."""
        with contextlib.suppress(OSError, ValueError), self._telling:
            self._news.write(json.dumps({"event": event, **details}) + "\n")
            self._news.flush()

    def _beat(self) -> None:
        """A sign of life every now and then, as long as this process and its JVM answer."""
        while True:
            if self.awaited:
                with contextlib.suppress(Exception):
                    _ask_jvm()
                    self.tell("beat")
            time.sleep(BEAT_EVERY_S)

    def _listen(self) -> None:
        for line in sys.stdin:
            with contextlib.suppress(ValueError):
                order = json.loads(line)
                if order.get("do") in _WORK:
                    # Someone waits: stop being polite at once, also in the middle of starting up.
                    self._priority.normal()
                self.orders.put(order)
        # Whoever held us is gone: a JVM that was stopped could neither work nor end.
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                process.resume()
        if self.busy:
            # Whoever asked is gone; the JVM ends with its standard input.
            os._exit(1)
        self.orders.put(None)


def main(arguments: list[str]) -> int:
    """Serve until told to exit or until nobody is left to serve."""
    parser = argparse.ArgumentParser(prog="battlebrokers.pipeline.analyst")
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--expected-events", type=int, default=0)
    parser.add_argument("--idle", action="store_true")
    told = parser.parse_args(arguments)
    # Who holds us (SIGSTOP) may be killed meanwhile: then we go on, notice it, and end.
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGCONT), 0, 0, 0)
    # Standard output belongs to the protocol; whatever libraries print goes to the log.
    news = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    priority = _Priority()
    if told.idle:
        priority.idle()
    desk = _Desk(news, priority)
    desk.tell("up")
    hide_pandas()
    try:
        from battlebrokers.pipeline.session import start_session

        session = start_session(told.master, told.expected_events)
    except BattleError as error:
        desk.tell(**_failure(error))
        return int(error.exit_code)
    except Exception as error:  # noqa: BLE001 - told to the one who waits
        traceback.print_exc()
        desk.tell(**_failure(PipelineError(f"Spark did not start: {error}")))
        return 1
    priority.jvm_pid = session.pid
    with session:
        _rehearse(session, desk)
        desk.awaited = False
        desk.tell("ready")
        _serve(session, desk, priority)
        if session.jvm.archive_draft is not None:
            # Once per machine; nobody should feel it, and whoever waits for our end is told by the log.
            print("writing the class archive", file=sys.stderr, flush=True)
            priority.idle()
    return 0


def _ask_jvm() -> None:
    """Returns once the JVM has answered; at once where there is none yet. Imports nothing: the main thread does."""
    spark_context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    jvm = getattr(spark_context, "_jvm", None)
    if jvm is not None:
        jvm.java.lang.System.nanoTime()


def _rehearse(session: Session, desk: _Desk) -> None:
    from battlebrokers.pipeline.warm_up import rehearse

    for _ in range(_REHEARSALS):
        if not desk.orders.empty():
            return
        try:
            rehearse(session.spark)
        except Exception:  # noqa: BLE001 - a rehearsal that fails is a slower first run, no more
            traceback.print_exc()
            return


def _serve(session: Session, desk: _Desk, priority: _Priority) -> None:
    while (order := desk.orders.get()) is not None:
        match order.get("do"):
            case "analyze" | "decode" as work:
                priority.normal()
                desk.busy = desk.awaited = True
                news = _work(_analyze if work == "analyze" else _decode, session, desk, order)
                # In this order: who hears the news may leave at once.
                desk.busy = desk.awaited = False
                desk.tell(**news)
            case "quiet":
                priority.idle()
            case "exit":
                return


def _work(
    work: Callable[[Session, Progress, dict[str, Any]], dict[str, Any]],
    session: Session,
    desk: _Desk,
    order: dict[str, Any],
) -> dict[str, Any]:
    """Do what was ordered; the news to tell of it."""

    def progress(step: str, done: int, of: int) -> None:
        desk.tell("progress", step=step, done=done, of=of)

    try:
        return {"event": "done", **work(session, progress, order)}
    except BattleError as error:
        traceback.print_exc()
        return _failure(error)
    except Exception as error:  # noqa: BLE001 - told to the one who waits
        traceback.print_exc()
        return _failure(in_words(error, str(order.get("out") or order.get("run"))))


def _analyze(session: Session, progress: Progress, order: dict[str, Any]) -> dict[str, Any]:
    from battlebrokers.pipeline.graph import analyze

    outcome = analyze(session.spark, str(order["run"]), order.get("out"), progress)
    return {"seconds": outcome.seconds, "steps": outcome.steps, "defects": len(outcome.defects)}


def _decode(session: Session, progress: Progress, order: dict[str, Any]) -> dict[str, Any]:
    from battlebrokers.pipeline.captures import Captures, decode, hints_of, with_key_log
    from battlebrokers.pipeline.store import open_store

    pairing = PairingFacts(**order["pairing"]) if order.get("pairing") else None
    hints = hints_of(pairing)
    if order.get("tls_keys"):
        hints = with_key_log(hints, Path(order["tls_keys"]))
    captures = Captures(order["files"], names=order["names"], hints=hints)
    return {"summary": decode(session.spark, captures, open_store(order["out"], session.spark), progress)}


def in_words(error: Exception, place: str) -> BattleError:
    """What went wrong while writing to `place`, in one line; a task's error comes with the traceback of its worker."""
    text = str(error)
    for words, (reason, hint) in _OBSTACLES.items():
        if words in text:
            return EnvironmentNotReady(f"the tables cannot be written to {place}: {reason}", hint=hint)
    if gone := java_is_gone(error):
        return gone
    if os.environ.get("BB_DEBUG"):
        return PipelineError(f"the analysis failed: {text}")
    lines = [line for line in text.splitlines() if line.strip()] or [type(error).__name__]
    return PipelineError(
        f"the analysis failed: {lines[-1 if _TRACEBACK in text else 0]}", hint="BB_DEBUG=1 prints all that is known."
    )


_TRACEBACK = "Traceback (most recent call last)"
_OBSTACLES = {
    os.strerror(errno.ENOSPC): ("no space left", "Make room there and for Spark's files (SPARK_LOCAL_DIRS), or --out."),
    os.strerror(errno.EDQUOT): ("the quota is used up", "Make room there, or choose another --out."),
    os.strerror(errno.EACCES): ("permission denied", "Choose an --out that you may write to."),
    os.strerror(errno.EROFS): ("the file system is read-only", "Choose an --out that you may write to."),
    os.strerror(errno.ENOTDIR): ("a file is in the way", "Choose another --out."),
    os.strerror(errno.EEXIST): ("a file is in the way", "Choose another --out."),
}


def _failure(error: BattleError) -> dict[str, Any]:
    return {"event": "failed", "kind": type(error).__name__, "message": error.message, "hint": error.hint}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
