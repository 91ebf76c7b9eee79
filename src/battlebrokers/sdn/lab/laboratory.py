"""The lab itself: up, down, status, exec. Called by `bb sdn lab` and by contenders and tests that need a network.

Whatever it makes is found again by its prefix: `down` cleans up after a crash as well.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from battlebrokers import leftovers
from battlebrokers.errors import EnvironmentNotReady, InputError
from battlebrokers.sdn.lab.commands import (
    Names,
    inside_lines,
    outside_interfaces,
    outside_lines,
    switch_command,
    up_lines,
)
from battlebrokers.sdn.lab.inside import announce, frame_socket, udp_socket, without_ipv6, without_offloads
from battlebrokers.sdn.lab.open_vswitch import OpenVSwitch, start_batch, what_is_missing
from battlebrokers.sdn.lab.topology import LabHost, Topology

DEFAULT_FOLDER: Final = Path("/run/battlebrokers-lab")
DEFAULT_NAMES: Final = Names()
_NAMESPACES: Final = Path("/run/netns")
_LOOK_S: Final = 0.1
_SERIAL_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Status:
    """What is there."""

    topology: Topology | None
    daemons: dict[str, int | None]
    hosts_up: list[str]
    connected: dict[str, bool]
    """Switch → whether its controller answers."""


class Laboratory:
    """One network on this machine."""

    def __init__(self, folder: Path = DEFAULT_FOLDER, names: Names = DEFAULT_NAMES) -> None:
        self._folder = folder
        self._names = names
        self.switching = OpenVSwitch(folder / "ovs")
        self._forget: Callable[[], None] = lambda: None

    def up(self, topology: Topology, controller: str) -> None:
        """Build it; what an earlier one left is removed first."""
        missing = what_is_missing()
        if missing is not None:
            raise missing
        self.down()
        self._forget = leftovers.register(leftovers.Order.NETWORKS, self.remove_at_once)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file.write_bytes(msgspec.json.encode(topology))
        try:
            self.switching.start()
            self._batch(outside_lines(self._names, topology))
            for interface in outside_interfaces(self._names, topology):
                without_ipv6(interface)
            for host in topology.hosts.values():
                namespace = self._names.namespace(host.name)
                without_offloads(namespace)
                self._batch(inside_lines(host), "-n", namespace)
            self._batch(up_lines(self._names, topology))
            serial = secrets.token_hex(_SERIAL_BYTES)
            self.switching.run(*switch_command(self._names, topology, controller, self.switching.datapath, serial))
        except BaseException:
            self.down()
            raise

    def await_controller(self, seconds: float) -> bool:
        """Whether every switch has found its controller within that time."""
        until = time.monotonic() + seconds
        while True:
            connected = self.status().connected
            if connected and all(connected.values()):
                return True
            if time.monotonic() >= until:
                return False
            time.sleep(_LOOK_S)

    def announce(self, topology: Topology) -> None:
        """Every host says who it is (a gratuitous ARP), so that the broker knows where it is."""
        for host in topology.hosts.values():
            announce(self._names.namespace(host.name), host)

    def down(self) -> None:
        """Take everything away, also what only half exists."""
        known = self.topology()
        if known is not None:
            _for_root_only()
        if known is not None and self.switching.pid("ovs-vswitchd") is not None:
            words = [
                word for name in known.switches for word in ("--", "--if-exists", "del-br", self._names.bridge(name))
            ]
            with suppress(EnvironmentNotReady):
                self.switching.run("ovs-vsctl", "--timeout=10", *words)
        self.switching.stop()
        with suppress(EnvironmentNotReady):
            self._batch(self._namespace_removals(), "-force")
        # The other end of a cable is gone with the first: what is not there any more is no failure.
        with suppress(EnvironmentNotReady):
            self._batch(self._interface_removals(), "-force")
        self._file.unlink(missing_ok=True)
        self._forget()

    def remove_at_once(self, within_s: float) -> None:
        """What `down` does, without waiting for anybody: this process ends in a moment.

        `ip` has all it is to do when it starts, and goes on with it when we are gone.
        """
        self.switching.kill(within_s / 2)
        until = time.monotonic() + within_s
        removing = [
            start_batch(lines, self.switching.environment)
            for lines in (self._namespace_removals(), self._interface_removals())
            if lines
        ]
        while any(each.poll() is None for each in removing) and time.monotonic() < until:
            time.sleep(_LOOK_S / 10)
        self.switching.let_go()
        self._file.unlink(missing_ok=True)

    def _namespace_removals(self) -> list[str]:
        places = sorted(_NAMESPACES.glob(f"{self._names.prefix}-*")) if _NAMESPACES.is_dir() else []
        return [f"netns delete {place.name}" for place in places]

    def _interface_removals(self) -> list[str]:
        # A letter follows: what begins with `b1` is none of `b12`.
        ours = re.compile(rf"{re.escape(self._names.prefix)}[a-z]")
        return [f"link delete {name}" for _, name in socket.if_nameindex() if ours.match(name)]

    def topology(self) -> Topology | None:
        """What was built last and not taken down."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Topology)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError):
            return None

    def status(self) -> Status:
        """What is there now."""
        topology = self.topology()
        daemons = {name: self.switching.pid(name) for name in ("ovsdb-server", "ovs-vswitchd")}
        if topology is None:
            return Status(None, daemons, [], {})
        hosts = [name for name in topology.hosts if (_NAMESPACES / self._names.namespace(name)).exists()]
        connected = dict.fromkeys(topology.switches, False)
        if all(daemons.values()):
            for name in topology.switches:
                with suppress(EnvironmentNotReady):
                    told = self.switching.run(
                        "ovs-vsctl", "--timeout=5", "get", "controller", self._names.bridge(name), "is_connected"
                    )
                    connected[name] = told.strip() == "true"
        return Status(topology, daemons, hosts, connected)

    def exec(self, host: str, words: Sequence[str]) -> int:
        """Run a command as a host, with this terminal; returns its exit code."""
        self.host(host)
        _for_root_only()
        full = ["ip", "netns", "exec", self._names.namespace(host), *words]
        return subprocess.run(full, env=self.switching.environment, check=False).returncode

    def host(self, name: str) -> LabHost:
        """A host of the network that is up."""
        topology = self.topology()
        if topology is None:
            raise InputError("no lab is up", hint="bb sdn lab up paper")
        if name not in topology.hosts:
            raise InputError(
                f"there is no host '{name}' in {topology.name}", hint=f"hosts: {', '.join(topology.hosts)}"
            )
        return topology.hosts[name]

    def udp_socket(self, host: str, port: int = 0) -> socket.socket:
        """A UDP socket of a host."""
        return udp_socket(self._names.namespace(host), self.host(host), port)

    def frame_socket(self, host: str) -> socket.socket:
        """A socket for whole frames at a host's interface."""
        self.host(host)
        return frame_socket(self._names.namespace(host))

    def cut(self, wire: int, *, restore: bool = False) -> None:
        """Take a cable between switches out, or put it back; they are counted from 1 as in the topology."""
        topology = self.topology()
        if topology is None:
            raise InputError("no lab is up", hint="bb sdn lab up paper")
        if not 1 <= wire <= len(topology.wires):
            many = f"{topology.name} has {len(topology.wires)}, counted from 1 in the order of `links`"
            raise InputError(f"there is no cable {wire}", hint=many)
        if topology.cables == "patch":
            raise InputError("its cables are short cuts inside Open vSwitch", hint="build it with `cables: veth`")
        _for_root_only()
        end = self._names.wire_interface(topology.wires[wire - 1][0])
        self.switching.run("ip", "link", "set", end, "up" if restore else "down")

    @property
    def _file(self) -> Path:
        return self._folder / "topology.json"

    def _batch(self, lines: Iterable[str], *options: str) -> None:
        """Several commands of `ip` in one process."""
        text = "".join(f"{line}\n" for line in lines)
        if text:
            self.switching.run("ip", *options, "-batch", "-", said=text)


def _for_root_only() -> None:
    if os.geteuid() != 0:
        raise EnvironmentNotReady("labs are for root", hint="run it with sudo")
