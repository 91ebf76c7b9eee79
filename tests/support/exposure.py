"""What of a running contender others could reach or abuse: sockets off the loopback interface, processes of root."""

from __future__ import annotations

import ipaddress
import subprocess
from pathlib import Path

import psutil

from battlebrokers.contenders.running import RunningContender


def processes_of(running: RunningContender) -> list[psutil.Process]:
    """All of its processes, daemons and those beside it included."""
    own = running.process.pids() if running.process is not None else []
    return [psutil.Process(pid) for pid in own] + [each for there in running.beside for each in processes_of(there)]


def exposed(running: RunningContender) -> list[str]:
    """Its sockets that wait where more than this machine can reach them, as `ss` tells; a network apart is none."""
    here = [process for process in processes_of(running) if _network(process.pid) == _network("self")]
    marks = [f"pid={process.pid}," for process in here]
    told = subprocess.run(["ss", "-lntupH"], capture_output=True, text=True, check=True, timeout=60).stdout
    own = [line for line in told.splitlines() if any(mark in line for mark in marks)]
    assert own or len(here) < len(processes_of(running)), f"ss does not show us its sockets:\n{told}"
    return [line for line in own if not _is_loopback(line.split()[4])]


def of_root(running: RunningContender) -> list[str]:
    """Its processes that are root, by name."""
    return [process.name() for process in processes_of(running) if process.uids().effective == 0]


def _is_loopback(place: str) -> bool:
    address = place.rpartition(":")[0].partition("%")[0].strip("[]")
    if address in ("*", ""):
        return False
    parsed = ipaddress.ip_address(address)
    inside = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (inside or parsed).is_loopback


def _network(pid: int | str) -> str:
    return str(Path(f"/proc/{pid}/ns/net").readlink())
