"""What of a running contender others could reach or abuse: sockets off the loopback interface, processes of root."""

from __future__ import annotations

import contextlib
import ipaddress
import subprocess
import time
from pathlib import Path

import psutil

from battlebrokers.contenders.running import RunningContender

_LOOKS = 20
_BETWEEN_LOOKS_S = 0.1


def processes_of(running: RunningContender) -> list[psutil.Process]:
    """All of its processes, daemons and those beside it included."""
    own = running.process.pids() if running.process is not None else []
    found: list[psutil.Process] = []
    for pid in own:
        with contextlib.suppress(psutil.NoSuchProcess):  # some start others for a moment
            found.append(psutil.Process(pid))
    return found + [each for there in running.beside for each in processes_of(there)]


def exposed(running: RunningContender) -> list[str]:
    """Its sockets that wait where more than this machine can reach them, as `ss` tells; a network apart is none.

    Those that stay: Erlang opens a datagram socket for a moment to ask the system for its interfaces.
    """
    found = _open_sockets(running)
    for _ in range(_LOOKS):
        if not found:
            break
        time.sleep(_BETWEEN_LOOKS_S)
        found &= _open_sockets(running)
    return sorted(found)


def _open_sockets(running: RunningContender) -> set[str]:
    everyone = processes_of(running)
    here = [process for process in everyone if _network(process.pid) in (_network("self"), "")]
    marks = [f"pid={process.pid}," for process in here]
    told = subprocess.run(["ss", "-lntupH"], capture_output=True, text=True, check=True, timeout=60).stdout
    own = [line for line in told.splitlines() if any(mark in line for mark in marks)]
    assert own or len(here) < len(everyone), f"ss does not show us its sockets:\n{told}"
    return {" ".join(line.split()) for line in own if not _is_loopback(line.split()[4])}


def of_root(running: RunningContender) -> list[str]:
    """Its processes that are root, by name."""
    found = []
    for process in processes_of(running):
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [process.name()] if process.uids().effective == 0 else []
    return found


def _is_loopback(place: str) -> bool:
    address = place.rpartition(":")[0].partition("%")[0].strip("[]")
    if address in ("*", ""):
        return False
    parsed = ipaddress.ip_address(address)
    inside = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (inside or parsed).is_loopback


def _network(pid: int | str) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except OSError:
        return ""  # gone
