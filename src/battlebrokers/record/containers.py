"""From a container's name to the interface its packets pass: engine → pid → iflink → the veth on this side.

Docker and Podman both document `inspect --format` and the Linux veth pair: /sys/class/net/eth0/iflink inside the
container is the ifindex of the other end outside. Called by `capture`; written after their documentation.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from battlebrokers.errors import EnvironmentNotReady

Ask = Callable[[Sequence[str]], str]
"""Runs a command and returns what it printed; raises EnvironmentNotReady with its words if it failed."""

_ENGINES = ("docker", "podman")
_TIMEOUT_S = 10.0
_LOG_LINES = 10_000
_SYS_NET = Path("/sys/class/net")


@dataclass(frozen=True, slots=True)
class Container:
    """A running container, as its engine tells."""

    name: str
    engine: str
    pid: int
    addresses: tuple[str, ...]
    host_network: bool

    @property
    def namespace(self) -> str:
        """The file of its network namespace; empty when it shares ours."""
        return "" if self.host_network else f"/proc/{self.pid}/ns/net"


def ask(command: Sequence[str]) -> str:
    """Run a command that answers at once."""
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentNotReady(f"{command[0]} does not answer: {error}") from error
    if told.returncode:
        raise EnvironmentNotReady(f"{' '.join(command[:3])}: {told.stderr.strip() or told.stdout.strip()}")
    return told.stdout


def find_container(name: str, ask: Ask = ask, engines: Sequence[str] | None = None) -> Container:
    """The running container of that name or id, from whichever engine knows it."""
    found = [engine for engine in _ENGINES if shutil.which(engine)] if engines is None else engines
    if not found:
        raise EnvironmentNotReady(
            f"container {name} cannot be found: neither docker nor podman is here",
            hint="install one of them, or name the interface or the namespace instead.",
        )
    reasons = []
    for engine in found:
        try:
            return parse_inspect(name, engine, ask([engine, "inspect", "--type", "container", name]))
        except EnvironmentNotReady as error:
            reasons.append(error.message)
    raise EnvironmentNotReady(
        f"container {name} cannot be found: {'; '.join(reasons)}",
        hint=f"`{found[0]} ps` lists those that run; is the engine running, and may you use it?",
    )


def log_of(name: str, engines: Sequence[str] | None = None, since: str = "") -> bytes:
    """The last lines a container printed, `since` a moment (RFC 3339) if one is given; empty when nobody knows it."""
    found = [engine for engine in _ENGINES if shutil.which(engine)] if engines is None else engines
    for engine in found:
        command = [engine, "logs", "--tail", str(_LOG_LINES), *(["--since", since] if since else []), name]
        try:
            # Both of its streams, in their order.
            told = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if told.returncode == 0:
            return told.stdout
    return b""


def parse_inspect(name: str, engine: str, told: str) -> Container:
    """A container from what `docker inspect` or `podman inspect` printed."""
    try:
        facts = json.loads(told)[0]
        pid = int(facts["State"]["Pid"])
        settings = facts.get("NetworkSettings") or {}
        networks = settings.get("Networks") or {}
        told_addresses = [settings.get("IPAddress"), settings.get("GlobalIPv6Address")]
        for network in networks.values():
            told_addresses += [network.get("IPAddress"), network.get("GlobalIPv6Address")]
        mode = (facts.get("HostConfig") or {}).get("NetworkMode", "")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise EnvironmentNotReady(f"{engine} inspect {name} said something unexpected: {error!r}") from error
    if pid <= 0:
        raise EnvironmentNotReady(f"container {name} is not running", hint=f"start it: {engine} start {name}")
    addresses = tuple(dict.fromkeys(address for address in told_addresses if address))
    return Container(name, engine, pid, addresses, mode == "host")


def veth_of(container: Container, ask: Ask = ask, interfaces: Path = _SYS_NET) -> str:
    """The interface on this side of the container's veth pair; empty when there is none (rootless, host network)."""
    if container.host_network:
        return ""
    inside = ask(["nsenter", f"--net={container.namespace}", "ip", "-json", "link", "show"])
    return match_veth(inside, {path.name: _index(path) for path in interfaces.iterdir()})


def match_veth(told: str, indices: dict[str, int]) -> str:
    """The interface here whose index an interface inside names as its other end (`link_index` is iflink)."""
    try:
        links = [link for link in json.loads(told) if "LOOPBACK" not in link.get("flags", [])]
    except (ValueError, AttributeError, TypeError) as error:
        raise EnvironmentNotReady(f"ip link inside the container said something unexpected: {error!r}") from error
    others = {link.get("link_index") for link in links}
    return next((name for name, index in sorted(indices.items()) if index in others), "")


def _index(interface: Path) -> int:
    try:
        return int((interface / "ifindex").read_text())
    except (OSError, ValueError):
        return -1
