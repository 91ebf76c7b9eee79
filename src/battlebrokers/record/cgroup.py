"""Control groups (version 2): what a whole service used, as the kernel counts it, children that ended included.

Read once a second by `resources` for services that have a group of their own: containers and systemd units.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class GroupUse:
    """Counters of one control group; None where its controller is not switched on."""

    cpu_seconds: float | None
    rss_bytes: int | None
    read_bytes: int | None
    written_bytes: int | None
    threads: int | None
    pids: tuple[int, ...]


def hierarchy(root: Path = CGROUPS) -> Path | None:
    """Where version 2 is mounted: at the root, or beside version 1 as `unified`; None when there is none."""
    return next((place for place in (root, root / "unified") if (place / "cgroup.controllers").is_file()), None)


def own_group(pid: int, root: Path = CGROUPS, proc: Path = PROC) -> Path | None:
    """The group of a process, if it is neither the root nor the one we are in: then it says nothing of the service."""
    mounted = hierarchy(root)
    mine, ours = group_name(pid, proc), group_name("self", proc)
    if mounted is None or not mine or mine in ("/", ours) or ours.startswith(f"{mine}/"):
        return None
    return inside(mounted, mine)


def group_name(pid: int | str, proc: Path = PROC) -> str:
    """The group a process is in, as a path below the hierarchy; empty when there is no version 2."""
    for line in (_text(proc / str(pid) / "cgroup") or "").splitlines():
        if line.startswith("0::"):
            return line[3:].strip()
    return ""


def named_group(name: str, root: Path = CGROUPS) -> Path | None:
    """A group by its path below the hierarchy, such as `system.slice/redis.service`."""
    mounted = hierarchy(root)
    return inside(mounted, name) if mounted is not None else None


def inside(mounted: Path, name: str) -> Path | None:
    """The folder of a group; None if it is not there, or not below the hierarchy."""
    folder = mounted / name.lstrip("/")
    return folder if ".." not in folder.parts and (folder / "cgroup.procs").is_file() else None


def read_group(folder: Path) -> GroupUse | None:
    """What the group has used; None when it is gone."""
    processes = _text(folder / "cgroup.procs")
    if processes is None:
        return None
    cpu_usec = _flat(folder / "cpu.stat").get("usage_usec")
    memory = _flat(folder / "memory.stat")
    disk = [_pairs(line) for line in (_text(folder / "io.stat") or "").splitlines()]
    io = (folder / "io.stat").is_file()
    return GroupUse(
        cpu_seconds=None if cpu_usec is None else cpu_usec / 1e6,
        # What ps would call resident, without counting shared pages once per process.
        rss_bytes=memory["anon"] + memory.get("file_mapped", 0) if "anon" in memory else None,
        read_bytes=sum(device.get("rbytes", 0) for device in disk) if io else None,
        written_bytes=sum(device.get("wbytes", 0) for device in disk) if io else None,
        threads=_number(_text(folder / "pids.current")),
        pids=tuple(int(word) for word in processes.split() if word.isdigit()),
    )


def network_bytes(pid: int, proc: Path = PROC) -> tuple[int, int] | None:
    """Bytes received and sent by a process's whole network namespace, loopback left out; None if it shares ours."""
    try:
        if (proc / str(pid) / "ns/net").readlink() == (proc / "self/ns/net").readlink():
            return None
    except OSError:
        return None
    return parse_net_dev(_text(proc / str(pid) / "net/dev") or "")


def parse_net_dev(told: str) -> tuple[int, int]:
    """Received and sent in what /proc/net/dev tells, loopback left out."""
    received = sent = 0
    for line in told.splitlines():
        name, colon, numbers = line.partition(":")
        fields = numbers.split()
        if colon and name.strip() != "lo" and len(fields) >= 9 and fields[0].isdigit() and fields[8].isdigit():
            received += int(fields[0])
            sent += int(fields[8])
    return received, sent


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdigit() else None


def _flat(path: Path) -> dict[str, int]:
    pairs = (line.split() for line in (_text(path) or "").splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _pairs(line: str) -> dict[str, int]:
    words = (word.partition("=") for word in line.split())
    return {key: int(value) for key, equals, value in words if equals and value.isdigit()}
