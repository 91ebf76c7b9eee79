"""Real Open vSwitch without rights or interfaces: its dummy datapath, driven by our real controller over a real socket.

`RealNetwork` has the faces of `FakeNetwork`: what one does, the other must do.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import subprocess
import threading
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from battlebrokers.sdn.controller import Controller
from battlebrokers.sdn.core.instructions import Tables
from battlebrokers.sdn.core.network import Port
from battlebrokers.sdn.core.resources import Directory
from battlebrokers.sdn.openflow.codec import read_groups, read_rule
from battlebrokers.sdn.store import Store
from support.datagrams import arp_frame
from support.waiting import until
from support.wiretap import found, needs, running

_TOOLS = ("ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl")
_SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
_PCAP_HEAD, _RECORD_HEAD = 24, struct.Struct("=IIII")

needs_open_vswitch = (
    needs(*_TOOLS, why="(apt install openvswitch-switch)")
    if _SCHEMA.exists()
    else pytest.mark.skipif(True, reason=f"{_SCHEMA} is missing (apt install openvswitch-switch)")
)


class DummySwitches:
    """The two daemons, and the two ways to talk to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.around = os.environ | {"OVS_RUNDIR": str(folder), "OVS_LOGDIR": str(folder), "OVS_DBDIR": str(folder)}

    def run(self, tool: str, *words: str, may_fail: bool = False) -> str:
        done = subprocess.run(
            [found(tool) or tool, *words], env=self.around, capture_output=True, text=True, timeout=60, check=False
        )
        assert may_fail or done.returncode == 0, done.stderr
        return done.stdout

    def configure(self, *words: str) -> str:
        return self.run("ovs-vsctl", f"--db=unix:{self.folder}/db.sock", "--timeout=60", *words)

    def command(self, method: str, *words: str) -> str:
        """As `ovs-appctl` does it, without a process for each word."""
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(60)
            control.connect(f"{self.folder}/vswitchd.ctl")
            control.sendall(json.dumps({"id": 0, "method": method, "params": words}).encode())
            told = b""
            while True:
                told += control.recv(65536)
                try:
                    answer = json.loads(told)
                except ValueError:
                    continue
                assert answer["error"] is None, answer["error"]
                return str(answer["result"])


@contextmanager
def dummy_switches(folder: Path) -> Iterator[DummySwitches]:
    """Open vSwitch with no bridge yet."""
    ovs = DummySwitches(folder)
    ovs.run("ovsdb-tool", "create", f"{folder}/conf.db", str(_SCHEMA))
    database = [found("ovsdb-server") or "", f"{folder}/conf.db", f"--remote=punix:{folder}/db.sock"]
    database.append(f"--unixctl={folder}/db.ctl")
    switch = [
        found("ovs-vswitchd") or "", f"unix:{folder}/db.sock", f"--unixctl={folder}/vswitchd.ctl",
        "--enable-dummy=override", "--disable-system", "--disable-system-route",
    ]  # fmt: skip
    with running(database, env=ovs.around):
        until((folder / "db.sock").exists, what="ovsdb-server")
        ovs.configure("--no-wait", "init")
        with running(switch, env=ovs.around):
            until((folder / "vswitchd.ctl").exists, what="ovs-vswitchd")
            yield ovs


class LoopInBackground:
    """An event loop in a thread, for tests that must not be coroutines themselves."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any], seconds: float = 60) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(seconds)

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(60)
        self.loop.close()


class RealNetwork:
    """Bridges and patch cables under one controller of ours; for one case, then gone."""

    def __init__(
        self, ovs: DummySwitches, folder: Path, background: LoopInBackground, ports: dict[int, frozenset[int]],
        wires: list[tuple[Port, Port]], state: Path | None = None, **limits: int,
    ) -> None:  # fmt: skip
        self._ovs, self._folder, self._background = ovs, folder, background
        self.ports = ports
        self.wires = {end: other for one, two in wires for end, other in ((one, two), (two, one))}
        self.state = state
        self._limits = limits
        self.openflow_port = 0
        self.controller: Controller
        self.edge = [Port(s, n) for s, numbers in ports.items() for n in numbers if Port(s, n) not in self.wires]
        self._read_to = dict.fromkeys(self.edge, _PCAP_HEAD)
        self._came: dict[Port, list[bytes]] = {end: [] for end in self.edge}

    def start_controller(self) -> None:
        async def started() -> int:
            self.controller = Controller(Store(self.state), **self._limits)
            return await self.controller.start(port=self.openflow_port)

        self.openflow_port = self._background.run(started())

    def stop_controller(self) -> None:
        self._background.run(self.controller.stop())

    def add_bridges(self, *only: int) -> None:
        words: list[str] = []
        for switch in only or tuple(self.ports):
            words += [
                "--", "add-br", f"s{switch}", "--", "set", "bridge", f"s{switch}", "datapath_type=dummy",
                "protocols=OpenFlow13", "fail_mode=secure", f"other_config:datapath-id={switch:016x}",
                "--", "set-controller", f"s{switch}", f"tcp:127.0.0.1:{self.openflow_port}",
                "--", "set", "controller", f"s{switch}", "connection_mode=out-of-band", "max_backoff=1000",
            ]  # fmt: skip
            for number in self.ports[switch]:
                end = Port(switch, number)
                kind = ["type=dummy", f"options:tx_pcap={self._capture(end)}"]
                if end in self.wires:
                    kind = ["type=patch", f"options:peer={_name(self.wires[end])}"]
                words += ["--", "add-port", f"s{switch}", _name(end)]
                words += ["--", "set", "interface", _name(end), f"ofport_request={number}", *kind]
        self._ovs.configure(*words[1:])

    def cut_off(self, switch: int) -> None:
        """Only its way to the controller: it goes on switching. With no controller at all it would forget its rules."""
        self._call(switch, "tcp:127.0.0.1:1")
        until(lambda: switch not in self.controller.channels, what="the end of the connection")

    def connect(self, switch: int) -> None:
        self._call(switch, f"tcp:127.0.0.1:{self.openflow_port}")
        until(lambda: switch in self.controller.channels, what="the connection")

    def _call(self, switch: int, target: str) -> None:
        words = ("set", "controller", f"s{switch}", "connection_mode=out-of-band", "max_backoff=1000")
        self._ovs.configure("set-controller", f"s{switch}", target, "--", *words)

    def drop_bridges(self, *only: int) -> None:
        words = [word for switch in only or self.ports for word in ("--", "--if-exists", "del-br", f"s{switch}")]
        self._ovs.configure(*words[1:])
        for end in self.edge:
            if not only or end.switch in only:
                self.came()
                self._capture(end).unlink(missing_ok=True)
                self._read_to[end] = _PCAP_HEAD

    def start(self) -> None:
        """All switches come, and their links are found."""
        self.start_controller()
        self.add_bridges()
        until(lambda: set(self.controller.channels) == set(self.ports), what="all switches")
        until(lambda: self.controller.state.network.links == self.wires, what="all links")
        self.told()

    def told(self) -> None:
        """Everything the controller said so far is done."""
        for channel in self.controller.channels.values():
            self._background.run(channel.barrier())

    def stop(self) -> None:
        self.stop_controller()
        self.drop_bridges()

    def announce(self, hosts: list[tuple[str, str, Port]]) -> None:
        """Every host says who it is, until it is known: as hosts do."""

        def unknown() -> list[tuple[str, str, Port]]:
            return [host for host in hosts if host[0] not in self.controller.state.network.hosts]

        while unknown():
            for mac, ipv4, port in unknown():
                self.inject(port, arp_frame(mac, ipv4, ipv4))
            with suppress(AssertionError):
                until(lambda: not unknown(), seconds=2, what="all hosts")
        self.told()

    def change(self, directory: Directory) -> None:
        self._background.run(self.controller.change(lambda _: directory))

    def cache_is_counted(self) -> None:
        """What the cache counted so far, the rules have counted: else that takes half a second, more on a busy day."""
        self._ovs.command("revalidator/wait")

    def inject(self, at: Port, frame: bytes) -> None:
        self._ovs.command("netdev-dummy/receive", _name(at), frame.hex())

    def came(self) -> Counter[tuple[Port, bytes]]:
        """Every frame that left the network so far but beacons, and where."""
        for end in self.edge:
            if not self._capture(end).exists():
                continue
            with self._capture(end).open("rb") as capture:
                capture.seek(self._read_to[end])
                raw = capture.read()
            at = 0
            while len(raw) - at >= _RECORD_HEAD.size:
                size = _RECORD_HEAD.unpack_from(raw, at)[2]
                frame = raw[at + _RECORD_HEAD.size :][:size]
                if len(frame) < size:
                    break
                at += _RECORD_HEAD.size + size
                if frame[12:14] != b"\x88\xcc":
                    self._came[end].append(frame)
            self._read_to[end] += at
        return Counter((end, frame) for end, frames in self._came.items() for frame in frames)

    def tables(self) -> dict[int, Tables]:
        """What the switches themselves say they know."""
        return {switch: self._background.run(_tables(channel)) for switch, channel in self.controller.channels.items()}

    def _capture(self, end: Port) -> Path:
        return self._folder / f"{_name(end)}.pcap"


async def _tables(channel: Any) -> Tables:
    from os_ken.ofproto import ofproto_v1_3_parser as parser

    from battlebrokers.sdn.openflow.codec import DIALECT

    rules = [read_rule(flow) for flow in await channel.flow_stats()]
    groups = read_groups(await channel._ask(parser.OFPGroupDescStatsRequest(DIALECT, 0)))
    return Tables({rule.key: rule for rule in rules}, {group.id: group for group in groups})


def _name(end: Port) -> str:
    return f"s{end.switch}p{end.number}"


@pytest.fixture(scope="module")
def ovs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DummySwitches]:
    with dummy_switches(tmp_path_factory.mktemp("ovs")) as started:
        yield started


@pytest.fixture(scope="module")
def background() -> Iterator[LoopInBackground]:
    loop = LoopInBackground()
    yield loop
    loop.end()
