"""The broker inside the network, on real switches and real namespaces: who receives what, from when, until when."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from battlebrokers.sdn.core.addresses import VIRTUAL_MAC
from battlebrokers.sdn.core.frames import Beacon, beacon_frame, mac_bytes
from battlebrokers.sdn.lab.open_vswitch import what_is_missing
from support.datagrams import arp_frame, udp_frame
from support.stage import PORT, Stage, stage
from support.waiting import until

_MISSING = what_is_missing()
pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(_MISSING is not None, reason=f"{_MISSING.message}: {_MISSING.hint}" if _MISSING else ""),
]
MODES = ("reactive", "direct", "group", "tree")


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("paper"), "paper") as made:
        yield made


@pytest.fixture(scope="module", autouse=True)
def nothing_refused(paper: Stage) -> Iterator[None]:
    yield
    assert paper.errors() == 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("source", ["publisher", "resource"])
def test_each_subscriber_gets_each_message_once_and_nobody_else_anything(paper: Stage, mode: str, source: str) -> None:
    subscribers = ("h2", "h3", "h5", "h8")
    resource = paper.create(mode, source, subscribers)
    said = [b"reading %d" % number for number in range(20)]
    for payload in said:
        paper.publish("h1", resource, payload)
    came = paper.heard()
    sender = paper.hosts["h1"].ipv4 if source == "publisher" else resource
    assert came == {host: [(payload, sender) for payload in said] for host in subscribers}


@pytest.mark.parametrize("mode", MODES)
def test_a_whole_packet_of_the_network_passes_and_a_fragmented_one_does_not(paper: Stage, mode: str) -> None:
    resource = paper.create(mode, subscribers=("h7",))
    before = paper.drops()
    paper.publish("h1", resource, b"x" * 1472)
    paper.publish("h1", resource, b"y" * 3000)
    assert [len(payload) for payload, _ in paper.heard()["h7"]] == [1472]
    assert paper.dropped("fragment", before)


@pytest.mark.parametrize("mode", MODES)
def test_a_subscriber_does_not_publish_on_its_own_resource_until_it_left(paper: Stage, mode: str) -> None:
    resource = paper.create(mode, subscribers=("h2", "h3"))
    before = paper.drops()
    paper.publish("h2", resource, b"by a subscriber")
    assert paper.heard() == {}
    assert paper.ask("GET", f"/api/v1/resources/{resource}")["published"] == 0
    paper.unsubscribe(resource, "h2")
    paper.publish("h2", resource, b"no longer")
    assert paper.heard() == {"h3": [(b"no longer", paper.hosts["h2"].ipv4)]}
    assert paper.dropped("own resource", before) == 1


@pytest.mark.parametrize("mode", MODES)
def test_answers_to_subscribe_and_unsubscribe_come_when_they_are_in_effect(paper: Stage, mode: str) -> None:
    resource = paper.create(mode, subscribers=("h8",))
    for number in range(10):
        paper.subscribe(resource, "h6")
        paper.publish("h1", resource, b"wanted %d" % number)
        # What is on its way when a subscription changes may go either way.
        came = paper.heard()
        assert (
            [payload for payload, _ in came["h6"]] == [payload for payload, _ in came["h8"]] == [b"wanted %d" % number]
        )
        paper.unsubscribe(resource, "h6")
        paper.publish("h1", resource, b"unwanted %d" % number)
        assert set(paper.heard()) == {"h8"}


@pytest.mark.parametrize("mode", MODES)
def test_what_is_counted_is_what_was_sent_and_received(paper: Stage, mode: str) -> None:
    resource = paper.create(mode, subscribers=("h3", "h8"))
    sent = received = 0
    for leaver in ("", "h3"):
        if leaver:
            paper.unsubscribe(resource, leaver)
        for number in range(100):
            paper.publish("h1", resource, b"reading %d" % number)
        sent += 100
        received += sum(len(got) for got in paper.heard().values())
        # Switches tell what they counted within a second; a change before that is a matter of its own.
        with suppress(AssertionError):
            until(lambda: min(map(int.__sub__, _counted(paper, resource), (sent, received))) >= 0)  # noqa: B023
        assert _counted(paper, resource) == (sent, received)
    assert received == 300


def test_hosts_do_not_reach_each_other_even_when_they_know_the_address(paper: Stage) -> None:
    victim = paper.hosts["h8"]
    before = paper.drops()
    for name in ("h7", "h1"):
        paper.knows(name, victim.ipv4, victim.mac)
        paper.publish(name, victim.ipv4, b"direct")
    paper.knows("h1", victim.ipv4, VIRTUAL_MAC)
    paper.publish("h1", victim.ipv4, b"by the virtual address")
    assert paper.heard() == {}
    assert paper.dropped("host to host", before, at_least=2) == 2
    assert paper.dropped("unknown resource", before) == 1


def test_a_resource_answers_arp_with_the_virtual_address(paper: Stage) -> None:
    resource = paper.create()
    asker = paper.hosts["h4"]
    with paper.lab.frame_socket("h4") as door:
        door.settimeout(60)
        door.send(arp_frame(asker.mac, asker.ipv4, resource))
        answer = door.recv(2000)
        while answer[12:14] != b"\x08\x06" or answer[20:22] != b"\0\2":
            answer = door.recv(2000)
    assert answer[:12] == mac_bytes(asker.mac) + mac_bytes(VIRTUAL_MAC)
    assert answer[22:28] == mac_bytes(VIRTUAL_MAC)


def test_a_spoofed_source_is_dropped(paper: Stage) -> None:
    resource = paper.create(subscribers=("h8",))
    before = paper.drops()
    other = paper.hosts["h3"]
    with paper.lab.frame_socket("h1") as door:
        door.send(udp_frame(other.mac, other.ipv4, resource, b"as h3", ports=(PORT, PORT)))
        door.send(udp_frame(paper.hosts["h1"].mac, other.ipv4, resource, b"half as h3", ports=(PORT, PORT)))
    assert paper.heard() == {}
    assert paper.dropped("spoofed source", before, at_least=2) == 2


def test_a_forged_announcement_moves_nobody(paper: Stage) -> None:
    resource = paper.create(subscribers=("h8",))
    victim = paper.hosts["h8"]
    with paper.lab.frame_socket("h5") as door:
        door.send(arp_frame(victim.mac, victim.ipv4, victim.ipv4))
        door.send(arp_frame(victim.mac, victim.ipv4, victim.ipv4, eth_src=paper.hosts["h5"].mac))
    paper.publish("h1", resource, b"still here")
    assert paper.heard() == {"h8": [(b"still here", paper.hosts["h1"].ipv4)]}
    where = {one["mac"]: (one["switch"], one["port"]) for one in paper.ask("GET", "/api/v1/hosts")}
    assert where[victim.mac] == (victim.port.switch, victim.port.number)


def test_a_forged_link_is_not_believed(paper: Stage) -> None:
    links = [one["ends"] for one in paper.ask("GET", "/api/v1/topology")["links"]]
    forger = paper.hosts["h5"]
    with paper.lab.frame_socket("h5") as door, paper.lab.frame_socket("h6") as other:
        # Where no host is known the switch asks the controller, and beacons are sent. It stays unknown as long as it
        # does not answer when it is looked for, which it is as a subscriber.
        paper.lab.switching.run("ip", "-n", "bbt-h5", "link", "set", "eth0", "arp", "off")
        paper.ask("DELETE", f"/api/v1/hosts/{forger.mac}")
        before = paper.drops()
        asked = paper.ask("GET", "/api/v1/statistics")["packet_ins"]
        now_ms = time.monotonic_ns() // 1_000_000
        door.send(beacon_frame(Beacon(1, 1, now_ms), b"a guess"))
        assert paper.dropped("forged link", before)
        assert paper.ask("GET", "/api/v1/statistics")["packet_ins"] > asked
        # Its own one back, and a true and fresh one where a host is known.
        before = paper.drops()
        overheard = _next_beacon(door)
        door.send(overheard)
        other.send(overheard)
        assert paper.dropped("forged link", before, at_least=2) == 2
    assert [one["ends"] for one in paper.ask("GET", "/api/v1/topology")["links"]] == links
    paper.lab.switching.run("ip", "-n", "bbt-h5", "link", "set", "eth0", "arp", "on")
    paper.lab.announce(paper.topology)
    until(lambda: len(paper.ask("GET", "/api/v1/hosts")) == len(paper.hosts), what="the forger to be known again")


def test_floods_of_nonsense_do_not_stop_the_broker(paper: Stage) -> None:
    resource = paper.create("reactive", subscribers=("h8",))
    sender = paper.hosts["h1"]
    whole = udp_frame(sender.mac, sender.ipv4, resource, b"cut off")
    with paper.lab.frame_socket("h1") as door:
        for number in range(3000):
            stranger = f"1.1.{number % 200 + 1}.{number % 250 + 1}"
            door.send(udp_frame(sender.mac, sender.ipv4, stranger, b"to nobody"))
        for size in range(14, len(whole)):
            door.send(whole[:size])
        question = arp_frame(sender.mac, sender.ipv4, resource)
        for size in range(14, len(question)):
            door.send(question[:size])
            door.send(question[:size] + bytes([255]) * (len(question) - size))
    paper.publish("h1", resource, b"after the flood")
    assert (b"after the flood", sender.ipv4) in paper.heard()["h8"]


def test_rest_is_the_originals_word_for_word(paper: Stage) -> None:
    created = paper.ask("POST", "/db/resources/json")["message"]
    assert created.startswith("Resource created, address: 1.1.1.")
    resource = created.rpartition(" ")[2]
    assert resource in paper.ask("GET", "/db/resources/json")
    who = {"IpAddress": "10.0.0.3", "MACAddress": "00:00:00:00:00:03"}
    path = f"/db/subscribers/{resource}/json"
    assert paper.ask("POST", path, who) == {"message": "Subscription successful"}
    assert paper.ask("GET", path) == {"00:00:00:00:00:03": "10.0.0.3"}
    status, told = paper.refused("POST", path, who)
    assert status == 409
    assert "already" in told["message"]
    assert paper.ask("DELETE", path, {"MAC": "00:00:00:00:00:03"})["message"]
    assert paper.refused("DELETE", path, {"MAC": "00:00:00:00:00:03"})[0] == 404
    # As its program took it.
    other = {"address": "10.0.0.4", "MAC": "00:00:00:00:00:04"}
    assert paper.ask("POST", path, other) == {"message": "Subscription successful"}
    assert paper.ask("GET", path) == {"00:00:00:00:00:04": "10.0.0.4"}
    assert paper.ask("DELETE", "/db/resources/json", {"resource": resource})["message"]
    assert paper.refused("DELETE", "/db/resources/json", {"resource": resource})[0] == 404
    assert paper.refused("GET", path)[0] == 404
    assert paper.refused("POST", "/db/subscribers/nonsense/json", who)[0] == 422


def test_a_killed_controller_changes_nothing_in_the_network_and_finds_everything_again(paper: Stage) -> None:
    kept = {mode: paper.create(mode, subscribers=("h3", "h8")) for mode in ("group", "tree")}
    for resource in kept.values():
        paper.publish("h1", resource, b"before")
    rules = _rules(paper)
    paper.kill_controller()
    said = [b"meanwhile %d" % number for number in range(100)]
    for payload in said:
        for resource in kept.values():
            paper.publish("h1", resource, payload)
    paper.start_controller()
    until(
        lambda: all(one["connected"] for one in paper.ask("GET", "/api/v1/topology")["switches"]), what="the switches"
    )
    until(lambda: len(paper.ask("GET", "/api/v1/topology")["switches"]) == 4, what="all four switches")
    came = paper.heard()
    for host in ("h3", "h8"):
        assert sorted(payload for payload, _ in came[host]) == sorted([b"before", *said] * 2)
    assert _rules(paper) == rules
    assert set(kept.values()) <= set(paper.ask("GET", "/db/resources/json"))


def _next_beacon(door: socket.socket) -> bytes:
    """The next one that is sent, not one that has waited to be read."""
    door.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            door.recv(2000)
    door.settimeout(60)
    while True:
        frame = door.recv(2000)
        if frame[12:14] == b"\x88\xcc":
            return frame


def _counted(paper: Stage, resource: str) -> tuple[int, int]:
    told = paper.ask("GET", f"/api/v1/resources/{resource}")
    return told["published"], told["delivered"]


def _rules(paper: Stage) -> dict[str, list[str]]:
    """What the switches themselves say they know, without counters."""
    told = {}
    for switch in paper.topology.switches:
        out = subprocess.run(
            ["ovs-ofctl", "-O", "OpenFlow13", "dump-flows", f"bbt{switch}", "--no-stats"],
            env=paper.lab.switching.environment, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        told[switch] = sorted(line.strip() for line in out.splitlines() if "priority" in line)
    return told
