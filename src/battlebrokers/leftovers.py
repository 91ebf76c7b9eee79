"""What has to be gone when this process ends at once: child processes, networks, temporary folders.

Whoever makes such a thing registers its removal here; `signals` calls `remove_all` on the second Ctrl-C. Runs in any
thread, within a time limit. Never used for the normal end: that is the business of whoever made the thing.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
import time
from collections.abc import Callable
from enum import IntEnum
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil


class Order(IntEnum):
    """What is removed first: a process could still write into a folder, or use a network."""

    PROCESSES = 0
    NETWORKS = 1
    FILES = 2


Removal = Callable[[float], None]
"""Removes one thing within so many seconds."""

PROCESSES_WITHIN_S = 1.1
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_S = 0.01

_lock = threading.Lock()
_numbers = count()
_removals: dict[int, tuple[Order, Removal]] = {}
ending = threading.Event()
"""Set once the process ends at once: nothing new may be made."""


def register(order: Order, removal: Removal) -> Callable[[], None]:
    """Have this called if the process ends at once; returns what takes it off the list again."""
    with _lock:
        number = next(_numbers)
        _removals[number] = order, removal
    return lambda: _forget(number)


def _forget(number: int) -> None:
    with _lock:
        _removals.pop(number, None)


def remove_all(within_s: float) -> None:
    """End all children and remove all that was registered; what takes longer than the limit is left."""
    ending.set()
    until = time.monotonic() + within_s
    # From now on orphans of our children are ours, and are found with them.
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for order in Order:
        with _lock:
            chosen = [removal for its_order, removal in _removals.values() if its_order is order]
        left_s = max(0.0, until - time.monotonic())
        _call_all(chosen, min(left_s, PROCESSES_WITHIN_S) if order is Order.PROCESSES else left_s)
        if order is Order.PROCESSES:
            kill_descendants(max(0.1, until - time.monotonic()))


def await_end() -> None:
    """Only while everything is being removed: this process says nothing more, and ends with all the rest."""
    while ending.is_set():
        time.sleep(1.0)


def kill_descendants(within_s: float, pid: int | None = None) -> None:
    """SIGKILL for every child of this process (or of that one) and all of theirs, until none is left."""
    import psutil  # not at the top: scripts/mininet-lab runs on the system's Python, which may lack it

    until = time.monotonic() + within_s
    while left := living_descendants(pid):
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        if time.monotonic() >= until:
            return
        time.sleep(_LOOK_S)


def living_descendants(pid: int | None = None) -> list[psutil.Process]:
    """The processes below this one (or that one) which have not ended, stopped ones included."""
    import psutil

    found = []
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
    return found


def _call_all(removals: list[Removal], within_s: float) -> None:
    """Side by side, so that a slow one costs the others no time."""
    until = time.monotonic() + within_s
    threads = [threading.Thread(target=_quietly, args=(one, within_s), daemon=True) for one in removals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))


def _quietly(removal: Removal, within_s: float) -> None:
    with contextlib.suppress(Exception):
        removal(within_s)
