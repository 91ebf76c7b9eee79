"""Takes the captures for a ladder: listens at every cable of a lab and at OpenFlow, publishes one message, stops.

Called by `bb sdn ladder`. Starts capture programs and ends them; changes nothing in the network.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from battlebrokers.errors import EnvironmentNotReady, InputError
from battlebrokers.record.capture_tool import CaptureTool, NoCapture, complaint, find_tool, is_up, right_fix
from battlebrokers.sdn.lab.commands import Names
from battlebrokers.sdn.lab.laboratory import Laboratory
from battlebrokers.sdn.lab.topology import Topology
from battlebrokers.sdn.ladder.facts import Facts, HostAddresses, HostCable, OpenFlow, Place, WireEnd, write_facts

_UP_WITHIN_S: Final = 15.0
_STOP_WITHIN_S: Final = 15.0
_BEACONS_S: Final = 1.5
"""The controller names each switch in its beacons, once a second: captures are long enough to hold one of each."""
_POLL_S: Final = 0.02
_LARGEST_TEXT: Final = 1400


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which message."""

    resource: Mapping[str, Any]
    """As REST tells it."""
    publisher: str
    text: str = "hello"
    port: int = 5005
    timeout_s: float = 5.0
    forget_address: bool = False
    """Whether the publisher has to ask for the resource's address anew."""


@dataclass
class _Program:
    process: subprocess.Popen[bytes]
    log: Path
    output: IO[bytes]

    def said(self) -> str:
        return self.log.read_text(errors="replace")


@dataclass
class _Programs:
    tool: CaptureTool
    running: list[_Program] = field(default_factory=list)


def take(lab: Laboratory, names: Names, wanted: Wanted, folder: Path) -> Facts:
    """Capture the way of one message into a folder, with the facts to read it by."""
    topology = lab.topology()
    if topology is None:
        raise InputError("no lab is up", hint="bb sdn lab up paper")
    lab.host(wanted.publisher)
    if len(wanted.text.encode()) > _LARGEST_TEXT:
        raise InputError(f"the text is longer than {_LARGEST_TEXT} bytes", hint="a message is one packet")
    if os.geteuid() != 0:
        raise EnvironmentNotReady("the lab's cables can be captured by root only", hint="sudo -E bb sdn ladder …")
    tool = find_tool()
    if isinstance(tool, NoCapture):
        raise EnvironmentNotReady(tool.why, hint=tool.fix)
    folder.mkdir(parents=True, exist_ok=True)
    port = _openflow_port(lab, names, topology)
    places = [*_places(names, topology)]
    if tool.name == "dumpcap":
        files = {"network.pcapng": places}
    else:
        files = {f"{place.interface}.pcap": [place] for place in places}
    mark = f"ladder-{secrets.token_hex(8)}"
    by_mac = {host.mac: host.name for host in topology.hosts.values()}
    resource = wanted.resource
    facts = Facts(
        resource=resource["address"], mode=resource["mode"], source=resource["source"], publisher=wanted.publisher,
        mark=mark, openflow_port=port, switches=topology.switches,
        hosts={host.name: HostAddresses(mac=host.mac, ipv4=host.ipv4) for host in topology.hosts.values()},
        subscribers=[by_mac[one["mac"]] for one in resource["subscribers"] if one["mac"] in by_mac], files=files,
    )  # fmt: skip
    with _capturing(tool, folder, facts):
        began_s = time.monotonic()
        _publish(lab, names, facts, wanted)
        time.sleep(max(tool.settle_s, began_s + _BEACONS_S - time.monotonic()))
    write_facts(folder, facts)
    return facts


def _places(names: Names, topology: Topology) -> Iterator[Place]:
    called = {number: name for name, number in topology.switches.items()}
    for host in topology.hosts.values():
        interface = names.host_interface(host.name)
        yield HostCable(interface=interface, host=host.name, switch=called[host.port.switch])
    if topology.cables == "patch":
        raise InputError("cables inside Open vSwitch cannot be captured", hint="build the lab with `cables: veth`")
    for cable, (one, other) in enumerate(topology.wires, 1):
        for end, far in ((one, other), (other, one)):
            yield WireEnd(
                interface=names.wire_interface(end), switch=called[end.switch], other=called[far.switch], cable=cable
            )
    yield OpenFlow(interface="lo")


def _openflow_port(lab: Laboratory, names: Names, topology: Topology) -> int:
    """Where the switches call."""
    first = names.bridge(next(iter(topology.switches)))
    called = lab.switching.run("ovs-vsctl", "--timeout=5", "get-controller", first).strip()
    port = called.rpartition(":")[2]
    if not port.isdigit():
        raise EnvironmentNotReady(
            f"the switches call '{called}', which cannot be captured", hint="bb sdn lab up --controller tcp:HOST:PORT"
        )
    return int(port)


@contextmanager
def _capturing(tool: CaptureTool, folder: Path, facts: Facts) -> Iterator[None]:
    programs = _Programs(tool)
    try:
        for name, places in facts.files.items():
            log = folder / f"{name}.log"
            output = log.open("wb")
            words = _command(tool, folder / name, places, facts.openflow_port)
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            programs.running.append(_Program(process, log, output))
        for program in programs.running:
            _await_up(tool, program)
        yield
    finally:
        for program in programs.running:
            program.process.send_signal(signal.SIGINT)
        for program in programs.running:
            try:
                program.process.wait(_STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                program.process.kill()
                program.process.wait()
            program.output.close()
            program.log.unlink(missing_ok=True)


def _command(tool: CaptureTool, file: Path, places: Iterable[Place], openflow_port: int) -> list[str]:
    """One message needs little room: buffers are small, for there is one per interface."""
    if tool.name == "dumpcap":
        words = [tool.path, "-q", "-n", "-B", "4", "-w", str(file)]
        for place in places:
            words += ["-i", place.interface]
            words += ["-f", f"tcp port {openflow_port}"] if isinstance(place, OpenFlow) else []
        return words
    (place,) = places
    words = [tool.path, "-n", "-U", "-B", "4096", "--time-stamp-precision=nano", "-Z", "root", "-w", str(file)]
    words += ["-i", place.interface]
    return [*words, f"tcp port {openflow_port}"] if isinstance(place, OpenFlow) else words


def _await_up(tool: CaptureTool, program: _Program) -> None:
    until = time.monotonic() + _UP_WITHIN_S
    while not is_up(tool, program.said()):
        if program.process.poll() is not None or time.monotonic() > until:
            why = complaint(program.said()) or "it does not say why"
            raise EnvironmentNotReady(f"{tool.name} does not capture: {why}", hint=right_fix(tool))
        time.sleep(_POLL_S)


def _publish(lab: Laboratory, names: Names, facts: Facts, wanted: Wanted) -> None:
    """Send the message and wait until every subscriber has it, or until the time is over."""
    with ExitStack() as open_sockets:
        waiting = {
            open_sockets.enter_context(_ear(lab, name, wanted.port)): name
            for name in facts.subscribers
            if name != facts.publisher
        }
        if wanted.forget_address:
            with suppress(EnvironmentNotReady):  # it did not know it
                lab.switching.run(
                    "ip", "-n", names.namespace(facts.publisher), "neigh", "del", facts.resource, "dev", "eth0"
                )
        sender = open_sockets.enter_context(lab.udp_socket(facts.publisher))
        sender.sendto(f"{facts.mark} {wanted.text}".encode(), (facts.resource, wanted.port))
        until = time.monotonic() + wanted.timeout_s
        while waiting and (left_s := until - time.monotonic()) > 0:
            for ear in select.select(list(waiting), [], [], left_s)[0]:
                if facts.mark.encode() in ear.recv(65536):
                    del waiting[ear]


def _ear(lab: Laboratory, host: str, port: int) -> socket.socket:
    """A socket for the host's copy; where somebody listens on that port already, all frames are looked at."""
    try:
        return lab.udp_socket(host, port)
    except EnvironmentNotReady:
        return lab.frame_socket(host)
