"""OpenFlow 1.0 and 1.3 spoken by Open vSwitch, its test controller and ovs-ofctl: types and transactions are tshark's.

Deviations, with their reasons:

- tshark pairs nothing: transactions are checked by id against its list of messages, and a PACKET_IN's answer is
  checked to be a message for the same buffer or with the same packet.
- An ERROR carries the message it refuses, and tshark lists that one too, behind it and with the same id: left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from battlebrokers.dissect.protocols.openflow import _TYPES_10, _TYPES_11
from support.dummy_switches import DummySwitches, dummy_switches, needs_open_vswitch
from support.ports import free_port
from support.wiretap import found, listens, needs, overheard, running, tshark, until, wiretap

pytestmark = [
    pytest.mark.slow,
    pytest.mark.broker,
    needs_open_vswitch,
    needs(
        "tshark", "dumpcap", "ovs-ofctl", "ovs-testcontroller", why="(apt install tshark openvswitch-testcontroller)"
    ),
]


@pytest.fixture
def switches(tmp_path: Path) -> Iterator[DummySwitches]:
    folder = tmp_path / "ovs"
    folder.mkdir()
    with dummy_switches(folder) as started:
        yield started


def inject(switches: DummySwitches, port: str, number: int) -> None:
    packet = (
        f"in_port(1),eth(src=50:54:00:00:00:{number % 7:02x},dst=50:54:00:00:00:{(number + 1) % 7:02x}),"
        "eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),"
        f"udp(src={1000 + number},dst=9)"
    )
    switches.command("netdev-dummy/receive", port, packet)


def _count(kind: str, capture: Path, port: int) -> int:
    return sum(list(one.kinds).count(kind) for one in overheard(capture, port))


@pytest.mark.parametrize(("version", "name"), [(1, "OpenFlow10"), (4, "OpenFlow13")])
def test_types_and_transactions_are_tsharks(switches: DummySwitches, tmp_path: Path, version: int, name: str) -> None:
    capture, controller, manager = tmp_path / "openflow.pcapng", free_port(), free_port()
    with (
        wiretap(capture, controller, manager),
        running([found("ovs-testcontroller") or "", f"ptcp:{controller}", f"--unixctl={tmp_path}/c.ctl", "-O", name]),
    ):
        until(lambda: listens(controller), what="the controller")
        switches.configure(
            "add-br", "s1", "--", "set", "bridge", "s1", "datapath_type=dummy", f"protocols={name}", "fail_mode=secure",
            "--", "set-controller", "s1", f"tcp:127.0.0.1:{controller}", f"ptcp:{manager}:127.0.0.1",
            "--", "add-port", "s1", "p1", "--", "set", "interface", "p1", "type=dummy",
            "--", "add-port", "s1", "p2", "--", "set", "interface", "p2", "type=dummy",
        )  # fmt: skip
        until(lambda: listens(manager), what="the switch")
        until(lambda: any("SET_CONFIG" in one.kinds for one in overheard(capture, controller)), what="their greeting")
        for number in range(12):
            inject(switches, "p1" if number % 2 else "p2", number)
        remote = f"tcp:127.0.0.1:{manager}"
        for question in ("show", "dump-flows", "dump-ports", "dump-desc", "get-frags", "ping"):
            switches.run("ovs-ofctl", "-O", name, "--no-names", "--timeout=60", question, remote)
        flows = tmp_path / "flows"
        flows.write_text("\n".join(f"udp,tp_dst={port},actions=drop" for port in range(1, 400)))
        switches.run("ovs-ofctl", "-O", name, "add-flows", remote, str(flows))
        switches.run("ovs-ofctl", "-O", name, "--no-names", "dump-flows", remote)
        group = ("ovs-ofctl", "-O", name, "add-group", remote, "group_id=1,type=all,bucket=output:1")
        switches.run(*group)
        switches.run(*group, may_fail=True)
        switches.run("ovs-ofctl", "-O", name, "mod-port", remote, "77", "down", may_fail=True)
        until(lambda: _count("PACKET_OUT", capture, controller) >= 5, what="answers to packets")
    types, shown = (_TYPES_10, "openflow_v1") if version == 1 else (_TYPES_11, "openflow_v4")
    kinds, ids = ("openflow_1_0.type", "openflow.xid") if version == 1 else ("openflow_v4.type", "openflow_v4.xid")
    theirs: Counter[tuple[str, int]] = Counter()
    for port in (controller, manager):
        only = f"{shown} && tcp.port=={port}"
        for row in tshark(capture, [kinds, ids], decode_as=f"tcp.port=={port},openflow", only=only):
            inside = None
            for kind, xid in zip(row[kinds], row[ids], strict=True):
                if xid != inside:
                    theirs[types[int(kind)], int(xid, 0)] += 1
                inside = xid if types[int(kind)] == "ERROR" else None
    said = [*overheard(capture, controller), *overheard(capture, manager)]
    said = [one for one in said if one.messages]
    ours = Counter((told.found.kind, int(told.found.correlation, 16)) for one in said for told in one.messages)
    assert {one.stream.protocol for one in said} == {"openflow"}
    assert sum(one.stream.malformed + one.stream.undecoded_bytes for one in said) == 0
    assert ours == theirs
    exchanges = [row for one in said for row in one.exchanges]
    answered = [row for row in exchanges if row.response is not None]
    assert all(row.response.first_ns >= row.request.last_ns for row in answered)
    by_id = [row for row in answered if row.request.found.kind != "PACKET_IN"]
    assert all(row.request.found.correlation == row.response.found.correlation for row in by_id)
    # Both ends greet each other now and then; the last greeting may come too late for its answer.
    asked = [kind for kind, _ in ours.elements() if kind.endswith("_REQUEST") and kind != "ECHO_REQUEST"]
    told = [row.request.found.kind for row in by_id if row.request.found.kind.endswith("_REQUEST")]
    assert sorted(kind for kind in told if kind != "ECHO_REQUEST") == sorted(asked)
    packets = [row for row in answered if row.request.found.kind == "PACKET_IN"]
    # This switch keeps no packets: each PACKET_OUT of this controller gives one back.
    assert len(packets) == sum(count for (kind, _), count in ours.items() if kind == "PACKET_OUT") >= 5
    assert all(row.response.found.fingerprint == row.request.found.fingerprint for row in packets)
    assert {"ECHO_REQUEST", "FEATURES_REPLY", "BARRIER_REPLY", "ERROR"} <= {kind for kind, _ in ours}
