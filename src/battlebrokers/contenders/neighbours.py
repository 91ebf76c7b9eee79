"""Services that somebody else runs on this machine: found by their control group, their container or their ports.

Asked by `running` once a second: what was found is kept as long as it lives, for looking is dear.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import psutil

from battlebrokers.contenders.contained import group_of_container
from battlebrokers.contenders.services import Service
from battlebrokers.errors import EnvironmentNotReady
from battlebrokers.record.cgroup import named_group, read_group
from battlebrokers.record.containers import find_container
from battlebrokers.record.resources import process_tree
from battlebrokers.record.route import resolved

FORWARDERS = {"docker-proxy", "rootlessport", "slirp4netns", "pasta", "pasta.avx2"}
"""Listen for a container; what they use is not what the service uses."""

_LOOK_AGAIN_S = 5.0


@dataclass
class Neighbours:
    """The services of a contender that somebody else runs; `_roots` are processes known from the start."""

    services: Mapping[str, Service]
    ports: Mapping[str, Sequence[int]]
    """Service → where it listens on this machine."""
    _groups: dict[str, str] = field(default_factory=dict, repr=False)
    _roots: dict[str, list[int]] = field(default_factory=dict, repr=False)
    _look_at: dict[str, float] = field(default_factory=dict, repr=False)

    def pids(self) -> dict[str, list[int]]:
        """Service → its processes right now; those that cannot be seen from here are left out."""
        found = {name: self._pids_of(name, service) for name, service in self.services.items()}
        return {name: pids for name, pids in found.items() if pids is not None}

    def group_of(self, service: str) -> str:
        """The control group its file names, or that of its container; empty when neither is known."""
        described = self.services.get(service)
        if described is None:
            return ""
        if described.cgroup or not described.container:
            return described.cgroup
        if service not in self._groups:
            self._groups[service] = group_of_container(described.container)
        return self._groups[service]

    def _pids_of(self, name: str, service: Service) -> list[int] | None:
        if group := self.group_of(name):
            folder = named_group(group)
            use = read_group(folder) if folder is not None else None
            if use is not None:
                return list(use.pids)
        roots = [pid for pid in self._roots.get(name, []) if psutil.pid_exists(pid)]
        if not roots and time.monotonic() >= self._look_at.get(name, 0.0):
            roots = _container_roots(service.container) if service.container else listeners(self.ports.get(name, ()))
            self._look_at[name] = time.monotonic() + _LOOK_AGAIN_S
        self._roots[name] = roots
        return list(dict.fromkeys(pid for root in roots for pid in process_tree(root))) if roots else None


def _container_roots(container: str) -> list[int]:
    try:
        return [find_container(container).pid]
    except EnvironmentNotReady:
        return []


def listeners(ports: Iterable[int]) -> list[int]:
    """The processes that wait for connections or datagrams at these ports of this machine, as far as we may see."""
    wanted = set(ports)
    if not wanted:
        return []
    try:
        sockets = psutil.net_connections(kind="inet")
    except (psutil.Error, OSError):
        return []
    found = {
        each.pid: None
        for each in sockets
        if each.pid and each.laddr and each.laddr.port in wanted
        and each.status in (psutil.CONN_LISTEN, psutil.CONN_NONE) and not each.raddr
    }  # fmt: skip
    return [pid for pid in found if pid != os.getpid() and _name(pid) not in FORWARDERS]


def is_here(host: str) -> bool:
    """Whether one of the addresses of a host is an address of this machine."""
    ours = {each.address.partition("%")[0] for some in psutil.net_if_addrs().values() for each in some}
    return any(address in ours or address.startswith("127.") for address in resolved(host))


def _name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return ""
