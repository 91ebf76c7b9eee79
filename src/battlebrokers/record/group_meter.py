"""What a service uses as a whole: its control group and its network namespace, if it has some of its own.

Asked once a second by `resources`, whose sums over processes it replaces where the kernel knows better.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from battlebrokers.record.cgroup import CGROUPS, PROC, named_group, network_bytes, own_group, read_group


@dataclass(frozen=True, slots=True)
class GroupShare:
    """What the kernel counts for a service as a whole, in place of the sum over its processes."""

    cpu_percent: float | None = None
    totals: Mapping[str, int] = field(default_factory=dict)
    pids: tuple[int, ...] = ()


class GroupMeter:
    """Reads the control group and the network namespace of one service, if it has some of its own."""

    def __init__(self, name: str, root: Path = CGROUPS, proc: Path = PROC) -> None:
        self._name = name
        self._root = root
        self._proc = proc
        self._folder: Path | None = None
        self._of_pid = 0
        self._cpu_seconds: float | None = None

    def read(self, pids: list[int], elapsed_s: float) -> GroupShare:
        """What it uses now; `pids` are those of its processes that are known otherwise."""
        use = read_group(folder) if (folder := self._find(pids)) is not None else None
        members = use.pids if use is not None else ()
        network = network_bytes((*members, *pids)[0], self._proc) if members or pids else None
        known: dict[str, int | None] = {}
        cpu_percent = None
        if use is not None:
            known |= {"rss": use.rss_bytes, "read": use.read_bytes, "written": use.written_bytes}
            known |= {"threads": use.threads}
            if use.cpu_seconds is not None and self._cpu_seconds is not None:
                cpu_percent = 100 * max(use.cpu_seconds - self._cpu_seconds, 0.0) / elapsed_s
            self._cpu_seconds = use.cpu_seconds
        if network is not None:
            known |= {"received": network[0], "sent": network[1]}
        return GroupShare(cpu_percent, {name: value for name, value in known.items() if value is not None}, members)

    def _find(self, pids: list[int]) -> Path | None:
        if self._name:
            return named_group(self._name, self._root)
        if pids and pids[0] != self._of_pid:
            self._of_pid, self._folder, self._cpu_seconds = pids[0], own_group(pids[0], self._root, self._proc), None
        return self._folder
