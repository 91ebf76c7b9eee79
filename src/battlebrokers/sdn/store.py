"""The broker's memory on disk: resources, subscriptions and the network as it was, so that a restart changes nothing.

Written by the controller after each change, whole and at once; read when it starts.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import msgspec

from battlebrokers.errors import EnvironmentNotReady, InputError
from battlebrokers.sdn.core import addresses
from battlebrokers.sdn.core.network import Host, Network, Port
from battlebrokers.sdn.core.resources import Directory, Resource

_SECRET_BYTES = 16


class Memory(msgspec.Struct, frozen=True):
    """What is kept."""

    secret: bytes
    resources: list[Resource] = []
    last_address: str | None = None
    last_id: int = 0
    ports: dict[int, list[int]] = {}
    links: list[tuple[Port, Port]] = []
    hosts: list[Host] = []
    serials: dict[int, str] = {}

    @property
    def directory(self) -> Directory:
        """Resources and their subscribers."""
        return Directory({one.address: one for one in self.resources}, self.last_address, self.last_id)

    @property
    def network(self) -> Network:
        """The network as it was."""
        return Network(
            {switch: frozenset(numbers) for switch, numbers in self.ports.items()},
            {end: other for one, two in self.links for end, other in ((one, two), (two, one))},
            {host.mac: host for host in self.hosts},
            self.serials,
        )


def remembered(secret: bytes, directory: Directory, network: Network) -> Memory:
    """What is worth keeping of all that is known."""
    return Memory(
        secret,
        list(directory.resources.values()),
        directory.last_address,
        directory.last_id,
        {switch: sorted(numbers) for switch, numbers in network.ports.items()},
        [(one, other) for one, other in network.links.items() if one < other],
        list(network.hosts.values()),
        network.serials,
    )


class Store:
    """One file; None keeps nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def load(self) -> Memory:
        """What was kept; a new memory where nothing was."""
        if self._path is None or not self._path.exists():
            return Memory(secrets.token_bytes(_SECRET_BYTES))
        try:
            memory = msgspec.json.decode(self._path.read_bytes(), type=Memory)
            _check(memory)
        except (OSError, msgspec.MsgspecError, InputError) as fault:
            raise InputError(
                f"{self._path}: the broker's state cannot be read: {fault}",
                hint="move the file away to start with an empty broker",
            ) from fault
        return memory

    def save(self, memory: Memory) -> None:
        """Replace what was kept; a crash leaves the old or the new, never half."""
        if self._path is None:
            return
        fresh = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # The secret is in it: nobody else may read it, not even for a moment.
            fresh.touch(0o600)
            fresh.write_bytes(msgspec.json.encode(memory))
            fresh.chmod(0o600)
            fresh.replace(self._path)
        except OSError as fault:
            raise EnvironmentNotReady(
                f"{self._path}: the broker's state cannot be written: {fault}", hint="give another file with --state"
            ) from fault


def _check(memory: Memory) -> None:
    """Addresses that are none would come to light in a switch only."""
    for resource in memory.resources:
        if not addresses.is_resource(addresses.ipv4(resource.address)):
            raise InputError(f"'{resource.address}' is not the address of a resource")
        for mac, ipv4 in resource.subscribers.items():
            addresses.mac(mac)
            addresses.host_ipv4(ipv4)
    for host in memory.hosts:
        addresses.mac(host.mac)
        addresses.ipv4(host.ipv4)
