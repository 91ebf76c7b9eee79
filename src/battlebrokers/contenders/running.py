"""A contender that answers: where it listens, what it is, its processes, its end.

Returned by `lifecycle.start_contender` to `run`. All calls block briefly; from asyncio use `asyncio.to_thread`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from battlebrokers.contenders.contained import Contained, group_of_container
from battlebrokers.contenders.dialogue import Registration
from battlebrokers.contenders.model import Model
from battlebrokers.contenders.neighbours import Neighbours
from battlebrokers.contenders.place import Place
from battlebrokers.contenders.process import KeptProcess
from battlebrokers.contenders.readiness import all_accept
from battlebrokers.contenders.spec import BrokerCapabilities, Pairing, Service
from battlebrokers.protocols.script import Script
from battlebrokers.record.containers import log_of
from battlebrokers.record.wire import safe_file_name
from battlebrokers.secrets import Secret

REACH_TIMEOUT_S = 5.0


@dataclass
class RunningContender:
    """A broker under test; leaving its `with` block stops it. An external one has no process or end of ours."""

    name: str
    version: str
    profile: str
    """`stock`, `tuned` or `external`."""
    endpoints: dict[str, str]
    """For MQTT the transport (`tcp`, `tls`, `ws`, `wss`), else the protocol → URL, without credentials.

    Its query may hold a token: `masked_url` before it is shown or recorded.
    """
    config_sha256: str = ""
    config_text: str = ""
    capabilities: BrokerCapabilities | None = None
    """What this version honours; None when nobody has said."""
    credentials: tuple[str | None, Secret | None] = (None, None)
    """User and password from its URL, or those its file tells."""
    service_names: Mapping[str, list[str]] = field(default_factory=dict, repr=False)
    described: Mapping[str, Service] = field(default_factory=dict, repr=False)
    """What its file says of each service."""
    pairing: Pairing | None = field(default=None, repr=False)
    """What its file says about its messages."""
    scripts: Mapping[str, Script] = field(default_factory=dict, repr=False)
    """Protocol → how it is spoken, for protocols spoken in a dialect of its own."""
    registration: Registration | None = field(default=None, repr=False)
    """What the controller says before and after a run."""
    model: Model | None = field(default=None, repr=False)
    """What topics become in it, where its file says so."""
    known: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What every template of its dialect may use: `host`, `port.NAME`, ports of companions."""
    beside: list[RunningContender] = field(default_factory=list, repr=False)
    """Those that run with it; they end with it."""
    contained: Contained | None = field(default=None, repr=False)
    """The containers it runs in, if we started some."""
    neighbours: Neighbours | None = field(default=None, repr=False)
    """Its services on this machine, if somebody else started them."""
    unseen: str = ""
    """Why its processes are not known although it runs on this machine; then nobody samples them."""
    process: KeptProcess | None = field(default=None, repr=False)
    since: str = field(default_factory=lambda: datetime.now(UTC).isoformat(), repr=False)
    """When we came: what others' containers printed before is not about us."""
    printed: dict[str, bytes] = field(default_factory=dict, repr=False)
    """Once it is stopped: what its services printed in containers, the last of it."""
    warnings: list[str] = field(default_factory=list, repr=False)
    """What the user should know of how it runs here, in sentences."""
    stopped: bool = field(default=False, repr=False)
    place: Place | None = field(default=None, repr=False)

    @property
    def services(self) -> list[tuple[str, list[int]]]:
        """Each service with its process ids right now."""
        return list(self.service_pids().items())

    def service_pids(self) -> dict[str, list[int]]:
        """Service → its process ids, looked up anew each time; a service that has ended has none."""
        if self.process is None:
            return self.neighbours.pids() if self.neighbours is not None else {}
        found = assign_services(self.service_names, _names_of(self.process.pids()))
        if self.contained is not None:
            # Where the engine does not let us look, its client is all there is to see.
            found = self._inside(self.contained) or found
        for there in self.beside:
            for service, pids in there.service_pids().items():
                found[service] = found.get(service, []) + pids
        return found

    def _inside(self, contained: Contained) -> dict[str, list[int]]:
        """Service → its processes in their containers; empty when nobody can know them here."""
        if not contained.compose_file:
            pids = contained.pids_of("")
            return {} if pids is None else assign_services(self.service_names, _names_of(pids))
        known = {service: contained.pids_of(service) for service in self.service_names}
        return {} if all(pids is None for pids in known.values()) else {s: pids or [] for s, pids in known.items()}

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports it listens on."""
        return tuple(int(value) for name, value in self.known.items() if name.startswith("port."))

    def group_of(self, service: str) -> str:
        """The control group its file names for a service, or that of its container; empty when neither is known."""
        if self.neighbours is not None:
            return self.neighbours.group_of(service)
        described = self.described.get(service)
        if described is not None and (described.cgroup or described.container):
            return described.cgroup or group_of_container(described.container)
        return self.contained.group_of(service) if self.contained is not None else ""

    @property
    def log_paths(self) -> list[Path]:
        """Its own log files, then what it printed."""
        return list(self.named_logs().values())

    def named_logs(self) -> dict[str, Path]:
        """Its log files and those of who runs beside it, each under a name of its own: `<contender>-<log>`."""
        found: dict[str, Path] = {}
        for path in self.place.log_paths() if self.place is not None else []:
            found[_unlike(found, f"{safe_file_name(self.name)}-{path.name}")] = path
        for there in self.beside:
            for name, path in there.named_logs().items():
                found[_unlike(found, name)] = path
        return found

    def _printed(self) -> dict[str, bytes]:
        """What services printed in containers of their own; of one that we run in the foreground we have it already."""
        since = self.since if self.process is None else ""
        found = {
            name: log_of(service.container, since=since)
            for name, service in self.described.items()
            if service.container
        }
        if self.contained is not None and self.contained.compose_file:
            found |= {name: self.contained.log_of(name) for name in self.service_names if name not in found}
        return {name: text for name, text in found.items() if text}

    @property
    def exit_status(self) -> int | None:
        """How its main process ended (negative: by that signal); None while it runs."""
        return None if self.process is None else self.process.poll()

    def alive(self) -> bool:
        """Whether its main process runs, and those beside it; always true for an external broker.

        Only `reachable` can judge that one.
        """
        return self.exit_status is None and all(there.alive() for there in self.beside)

    def reachable(self, timeout_s: float = REACH_TIMEOUT_S) -> bool:
        """Whether every endpoint with connections accepts one now."""
        return all_accept(self.endpoints, timeout_s)

    def last_lines(self, count: int = 15) -> list[str]:
        """The end of its logs."""
        return self.place.last_lines(count) if self.place is not None else []

    def stop(self) -> None:
        """Stop it as it wants to be stopped, firmly if that takes too long; nothing is left. May be called twice."""
        if not self.stopped:
            self.stopped = True
            # Containers take their logs with them.
            self.printed = self._printed()
        if self.process is not None:
            self.process.stop()
        if self.place is not None:
            self.place.close()
        for there in reversed(self.beside):
            there.stop()
            self.printed |= there.printed

    def kill(self) -> None:
        """Kill it at once (SIGKILL); nothing is left."""
        if self.process is not None:
            self.process.kill()
        self.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def assign_services(services: Mapping[str, list[str]], processes: Mapping[int, str]) -> dict[str, list[int]]:
    """Service → pids, by process name; the service with `*` takes whom no other names."""
    owner = {name: service for service, names in services.items() for name in names}
    rest = owner["*"]
    assigned: dict[str, list[int]] = {service: [] for service in services}
    for pid, name in processes.items():
        assigned[owner.get(name, rest)].append(pid)
    return assigned


def _unlike(taken: Mapping[str, object], name: str) -> str:
    """The name, or one like it that nobody has."""
    path = Path(name)
    others = (f"{path.stem}-{number}{path.suffix}" for number in count(2))
    return name if name not in taken else next(other for other in others if other not in taken)


def _names_of(pids: list[int]) -> dict[int, str]:
    names = {}
    for pid in pids:
        try:
            names[pid] = psutil.Process(pid).name()
        except psutil.Error:
            continue
    return names
