"""The containers of a contender that we started in some: who lives in which, and its control group.

Asked by `running`. The process we started ourselves is only the engine's client; what counts is what the engine runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from battlebrokers.errors import EnvironmentNotReady
from battlebrokers.record.cgroup import group_name, named_group, read_group
from battlebrokers.record.containers import Ask, ask, find_container, log_of


@dataclass
class Contained:
    """Where the services of one start live: all in one container, or each in that of its name in a compose file."""

    engine: str
    name: str
    """Of the container, or of the compose project."""
    compose_file: str = ""
    ask: Ask = ask
    _groups: dict[str, str] = field(default_factory=dict, repr=False)

    def container_of(self, service: str) -> str:
        """The name or id of a service's container; empty when the compose file has no such service."""
        if not self.compose_file:
            return self.name
        command = [self.engine, "compose", "-p", self.name, "-f", self.compose_file, "ps", "--quiet", service]
        try:
            return next(iter(self.ask(command).split()), "")
        except EnvironmentNotReady:
            return ""

    def running(self, service: str) -> str:
        """The name or id of a service's container if it runs by now; else empty."""
        container = self.container_of(service)
        try:
            return find_container(container, self.ask, [self.engine]).name if container else ""
        except EnvironmentNotReady:
            return ""

    def group_of(self, service: str) -> str:
        """Its control group, asked for once; empty when it cannot be known here, as of an engine that is elsewhere."""
        if service not in self._groups:
            container = self.container_of(service)
            self._groups[service] = group_of_container(container, self.ask, [self.engine]) if container else ""
        return self._groups[service]

    def log_of(self, service: str) -> bytes:
        """What a service printed, the last of it; empty when that cannot be known."""
        container = self.container_of(service)
        return log_of(container, [self.engine]) if container else b""

    def pids_of(self, service: str) -> list[int] | None:
        """The processes in that group; None when it is not known."""
        folder = named_group(group) if (group := self.group_of(service)) else None
        use = read_group(folder) if folder is not None else None
        return None if use is None else list(use.pids)


def group_of_container(container: str, ask: Ask = ask, engines: Sequence[str] | None = None) -> str:
    """The control group of a container's first process, whatever its engine calls it; empty when that is not known."""
    try:
        group = group_name(find_container(container, ask, engines).pid)
    except EnvironmentNotReady:
        return ""
    return "" if group == "/" else group
