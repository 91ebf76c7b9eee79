"""The network the group `sdn` measures on: four switches in a row, and who is in charge of them can be changed.

In charge is our controller, a peer on os-ken's framework, or nobody: plain learning switches, for Mosquitto and
peer-to-peer. Always the same namespaces, cables and daemon.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from battlebrokers.errors import EnvironmentNotReady
from battlebrokers.sdn.core.addresses import VIRTUAL_MAC
from battlebrokers.sdn.core.network import Network
from battlebrokers.sdn.lab.commands import Names
from battlebrokers.sdn.lab.laboratory import Laboratory
from battlebrokers.sdn.lab.open_vswitch import what_is_missing
from battlebrokers.sdn.lab.topology import LabHost, parse_topology
from benchmarks.bench import Bench
from benchmarks.own_network import own_network
from benchmarks.sdn_traffic import Loader, Target, Traffic

PORT = 5005
PUBLISHER, BROKER = "p1", "broker"
MODES = ("reactive", "direct", "group", "tree")
_SWITCHES = ("s1", "s2", "s3", "s4")
_FROM_THE_FAR_END = ("s4", "s3", "s2", "s1")
_PEER = "benchmarks.os_ken_app"
_PEERS = {"reactive": 6655, "direct": 6656}
"""Where the other controller listens, by what it does."""
_PATIENCE_S = 30.0
_LOOK_S = 0.05
_IDLE_LOOK_S = 0.1
_IDLE_SHARE = 0.15
"""Of one core: switches and controller have nothing to do."""


def description(subscribers: int, cables: str = "veth") -> str:
    """The topology as YAML: the publisher at the first switch, subscribers spread from the last switch to the first."""
    hosts = {PUBLISHER: "s1", BROKER: "s2"}
    hosts |= {f"r{number + 1}": _FROM_THE_FAR_END[number % 4] for number in range(subscribers)}
    links = [list(pair) for pair in pairwise(_SWITCHES)]
    return json.dumps({"name": "bench", "switches": _SWITCHES, "hosts": hosts, "links": links, "cables": cables})


class BenchNetwork:
    """One network that is up."""

    def __init__(self, bench: Bench, loader: Loader, subscribers: int, cables: str) -> None:
        self.loader = loader
        self.folder = bench.folder / f"sdn-{subscribers}-{cables}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.topology = parse_topology(description(subscribers, cables), "the benchmark's network")
        self._names = Names("bbb")
        self.lab = Laboratory(self.folder / "lab", self._names)
        self.subscribers = [name for name in self.topology.hosts if name.startswith("r")]
        self._resource = ""
        """One for all modes: rules of another would carry copies that this one's switches should ask about."""
        self._subscribed = 0
        self.controller: subprocess.Popen[bytes] | None = None
        self._peer: subprocess.Popen[bytes] | None = None
        self._others: list[subprocess.Popen[bytes]] = []
        self._ports = (0, 0)
        self._in_charge = ""
        self.doors: dict[str, socket.socket] = {}

    def up(self) -> None:
        """Build it, with our controller in charge."""
        self.start_controller()
        self.lab.up(self.topology, self._ours)
        self._introduce()
        self._in_charge = self._ours
        self._complete()
        self.doors = {name: self.lab.udp_socket(name, PORT) for name in (PUBLISHER, *self.subscribers)}

    def down(self) -> None:
        """Nothing stays."""
        for door in self.doors.values():
            door.close()
        for process in (*self._others, self._peer, self.controller):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
        self.lab.down()

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """One question to our controller."""
        url = f"http://127.0.0.1:{self._ports[1]}/api/v1{path}"
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            told = answer.read()
        return json.loads(told) if told else None

    def host(self, name: str) -> LabHost:
        """A host's place and addresses."""
        return self.topology.hosts[name]

    def namespace(self, name: str) -> str:
        """Where it lives."""
        return self._names.namespace(name)

    def start_controller(self) -> None:
        """Our controller as a process of its own; after a restart with the ports and the memory of before."""
        log = self.folder / "controller.log"
        log.unlink(missing_ok=True)
        words = [str(Path(sys.executable).with_name("bb")), "sdn", "controller", "--state", str(self.folder / "state")]
        words += ["--openflow-port", str(self._ports[0]), "--port", str(self._ports[1])]
        with log.open("wb") as sink:
            self.controller = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
        _until(lambda: b"REST" in log.read_bytes(), f"our controller, see {log}")
        told = log.read_text().split()
        openflow, http = (told[told.index(word) + 1].rstrip("/").rpartition(":")[2] for word in ("switches:", "page:"))
        self._ports = (int(openflow), int(http))

    def kill_controller(self) -> None:
        """Without a word of warning."""
        assert self.controller is not None
        self.controller.kill()
        self.controller.wait()

    def is_complete(self) -> bool:
        """Whether our controller knows all switches, links and hosts."""
        told = self.ask("GET", "/topology")
        connected = sum(one["connected"] for one in told["switches"])
        found = (connected, len(told["links"]), len(told["hosts"]))
        return found == (len(_SWITCHES), len(self.topology.wires), len(self.topology.hosts))

    def ours(self, mode: str, subscribers: int) -> Traffic:
        """Our controller in charge: the resource in this mode, with the first so many subscribers."""
        self._take_charge(self._ours, self._complete)
        if not self._resource:
            self._resource = self.ask("POST", "/resources", {"mode": mode})["address"]
            self._know(PUBLISHER, {self._resource: VIRTUAL_MAC})
        self.ask("PATCH", f"/resources/{self._resource}", {"mode": mode})
        for name in self.subscribers[self._subscribed : subscribers]:
            self.subscribe(self._resource, name)
        for name in self.subscribers[subscribers : self._subscribed]:
            self.unsubscribe(self._resource, name)
        self._subscribed = subscribers
        return self._to(self._resource, subscribers)

    def subscribe(self, address: str, name: str) -> None:
        """Returns once it is in effect."""
        host = self.host(name)
        self.ask("POST", f"/resources/{address}/subscribers", {"mac": host.mac, "ipv4": host.ipv4})

    def unsubscribe(self, address: str, name: str) -> None:
        """Returns once it is in effect."""
        self.ask("DELETE", f"/resources/{address}/subscribers/{self.host(name).mac}")

    def os_ken(self, mode: str, subscribers: int) -> Traffic:
        """The application on os-ken's framework in charge, doing as our mode does, with one resource."""
        address = "1.1.1.200"
        self._know(PUBLISHER, {address: VIRTUAL_MAC})
        controller = f"tcp:127.0.0.1:{_PEERS[mode]}"
        if self._in_charge != controller:
            told = [self._place(self.host(name)) for name in self.subscribers[:subscribers]]
            settings = self.folder / "peer.json"
            settings.write_text(json.dumps({"mode": mode, "resource": address, "subscribers": told}))
            self._end_peer()
            with (self.folder / f"{_PEER}.log").open("wb") as sink:
                words = [sys.executable, "-m", _PEER, str(_PEERS[mode]), str(settings)]
                here = Path(__file__).parent.parent
                self._peer = subprocess.Popen(words, cwd=here, stdout=sink, stderr=sink)
            self._take_charge(controller, lambda: _until(self._asks_peer, _PEER))
        return self._to(address, subscribers)

    def _place(self, host: LabHost) -> dict[str, Any]:
        """Where a subscriber is, and by which port every switch sends what is meant for it."""
        links = {end: other for one, two in self.topology.wires for end, other in ((one, two), (two, one))}
        ways = Network(self.topology.ports, links).ways_to(host.port.switch)
        ports = {switch: port.number for switch, port in ways.items()} | {host.port.switch: host.port.number}
        return {
            "mac": host.mac, "ipv4": host.ipv4, "switch": host.port.switch, "port": host.port.number, "ways": ports,
        }  # fmt: skip

    def peers(self, subscribers: int) -> Traffic:
        """Nobody in charge: the publisher sends each subscriber a copy of its own."""
        self.plain()
        door = self.doors[PUBLISHER]
        names = self.subscribers[:subscribers]
        targets = [Target(door, self.host(name).ipv4, PORT) for name in names]
        return Traffic(targets, [self.doors[name] for name in names])

    def plain(self) -> None:
        """Learning switches that have just heard every host."""
        self._take_charge("nobody", lambda: None)
        self.lab.announce(self.topology)

    def run_inside(self, name: str, words: list[str], log: Path) -> subprocess.Popen[bytes]:
        """A process at a host, ended with the network."""
        with log.open("wb") as sink:
            process = subprocess.Popen(["ip", "netns", "exec", self.namespace(name), *words], stdout=sink, stderr=sink)
        self._others.append(process)
        return process

    def packets(self) -> dict[str, int]:
        """Interface counters: what the publisher sent, and what crossed from the first switch to the second."""
        uplink = self._names.host_interface(PUBLISHER)
        link = self._names.wire_interface(self.topology.wires[0][0])
        return {"uplink": self._counted(uplink, "rx"), "link": self._counted(link, "tx")}

    def controller_ticks(self) -> int:
        """CPU time of our controller, in the clock ticks the kernel counts it in."""
        assert self.controller is not None
        return _ticks(self.controller.pid)

    def settle(self) -> None:
        """Wait until switches and controllers have worked off what the last load left: nobody pays for another."""
        pids = [
            self.lab.switching.pid("ovs-vswitchd"),
            *(one.pid for one in (self.controller, self._peer, *self._others) if one),
        ]
        running = [pid for pid in pids if pid is not None and Path(f"/proc/{pid}").exists()]
        idle = _IDLE_SHARE * _IDLE_LOOK_S * os.sysconf("SC_CLK_TCK")
        until = time.monotonic() + 5
        while time.monotonic() < until:
            before = sum(map(_ticks, running))
            time.sleep(_IDLE_LOOK_S)
            if sum(map(_ticks, running)) - before <= idle:
                return

    def warm(self, traffic: Traffic) -> None:
        """A little load until it is carried, or very little: rules are in effect, caches filled."""
        for rate in (200, 200, 200, 100, 100, 50, 50, 20, 20, 20):
            outcome = self.loader.run(traffic, rate, 0.2)
            if outcome.was_carried(0.25):
                return
        if not outcome.received:
            raise EnvironmentNotReady("the network does not carry anything", hint=f"see {self.folder}")

    @property
    def _ours(self) -> str:
        return f"tcp:127.0.0.1:{self._ports[0]}"

    @property
    def _bridges(self) -> list[str]:
        return [self._names.bridge(name) for name in self.topology.switches]

    def _to(self, address: str, subscribers: int) -> Traffic:
        receivers = [self.doors[name] for name in self.subscribers[:subscribers]]
        return Traffic([Target(self.doors[PUBLISHER], address, PORT)], receivers)

    def _complete(self) -> None:
        def complete() -> bool:
            self.lab.announce(self.topology)
            return self.is_complete()

        _until(complete, "our controller to know the network")

    def _take_charge(self, controller: str, ready: Callable[[], None]) -> None:
        if self._in_charge == controller:
            return
        run = self.lab.switching.run
        for bridge in self._bridges:
            run("ovs-vsctl", "--timeout=10", "del-controller", bridge)
        for bridge in self._bridges:
            if controller != self._ours:
                run("ovs-ofctl", "-O", "OpenFlow13", "del-flows", bridge)
                run("ovs-ofctl", "-O", "OpenFlow13", "del-groups", bridge)
            if controller == "nobody":
                run("ovs-ofctl", "-O", "OpenFlow13", "add-flow", bridge, "priority=1,actions=NORMAL")
            else:
                run("ovs-vsctl", "--timeout=10", "set-controller", bridge, controller,
                    "--", "set", "controller", bridge, "connection_mode=out-of-band",
                    "max_backoff=1000", "inactivity_probe=5000")  # fmt: skip
        self._in_charge = controller
        if controller in (self._ours, "nobody"):
            self._end_peer()
        ready()

    def _end_peer(self) -> None:
        if self._peer is not None:
            self._peer.kill()
            self._peer.wait()
            self._peer = None

    def _asks_peer(self) -> bool:
        flows = [self.lab.switching.run("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", one) for one in self._bridges]
        return all(text.count("actions=") == 1 and "CONTROLLER:65535" in text for text in flows)

    def _introduce(self) -> None:
        """Everybody knows the addresses of those it may send to: ARP disturbs no measurement."""
        every = {host.ipv4: host.mac for host in self.topology.hosts.values()}
        ends = {self.host(name).ipv4: self.host(name).mac for name in (PUBLISHER, BROKER)}
        for name, host in self.topology.hosts.items():
            known = every if name in (PUBLISHER, BROKER) else ends
            self._know(name, {ipv4: mac for ipv4, mac in known.items() if ipv4 != host.ipv4})
        for bridge in self._bridges:
            self.lab.switching.run(
                "ovs-vsctl", "--timeout=10", "set", "bridge", bridge, "other_config:mac-aging-time=3600"
            )

    def _know(self, name: str, known: dict[str, str]) -> None:
        batch = self.folder / "neighbours"
        lines = (f"neigh replace {ipv4} lladdr {mac} nud permanent dev eth0\n" for ipv4, mac in known.items())
        batch.write_text("".join(lines))
        self.lab.switching.run("ip", "-n", self.namespace(name), "-batch", str(batch))

    def _counted(self, interface: str, direction: str) -> int:
        told = json.loads(self.lab.switching.run("ip", "-j", "-s", "link", "show", "dev", interface))
        return int(told[0]["stats64"][direction]["packets"])


@contextmanager
def bench_network(bench: Bench, loader: Loader, subscribers: int, cables: str = "veth") -> Iterator[BenchNetwork]:
    """A network in a namespace of its own, gone afterwards."""
    missing = what_is_missing()
    if missing is not None:
        raise missing
    bench.say(f"building four switches in a row with {subscribers} subscribers")
    with own_network():
        network = BenchNetwork(bench, loader, subscribers, cables)
        try:
            network.up()
            yield network
        finally:
            network.down()


def _until(condition: Callable[[], bool], what: str) -> None:
    last = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > last:
            raise EnvironmentNotReady(f"waited {_PATIENCE_S:g} s for {what} in vain")
        time.sleep(_LOOK_S)


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
