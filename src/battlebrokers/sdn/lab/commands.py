"""The commands that build a topology, as lists of words. Pure; the lab runs them.

Everything carries one prefix, so that what a crash left behind can be found and removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from battlebrokers.sdn.core.network import Port
from battlebrokers.sdn.lab.topology import LabHost, Topology

_MTU: Final = 1500

Command = list[str]


@dataclass(frozen=True, slots=True)
class Names:
    """What everything is called. An interface's name has at most 15 characters, so the prefix is short."""

    prefix: str = "bbl"

    def namespace(self, host: str) -> str:
        """The network namespace a host lives in."""
        return f"{self.prefix}-{host}"

    def host_interface(self, host: str) -> str:
        """The switch's end of a host's cable."""
        return f"{self.prefix}h{host}"

    def bridge(self, switch: str) -> str:
        """The bridge that is a switch."""
        return f"{self.prefix}{switch}"

    def wire_interface(self, end: Port) -> str:
        """One end of a cable between switches."""
        return f"{self.prefix}w{end.switch}-{end.number}"


def host_commands(names: Names, host: LabHost) -> Iterator[Command]:
    """A namespace with one interface, which asks for every address itself."""
    name, outside = names.namespace(host.name), names.host_interface(host.name)
    yield ["ip", "netns", "add", name]
    yield ["ip", "link", "add", outside, "mtu", str(_MTU), "type", "veth",
           "peer", "name", "eth0", "address", host.mac, "mtu", str(_MTU), "netns", name]  # fmt: skip
    inside = ["ip", "netns", "exec", name]
    yield [*inside, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"]
    yield ["ip", "-n", name, "address", "add", f"{host.ipv4}/24", "dev", "eth0"]
    yield ["ip", "-n", name, "link", "set", "lo", "up"]
    yield ["ip", "-n", name, "link", "set", "eth0", "up"]
    # No gateway: the host asks by ARP for a resource's address itself.
    yield ["ip", "-n", name, "route", "add", "default", "dev", "eth0"]
    # A checksum left to the hardware would be wrong once a switch rewrites an address.
    yield [*inside, "ethtool", "-K", "eth0", "tx", "off"]
    yield ["sysctl", "-qw", f"net.ipv6.conf.{outside}.disable_ipv6=1"]
    yield ["ip", "link", "set", outside, "up"]


def wire_commands(names: Names, wire: tuple[Port, Port]) -> Iterator[Command]:
    """A cable between two switches: a pair of interfaces, so that it can be captured and cut."""
    one, other = map(names.wire_interface, wire)
    yield ["ip", "link", "add", one, "mtu", str(_MTU), "type", "veth", "peer", "name", other, "mtu", str(_MTU)]
    for end in (one, other):
        yield ["sysctl", "-qw", f"net.ipv6.conf.{end}.disable_ipv6=1"]
        yield ["ip", "link", "set", end, "up"]


def switch_command(names: Names, topology: Topology, controller: str, datapath: str) -> Command:
    """All bridges and their ports in one transaction of `ovs-vsctl`."""
    words = ["ovs-vsctl", "--timeout=20"]
    for name, number in topology.switches.items():
        this = names.bridge(name)
        words += ["--", "add-br", this, "--", "set", "bridge", this, f"datapath_type={datapath}",
                  "protocols=OpenFlow13", "fail_mode=secure", f"other_config:datapath-id={number:016x}",
                  "other_config:disable-in-band=true",
                  "--", "set-controller", this, controller,
                  "--", "set", "controller", this, "connection_mode=out-of-band", "max_backoff=1000",
                  "inactivity_probe=5000"]  # fmt: skip
        for interface, port in _interfaces(names, topology, number):
            words += ["--", "add-port", this, interface, "--", "set", "interface", interface,
                      f"ofport_request={port}"]  # fmt: skip
    return words


def _interfaces(names: Names, topology: Topology, switch: int) -> Iterator[tuple[str, int]]:
    for host in topology.hosts.values():
        if host.port.switch == switch:
            yield names.host_interface(host.name), host.port.number
    for wire in topology.wires:
        for end in wire:
            if end.switch == switch:
                yield names.wire_interface(end), end.number
