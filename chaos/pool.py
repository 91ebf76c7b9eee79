"""Tries faults, a few at a time, each in a process of its own that inherits whatever loses its parent.

Called by `__main__`. A fault that does not end is ended, with everything it started.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any, Final

import psutil

from chaos.fault import Fault, Result, folder_of
from chaos.judging import complaints_about
from chaos.place import BB, NeverHappenedError, Place

_SUBREAPER: Final = 36
_SLACK_S: Final = 40.0
"""For leaving and looking, beyond a fault's own time."""
_SAID_CHARACTERS: Final = 1500


def missing(fault: Fault) -> str:
    """Why a fault cannot be tried here; empty: it can."""
    for need in fault.needs.split():
        if need == "root":
            if os.geteuid() != 0:
                return "needs root"
        elif shutil.which(need) is None and shutil.which(need, path="/usr/sbin:/sbin") is None:
            return f"{need} is not installed"
    return ""


def write_class_archive(folder: Path) -> None:
    """Analyse a run, so that Spark's class archive, which takes a while once per machine, is there before any fault."""
    _adopt_orphans()
    words = ["run", "one-to-one", "--broker", "loopback://", "--no-html", "--runs", str(folder / "first")]
    subprocess.run([str(BB), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300, check=False)
    _, still_there = psutil.wait_procs(psutil.Process().children(recursive=True), 300)
    assert not still_there, "the class archive was not written within 5 minutes"


def _adopt_orphans() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)


def try_all(faults: Sequence[Fault], folder: Path, jobs: int, tell: Callable[[Result], None]) -> list[Result]:
    """All results, in the order in which they came."""
    context = multiprocessing.get_context("fork")
    waiting, results = list(faults), list[Result]()
    answers: dict[Any, tuple[Fault, SimpleQueue[Result], float]] = {}

    def note(result: Result) -> None:
        results.append(result)
        tell(result)

    while waiting or answers:
        while waiting and len(answers) < jobs:
            fault = waiting.pop(0)
            if reason := missing(fault):
                note(Result(fault.full_name, 0.0, skipped=reason))
                continue
            answer = context.SimpleQueue()
            process = context.Process(target=_try_alone, args=(fault, folder, answer))
            process.start()
            answers[process] = (fault, answer, time.monotonic())
        for process, (fault, answer, began_s) in list(answers.items()):
            seconds = time.monotonic() - began_s
            if not answer.empty():
                note(answer.get())
            elif not process.is_alive():
                note(Result(fault.full_name, seconds, complaints=(f"its process ended with {process.exitcode}",)))
            elif seconds > fault.within_s + _SLACK_S:
                process.kill()
                note(Result(fault.full_name, seconds, complaints=("it could not be ended",)))
            else:
                continue
            process.join(_SLACK_S)
            del answers[process]
        time.sleep(0.02)
    return results


def _try_alone(fault: Fault, folder: Path, answer: SimpleQueue[Result]) -> None:
    _adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answer.put(try_one(fault, folder))


def try_one(fault: Fault, under: Path) -> Result:
    """Let it happen here, and judge."""
    began_s = time.monotonic()
    place = Place(folder_of(fault.full_name, under), fault.within_s)
    try:
        seen = fault.apply(place)
    except NeverHappenedError as why:
        return _lost(fault, place, began_s, str(why))
    except (OSError, AssertionError, ValueError, StopIteration) as why:
        return _lost(fault, place, began_s, f"chaos itself failed: {type(why).__name__}: {why}")
    finally:
        place.clear()
    complaints = complaints_about(seen, fault.must)
    said = seen.said[-_SAID_CHARACTERS:] if complaints else ""
    return Result(fault.full_name, time.monotonic() - began_s, seen.code, complaints, said=said)


def _lost(fault: Fault, place: Place, began_s: float, why: str) -> Result:
    said = place.said()[-_SAID_CHARACTERS:]
    return Result(fault.full_name, time.monotonic() - began_s, None, (why,), said=said)
