"""The broker while its network changes: cables are cut and put back, switches killed, whole networks replaced."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from battlebrokers.errors import InputError
from battlebrokers.sdn.lab.open_vswitch import what_is_missing
from battlebrokers.sdn.lab.topology import Topology, find_topology
from support.apart import WHAT_IS_LEFT, inside, script_apart, start_apart
from support.stage import PORT, Stage, stage
from support.waiting import until

_MISSING = what_is_missing()
pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(_MISSING is not None, reason=f"{_MISSING.message}: {_MISSING.hint}" if _MISSING else ""),
]
MODES = ("reactive", "direct", "group", "tree")


def test_a_cut_cable_in_a_ring_is_gone_around(tmp_path: Path) -> None:
    with stage(tmp_path, "ring") as ring:
        whole = len(ring.topology.wires)
        resources = {mode: ring.create(mode, subscribers=("h3", "h4", "h5")) for mode in MODES}
        for cable in (1, 2, 4):
            ring.lab.cut(cable)
            until(lambda: len(ring.ask("GET", "/api/v1/topology")["links"]) == whole - 1, what="the cut")
            said = {f"{mode} around {cable}".encode() for mode in MODES}
            for mode, resource in resources.items():
                ring.publish("h1", resource, f"{mode} around {cable}".encode())
            came = ring.heard()
            for host in ("h3", "h4", "h5"):
                assert {payload for payload, _ in came[host]} == said
                assert len(came[host]) == len(MODES)
            ring.lab.cut(cable, restore=True)
            until(lambda: len(ring.ask("GET", "/api/v1/topology")["links"]) == whole, what="the cable back")
        assert ring.errors() == 0


def test_cables_inside_the_switch_carry_the_same_copies(tmp_path: Path) -> None:
    with stage(tmp_path, "ring", "patch") as ring:
        resources = {mode: ring.create(mode, subscribers=("h3", "h5")) for mode in MODES}
        for mode, resource in resources.items():
            ring.publish("h1", resource, mode.encode())
        came = ring.heard()
        assert set(came) == {"h3", "h5"}
        for host in came:
            assert sorted(payload.decode() for payload, _ in came[host]) == sorted(MODES)
        assert ring.errors() == 0
        with pytest.raises(InputError):
            ring.lab.cut(1)


def test_a_controller_takes_another_network_as_it_is(tmp_path: Path) -> None:
    """The same switch and host numbers, elsewhere: what was known of the old ones would keep the new ones out."""
    with stage(tmp_path, "paper") as changed:
        resources = {mode: changed.create(mode, subscribers=("h2", "h5")) for mode in MODES}
        move(changed, find_topology("sensors"))
        assert [one["number"] for one in changed.ask("GET", "/api/v1/topology")["switches"]] == [1, 2, 3]
        move(changed, find_topology("ring"))
        for mode, resource in resources.items():
            changed.publish("h1", resource, mode.encode())
        came = changed.heard()
        assert set(came) == {"h2", "h5"}
        for host in came:
            assert sorted(payload.decode() for payload, _ in came[host]) == sorted(MODES)
        assert changed.drops()["spoofed source"] == 0


def test_killed_switches_are_cleared_away_and_built_again(tmp_path: Path) -> None:
    with stage(tmp_path, "chain:2x2") as killed:
        resource = killed.create(subscribers=("h4",))
        pid = killed.lab.switching.pid("ovs-vswitchd")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        until(lambda: killed.lab.switching.pid("ovs-vswitchd") is None, what="its end")
        move(killed, killed.topology)
        killed.publish("h1", resource, b"again")
        assert killed.heard() == {"h4": [(b"again", "10.0.0.1")]}
        pid = killed.lab.switching.pid("ovs-vswitchd")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        until(lambda: killed.lab.switching.pid("ovs-vswitchd") is None, what="its end")
        killed.lab.down()
        left = [name for _, name in socket.if_nameindex() if name.startswith(("bbt", "ovs-"))]
        assert not left


AS_A_HOST = """
bb sdn controller --state state.json > controller.txt 2>&1 &
bb sdn lab up chain:1x2 > up.txt 2>&1; echo code $?
bb sdn lab exec h1 -- sh -c 'ip -br -4 addr show dev eth0; exit 7'; echo code $?
"""


def test_a_command_runs_as_a_host_and_its_code_is_ours(tmp_path: Path) -> None:
    done = script_apart(AS_A_HOST, tmp_path)
    up, shown, code = done.out.splitlines()
    assert (up, code) == ("code 0", "code 7"), done.out + done.err
    assert shown.startswith("eth0"), done.out
    assert "10.0.0.1/" in shown


SERVER_KILLED = f"""
setsid bb sdn serve --topology chain:2x1 > served.txt 2>&1 &
server=$!
until grep -q REST served.txt; do kill -0 $server || exit 90; sleep 0.1; done
bb sdn lab up chain:2x1; echo code $?
kill -9 $server; wait $server
bb sdn lab {{what}} > what.txt 2>&1; echo code $?
bb sdn lab down; {WHAT_IS_LEFT}
"""


@pytest.mark.parametrize("what", ["up chain:2x1", "down"])
def test_what_a_killed_server_left_is_in_nobodys_way(tmp_path: Path, what: str) -> None:
    done = script_apart(SERVER_KILLED.replace("{what}", what), tmp_path)
    codes = [line for line in done.out.splitlines() if line.startswith("code ")]
    assert codes == ["code 4", "code 0"], done.out + done.err
    assert "another Open vSwitch switches here already" in done.err
    assert done.out.splitlines()[-1].split() == ["left:"]


def test_a_lab_that_is_interrupted_while_it_comes_up_is_none(tmp_path: Path) -> None:
    running = start_apart(f"bb sdn lab up paper; code=$?; {WHAT_IS_LEFT}; exit $code", tmp_path)

    def has_begun() -> bool:
        # A process may end between two looks.
        with suppress(psutil.NoSuchProcess):
            every = psutil.Process(running.pid).children(recursive=True)
            return any("ovs-vswitchd" in one.name() for one in every)
        return False

    try:
        until(has_begun, what="a switch")
        inside(running, "sdn lab up").send_signal(signal.SIGINT)
        said, _ = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 130, said
    assert said.splitlines()[-1].split() == ["left:"]


def move(stage: Stage, topology: Topology) -> None:
    """Build another network under the same controller."""
    for one in stage.sockets.values():
        one.close()
    stage.topology = topology
    stage.lab.up(topology, f"tcp:127.0.0.1:{stage.openflow_port}")
    assert stage.lab.await_controller(30)
    wanted = {(host.mac, host.port.switch, host.port.number) for host in topology.hosts.values()}

    def is_known() -> bool:
        stage.lab.announce(topology)
        told = stage.ask("GET", "/api/v1/topology")
        hosts = {(one["mac"], one["switch"], one["port"]) for one in told["hosts"]}
        return hosts == wanted and len(told["links"]) == len(topology.wires)

    until(is_known, what="the new network")
    stage.sockets = {name: stage.lab.udp_socket(name, PORT) for name in topology.hosts}
    for one in stage.sockets.values():
        one.setblocking(False)


@pytest.mark.parametrize("mode", MODES)
def test_a_host_that_never_spoke_gets_its_copies_from_the_answer_on(tmp_path: Path, mode: str) -> None:
    with stage(tmp_path, "chain:2x2") as quiet:
        resource = quiet.create(mode)
        quiet.ask("DELETE", f"/api/v1/hosts/{quiet.hosts['h4'].mac}")
        assert len(quiet.ask("GET", "/api/v1/hosts")) == 3
        who = {"mac": quiet.hosts["h4"].mac, "ipv4": quiet.hosts["h4"].ipv4}
        answer = quiet.ask("POST", f"/api/v1/resources/{resource}/subscribers", who)
        assert answer["subscribers"] == [{**who, "seen_at": str(quiet.hosts["h4"].port)}]
        quiet.publish("h1", resource, b"to the quiet one")
        assert quiet.heard() == {"h4": [(b"to the quiet one", "10.0.0.1")]}
        absent = {"mac": "00:00:00:00:00:99", "ipv4": "10.0.0.99"}
        answer = quiet.ask("POST", f"/api/v1/resources/{resource}/subscribers", absent)
        assert answer["subscribers"][-1] == {**absent, "seen_at": ""}
