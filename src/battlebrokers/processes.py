"""Which process something is, and whether it is gone: ids are given again, after a restart and on other machines too.

Called by whoever leaves a mark of a process on disk, and by whoever finds one. Ends no process.
"""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path

import msgspec
import psutil

_DEAD = ("Z", "X")
_STATE, _STARTED = 0, 19
"""Places in /proc/PID/stat behind the name, which may hold anything, brackets included."""


class ProcessIdentity(msgspec.Struct, frozen=True):
    """A process, told apart from every other one of this machine and of others."""

    pid: int
    boot_id: str
    """The machine since its last start."""
    host: str
    pid_namespace: str = ""
    """Containers count their processes from 1."""
    started_ticks: int = 0
    """When it began, in clock ticks since the machine's start; 0 if unknown."""


@cache
def boot_id() -> str:
    """Tells machines, and their restarts, apart: two processes with one boot id read the same monotonic clock."""
    try:
        known = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        known = ""
    return known or f"{socket.gethostname()}-{int(psutil.boot_time())}"


def own_identity() -> ProcessIdentity:
    """This very process."""
    pid = os.getpid()
    _, started_ticks = _state_and_start(pid)
    return ProcessIdentity(pid, boot_id(), socket.gethostname(), _pid_namespace(), started_ticks)


def is_gone(process: ProcessIdentity) -> bool:
    """Whether it has ended for certain; False also where that cannot be known from here, as of another machine."""
    if process.pid <= 0 or process.host != socket.gethostname():
        return False
    if process.boot_id != boot_id():
        return True
    if process.pid_namespace and process.pid_namespace != _pid_namespace():
        return False
    state, started_ticks = _state_and_start(process.pid)
    if not state or state in _DEAD:
        return True
    return bool(started_ticks and process.started_ticks) and started_ticks != process.started_ticks


def _state_and_start(pid: int) -> tuple[str, int]:
    """The letter of its state, empty if there is no such process, and when it began."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return told[_STATE], int(told[_STARTED])
    except (FileNotFoundError, ProcessLookupError):
        return ("?" if _is_hidden(pid) else ""), 0
    except (OSError, IndexError, ValueError):
        return "?", 0


def _is_hidden(pid: int) -> bool:
    """Whether it lives, and only /proc does not show it to us (`hidepid`)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
