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

INSIDE: Final = "eth0"
"""What a host's only interface is called."""

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


def outside_lines(names: Names, topology: Topology) -> Iterator[str]:
    """Namespaces and cables as lines for one `ip -batch`: a process for each command would take most of the time."""
    for host in topology.hosts.values():
        name = names.namespace(host.name)
        yield f"netns add {name}"
        yield (
            f"link add {names.host_interface(host.name)} mtu {_MTU} type veth "
            f"peer name {INSIDE} address {host.mac} mtu {_MTU} netns {name}"
        )
    for one, other in topology.wires if topology.cables == "veth" else ():
        ends = (names.wire_interface(one), names.wire_interface(other))
        yield f"link add {ends[0]} mtu {_MTU} type veth peer name {ends[1]} mtu {_MTU}"


def up_lines(names: Names, topology: Topology) -> Iterator[str]:
    """The switches' ends of all cables, up."""
    yield from (f"link set {name} up" for name in outside_interfaces(names, topology))


def outside_interfaces(names: Names, topology: Topology) -> Iterator[str]:
    """The switches' ends of all cables."""
    yield from map(names.host_interface, topology.hosts)
    if topology.cables == "veth":
        yield from (names.wire_interface(end) for wire in topology.wires for end in wire)


def inside_lines(host: LabHost) -> Iterator[str]:
    """What is set up inside a host's namespace."""
    yield f"address add {host.ipv4}/24 dev {INSIDE}"
    yield "link set lo up"
    yield f"link set {INSIDE} up"
    # No gateway: the host asks by ARP for a resource's address itself.
    yield f"route add default dev {INSIDE}"


def switch_command(names: Names, topology: Topology, controller: str, datapath: str, serial: str) -> Command:
    """All bridges and their ports in one transaction of `ovs-vsctl`.

    The serial number, one for all of them, tells the controller a rebuilt network from one that is back.
    """
    words = ["ovs-vsctl", "--timeout=20"]
    for name, number in topology.switches.items():
        this = names.bridge(name)
        words += ["--", "add-br", this, "--", "set", "bridge", this, f"datapath_type={datapath}",
                  "protocols=OpenFlow13", "fail_mode=secure", f"other_config:datapath-id={number:016x}",
                  "other_config:disable-in-band=true", f"other_config:dp-sn={serial}",
                  "--", "set-controller", this, controller,
                  "--", "set", "controller", this, "connection_mode=out-of-band", "max_backoff=1000",
                  "inactivity_probe=5000"]  # fmt: skip
        for interface, port, more in _interfaces(names, topology, number):
            words += ["--", "add-port", this, interface, "--", "set", "interface", interface,
                      f"ofport_request={port}", *more]  # fmt: skip
    return words


def _interfaces(names: Names, topology: Topology, switch: int) -> Iterator[tuple[str, int, list[str]]]:
    for host in topology.hosts.values():
        if host.port.switch == switch:
            yield names.host_interface(host.name), host.port.number, []
    for wire in topology.wires:
        for end, other in (wire, wire[::-1]):
            if end.switch == switch:
                short_cut = ["type=patch", f"options:peer={names.wire_interface(other)}"]
                yield names.wire_interface(end), end.number, short_cut if topology.cables == "patch" else []
