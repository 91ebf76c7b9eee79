"""A real network for tests: the controller as a process, namespaces and Open vSwitch, and sockets of every host."""

from __future__ import annotations

import json
import select
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from battlebrokers.sdn.core.addresses import VIRTUAL_MAC
from battlebrokers.sdn.lab.commands import Names
from battlebrokers.sdn.lab.laboratory import Laboratory
from battlebrokers.sdn.lab.topology import LabHost, Topology, find_topology
from support.runs import start_bb
from support.waiting import until

PORT = 5005
_FENCE = "the fence "


class Stage:
    """One network that is up, with its controller."""

    def __init__(self, folder: Path, topology: str, cables: str = "", options: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self._options = options
        self.topology: Topology = find_topology(topology, cables)
        # Short and of its own, so that a lab somebody uses at the same time is left alone.
        self.lab = Laboratory(folder / "lab", Names("bbt"))
        self.sockets: dict[str, socket.socket] = {}
        self.controller: subprocess.Popen[bytes] | None = None
        self.openflow_port = self.http_port = 0
        self._fences: dict[str, list[str]] = {}
        self._published: set[str] = set()
        self._known: set[tuple[str, str]] = set()

    @property
    def hosts(self) -> dict[str, LabHost]:
        return self.topology.hosts

    def start_controller(self) -> None:
        log = self.folder / "controller.log"
        log.unlink(missing_ok=True)
        self.controller = start_bb(
            "sdn", "controller", "--port", str(self.http_port), "--openflow-port", str(self.openflow_port),
            "--state", str(self.folder / "state.json"), *self._options, cwd=self.folder, log=log,
        )  # fmt: skip
        until(lambda: b"REST" in log.read_bytes(), what="the controller")
        words = log.read_text().split()
        self.openflow_port = int(words[words.index("switches:") + 1].rpartition(":")[2])
        self.http_port = int(words[words.index("page:") + 1].rstrip("/").rpartition(":")[2])

    def kill_controller(self) -> None:
        assert self.controller is not None
        self.controller.kill()
        self.controller.wait(60)

    def up(self) -> None:
        self.start_controller()
        self.lab.up(self.topology, f"tcp:127.0.0.1:{self.openflow_port}")
        assert self.lab.await_controller(30)
        until(lambda: len(self.ask("GET", "/api/v1/topology")["links"]) == len(self.topology.wires), what="all links")
        self.lab.announce(self.topology)
        until(lambda: len(self.ask("GET", "/api/v1/hosts")) == len(self.hosts), what="all hosts")
        for name in self.hosts:
            self.sockets[name] = self.lab.udp_socket(name, PORT)
            self.sockets[name].setblocking(False)

    def down(self) -> None:
        for one in self.sockets.values():
            one.close()
        if self.controller is not None:
            self.controller.terminate()
            self.controller.wait(60)
        self.lab.down()

    def ask(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.http_port}{path}",
            json.dumps(body).encode() if body is not None else None,
            {"Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            told = answer.read()
        return json.loads(told) if told else None

    def refused(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        try:
            self.ask(method, path, body)
        except urllib.error.HTTPError as fault:
            return fault.code, json.loads(fault.read())
        raise AssertionError(f"{method} {path} was not refused")

    def create(self, mode: str = "tree", source: str = "publisher", subscribers: tuple[str, ...] = ()) -> str:
        address: str = self.ask("POST", "/api/v1/resources", {"mode": mode, "source": source})["address"]
        for host in subscribers:
            self.subscribe(address, host)
        return address

    def subscribe(self, address: str, host: str) -> None:
        who = {"mac": self.hosts[host].mac, "ipv4": self.hosts[host].ipv4}
        self.ask("POST", f"/api/v1/resources/{address}/subscribers", who)

    def unsubscribe(self, address: str, host: str) -> None:
        self.ask("DELETE", f"/api/v1/resources/{address}/subscribers/{self.hosts[host].mac}")

    def publish(self, host: str, address: str, payload: bytes) -> None:
        self._published.add(host)
        self._send(host, address, payload)

    def _send(self, host: str, address: str, payload: bytes) -> None:
        if (host, address) not in self._known:
            # Else the first message would wait for ARP, and what is sent later on other ways would overtake it.
            self.knows(host, address, VIRTUAL_MAC)
        self.sockets[host].sendto(payload, (address, PORT))

    def knows(self, host: str, address: str, mac: str) -> None:
        """Tell a host whose address that is, so that it does not ask."""
        self.lab.switching.run("ip", "-n", f"bbt-{host}", "neigh", "replace", address, "lladdr", mac, "dev", "eth0")
        self._known.add((host, address))

    def heard(self) -> dict[str, list[tuple[bytes, str]]]:
        """What every host has received, once messages sent after everything else have reached them all too.

        From each who published, one through the controller and one through the switches alone: what comes from
        elsewhere or goes another way overtakes now and then.
        """
        came: dict[str, list[tuple[bytes, str]]] = {name: [] for name in self.hosts}
        waiting: set[tuple[str, str]] = set()
        now = str(time.monotonic_ns())
        for publisher in self._published or {next(iter(self.hosts))}:
            others = tuple(name for name in self.hosts if name != publisher)
            if publisher not in self._fences:
                self._fences[publisher] = [
                    self.create(mode, subscribers=others) for mode in ("reactive", "direct", "tree")
                ]
            for fence in self._fences[publisher]:
                waiting |= {(name, fence) for name in others}
                self._send(publisher, fence, f"{_FENCE}{fence} {now}".encode())
        self._published.clear()
        last = time.monotonic() + 60
        while waiting and time.monotonic() < last:
            select.select(list(self.sockets.values()), [], [], 0.5)
            for name in self.hosts:
                for payload, address in self._drained(name):
                    fence, _, at = payload.decode("latin-1").removeprefix(_FENCE).partition(" ")
                    if not payload.startswith(_FENCE.encode()):
                        came[name].append((payload, address))
                    elif at == now:
                        waiting.discard((name, fence))
        assert not waiting, f"the fences did not reach {waiting}"
        return {name: got for name, got in came.items() if got}

    def drops(self) -> dict[str, int]:
        """Frames dropped so far, by kind, once two looks in a row agree: switches tell late what they counted."""
        seen: list[dict[str, int]] = [self._drops()]

        def settled() -> bool:
            # The controller asks the switches twice a second at most: sooner it would say the same without asking.
            time.sleep(0.6)
            seen.append(self._drops())
            return seen[-1] == seen[-2]

        until(settled, what="counters that stand still")
        return seen[-1]

    def dropped(self, kind: str, since: dict[str, int], at_least: int = 1) -> int:
        """How many more frames of a kind were dropped, as soon as there are so many."""
        return until(
            lambda: more if (more := self._drops()[kind] - since[kind]) >= at_least else 0, what=f"drops: {kind}"
        )

    def _drops(self) -> dict[str, int]:
        counted: dict[str, int] = self.ask("GET", "/api/v1/statistics")["drops"]
        return counted

    def errors(self) -> int:
        return sum(one["errors"] + one["malformed"] for one in self.ask("GET", "/api/v1/topology")["switches"])

    def is_whole(self) -> bool:
        """Whether every switch and every link is there."""
        told = self.ask("GET", "/api/v1/topology")
        switches = [one for one in told["switches"] if one["connected"]]
        return len(switches) == len(self.topology.switches) and len(told["links"]) == len(self.topology.wires)

    def calls(self, switch: str, port: int) -> None:
        """Let a switch call another port of ours; at one where nobody listens it goes on by the rules it has."""
        bridge = f"bbt{switch}"
        words = ("set", "controller", bridge, "connection_mode=out-of-band", "max_backoff=1000")
        self.lab.switching.run("ovs-vsctl", "set-controller", bridge, f"tcp:127.0.0.1:{port}", "--", *words)

    def _drained(self, name: str) -> Iterator[tuple[bytes, str]]:
        with suppress(BlockingIOError):
            while True:
                payload, (address, _) = self.sockets[name].recvfrom(70000)
                yield payload, address


@contextmanager
def stage(folder: Path, topology: str, cables: str = "", options: tuple[str, ...] = ()) -> Iterator[Stage]:
    """A network that is up, and gone afterwards; `options` are the controller's."""
    made = Stage(folder, topology, cables, options)
    try:
        made.up()
        yield made
    finally:
        made.down()
