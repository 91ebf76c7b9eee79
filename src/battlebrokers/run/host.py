"""Facts about this machine: read once for the manifest, and judged by `preflight`.

Called by the orchestrator, workers and `bb doctor`. Reads only; what cannot be read is left out, never guessed.
"""

from __future__ import annotations

import os
import platform
import resource
import socket
import sys
from pathlib import Path
from typing import Any

import psutil

from battlebrokers.processes import boot_id

OPEN_FILES_WANTED = 1_000_000
_CGROUP = Path("/sys/fs/cgroup")


def host_facts() -> dict[str, Any]:
    """What a reader of results must know of the machine they come from; plain values, unknown ones left out."""
    soft, hard = open_files_limit()
    facts = {
        "hostname": socket.gethostname(),
        "boot_id": boot_id(),
        "os": os_name(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "virtualization": virtualization(),
        "cpu_model": cpu_model(),
        "cpu_cores": os.cpu_count() or 1,
        "cpu_cores_usable": usable_cores(),
        "cpu_governor": cpu_governor(),
        "cpu_quota_cores": cpu_quota_cores(),
        "clock_source": clock_source(),
        "steal_visible": steal_percent() is not None,
        "memory_bytes": psutil.virtual_memory().total,
        "memory_limit_bytes": memory_limit_bytes(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "open_files_soft": soft,
        "open_files_hard": hard,
        "local_ports": list(local_ports() or ()) or None,
        "somaxconn": somaxconn(),
        "tcp_congestion_control": tcp_congestion_control(),
        "python": platform.python_version(),
        "python_implementation": sys.implementation.name,
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}


def open_files_limit() -> tuple[int, int]:
    """How many files one process may open: now, and at most without more rights; -1 is without limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (-1 if soft == resource.RLIM_INFINITY else soft), (-1 if hard == resource.RLIM_INFINITY else hard)


def address_space_limit() -> int | None:
    """How much address space one process may have at most (`ulimit -v`); None is without limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    return None if hard == resource.RLIM_INFINITY else hard


def free_bytes(place: Path) -> int | None:
    """What we may still write there; None where nobody can tell."""
    try:
        found = os.statvfs(place)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize if found.f_blocks else None


def local_ports() -> tuple[int, int] | None:
    """The first and last port the system hands out to outgoing connections."""
    parts = _text("/proc/sys/net/ipv4/ip_local_port_range").split()
    return (int(parts[0]), int(parts[1])) if len(parts) == 2 and all(part.isdigit() for part in parts) else None


def somaxconn() -> int | None:
    """How many connections may wait to be accepted."""
    return _number("/proc/sys/net/core/somaxconn")


def tcp_congestion_control() -> str:
    """How TCP here decides when to send: `cubic`, `bbr`, …; empty if unknown. Brokers on this machine inherit it."""
    return _text("/proc/sys/net/ipv4/tcp_congestion_control")


def raise_open_files_limit() -> int:
    """Allow this process, and those it starts, as many open files as it may have without more rights."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return open_files_limit()[0]


def usable_cores() -> int:
    """The cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_model() -> str:
    """The processor's name."""
    for line in _text("/proc/cpuinfo").splitlines():
        if line.startswith(("model name", "Model", "Hardware")):
            return line.partition(":")[2].strip()
    return platform.processor()


def cpu_governor() -> str:
    """How the kernel chooses the clock frequency: `performance`, `powersave`, …; empty if unknown."""
    files = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    return "+".join(sorted({_text(path) for path in files} - {""}))


def clock_source() -> str:
    """What the kernel reads time from: `tsc` is fast, `hpet` and `acpi_pm` are slow."""
    return _text("/sys/devices/system/clocksource/clocksource0/current_clocksource")


def os_name() -> str:
    """The distribution's own name for itself."""
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.platform()


def virtualization() -> str:
    """`container`, the hypervisor's vendor, or `none` as far as we can see."""
    found = []
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists() or "container" in os.environ:
        found.append("container")
    vendor = _text("/sys/class/dmi/id/sys_vendor")
    if " hypervisor" in _text("/proc/cpuinfo"):
        found.append(f"virtual machine ({vendor})" if vendor else "virtual machine")
    return " in ".join(found) or "none"


def steal_percent() -> float | None:
    """CPU time the hypervisor took since boot, in percent of all; None where the kernel does not tell."""
    times = psutil.cpu_times()
    steal = getattr(times, "steal", None)
    total = sum(times)
    return None if steal is None or not total else round(100.0 * steal / total, 2)


def cpu_quota_cores() -> float | None:
    """How many cores' worth of time our control group may use; None when there is no limit."""
    quota = _text(_own_group("cpu") / "cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit():
        return round(int(quota[0]) / int(quota[1]), 2)
    quota_us = _number(_own_group("cpu") / "cpu.cfs_quota_us")
    period_us = _number(_own_group("cpu") / "cpu.cfs_period_us")
    return round(quota_us / period_us, 2) if quota_us and period_us and quota_us > 0 else None


def memory_limit_bytes() -> int | None:
    """How much memory our control group may use; None when there is no limit below the machine's own."""
    group = _own_group("memory")
    limit = _number(group / "memory.max") or _number(group / "memory.limit_in_bytes")
    return limit if limit and limit < psutil.virtual_memory().total else None


def _own_group(controller: str) -> Path:
    """The folder of our control group for a controller, in either layout; inside a container that is the root."""
    for line in _text("/proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller in controllers.split(",") or (number == "0" and not (_CGROUP / controller).is_dir()):
            base = _CGROUP / controller if controller in controllers.split(",") else _CGROUP
            own = base / path.lstrip("/")
            return own if own.is_dir() else base
    return _CGROUP


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _number(path: str | Path) -> int | None:
    text = _text(path)
    return int(text) if text.lstrip("-").isdigit() else None
