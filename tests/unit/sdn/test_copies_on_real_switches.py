"""Any network, any changes, any frames: fake switches and real Open vSwitch do the same, and both what the model says.

The switches are real, their datapath is the made-up one of their own tests: no rights needed. A message nobody gets is
known to be gone when one sent after it has come everywhere: this datapath keeps the order.
"""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from battlebrokers.sdn.core.addresses import BROADCAST_MAC, VIRTUAL_MAC
from battlebrokers.sdn.core.network import Port
from battlebrokers.sdn.core.resources import Directory, Mode, Resource, Source
from battlebrokers.sdn.fake_network import FakeNetwork
from support.datagrams import arp_frame, udp_frame
from support.dummy_switches import (
    DummySwitches,
    LoopInBackground,
    RealNetwork,
    background,
    needs_open_vswitch,
    ovs,
)
from support.examples import examples
from support.towns import Town, towns
from support.waiting import until

__all__ = ["background", "ovs"]
pytestmark = [pytest.mark.slow, pytest.mark.broker, needs_open_vswitch]

HostOf = tuple[str, str, Port]
FENCES = (Mode.TREE, Mode.DIRECT, Mode.REACTIVE)
OBSERVER = ("00:00:00:00:02:01", "10.0.1.1")
STRANGER = ("00:00:00:00:03:01", "10.0.2.1")


class Play:
    """The same things done to a fake and to a real network, and to the model of what must come of them."""

    def __init__(self, town: Town, real: RealNetwork) -> None:
        self.town, self.real = town, real
        self.fake = FakeNetwork(town.ports, town.wires)
        self.fake.start()
        self.directory = Directory()
        self.expected: Counter[tuple[Port, bytes]] = Counter()
        """By the model, or where the model says nothing, by the fake."""
        self.numbers = itertools.count()
        hosts = [*town.hosts[:-1]]
        for mac, ipv4, port in hosts:
            assert self.fake.inject(port, arp_frame(mac, ipv4, ipv4)) == []
        real.announce(hosts)
        *self.hosts, self.observer = hosts
        self.stranger = town.hosts[-1]
        directory = Directory()
        for mode in FENCES:
            directory, fence = directory.created(mode)
            for mac, ipv4, _ in self.hosts:
                directory = directory.subscribed(fence.address, mac, ipv4)
        self.change(directory)

    @property
    def resources(self) -> list[Resource]:
        """Those that are played with."""
        return list(self.directory.resources.values())[len(FENCES) :]

    def payload(self, text: str) -> bytes:
        return f"{next(self.numbers)} {text}".encode()

    def change(self, directory: Directory) -> None:
        """What was sent before is settled first: on its way, it may go either way."""
        self.settled()
        self.directory = directory
        self.fake.change(directory)
        self.real.change(directory)

    def publish(self, who: HostOf, resource: Resource, payload: bytes) -> None:
        mac, ipv4, port = who
        frame = udp_frame(mac, ipv4, resource.address, payload)
        source = (VIRTUAL_MAC, resource.address) if resource.source is Source.RESOURCE else (mac, ipv4)
        copies = Counter(
            (home, udp_frame(*source, to, payload, to_mac=to_mac))
            for to_mac, to, home in self.hosts
            if to_mac in resource.subscribers and mac not in resource.subscribers
        )
        assert Counter(self.fake.inject(port, frame)) == copies
        self.expected += copies
        self.real.inject(port, frame)

    def attack(self, port: Port, frame: bytes) -> None:
        assert self.fake.inject(port, frame) == []
        self.real.inject(port, frame)

    def whatever(self, port: Port, frame: bytes) -> None:
        """Where the model has no opinion, the fake is right or wrong."""
        self.expected += Counter(self.fake.inject(port, frame))
        self.real.inject(port, frame)

    def settled(self) -> None:
        for fence in list(self.directory.resources.values())[: len(FENCES)]:
            self.publish(self.observer, fence, self.payload("fence"))
        until(lambda: not self.expected - self.real.came(), what="all copies")
        assert self.real.came() == self.expected


def attacks(play: Play, data: st.DataObject) -> Iterator[tuple[Port, bytes]]:
    """Something that must reach nobody, as a host can send it."""
    mac, ipv4, port = data.draw(st.sampled_from(play.hosts))
    resource = data.draw(st.sampled_from(play.resources))
    to = resource.address
    other_mac, other_ipv4, _ = data.draw(st.sampled_from([one for one in play.hosts if one[0] != mac]))
    said = play.payload("attack")
    kinds = {
        "as another": udp_frame(other_mac, other_ipv4, to, said),
        "with another's IPv4 address": udp_frame(mac, other_ipv4, to, said),
        "with another's MAC address": udp_frame(other_mac, ipv4, to, said),
        "as the resource": udp_frame(VIRTUAL_MAC, to, to, said),
        "to a host": udp_frame(mac, ipv4, other_ipv4, said, to_mac=other_mac),
        "to a host by the virtual address": udp_frame(mac, ipv4, other_ipv4, said),
        "to a host as a resource's copy": udp_frame(VIRTUAL_MAC, to, other_ipv4, said, to_mac=other_mac),
        "to everybody": udp_frame(mac, ipv4, "255.255.255.255", said, to_mac=BROADCAST_MAC),
        "on a resource at a host's address": udp_frame(mac, ipv4, to, said, to_mac=other_mac),
        "on a resource at everybody's address": udp_frame(mac, ipv4, to, said, to_mac=BROADCAST_MAC),
        "the first piece": udp_frame(mac, ipv4, to, said, flags=0x2000),
        "a later piece": udp_frame(mac, ipv4, to, said, flags=0x0004),
        "not UDP": udp_frame(mac, ipv4, to, said, protocol=6),
        "on what is no resource": udp_frame(mac, ipv4, "1.1.200.1", said),
    }
    kind = data.draw(st.sampled_from(sorted(kinds)))
    yield port, kinds[kind]
    # A stranger's port is nobody's: what a known host may not do there, a stranger may not either.
    if kind.startswith(("as another", "with another's", "to ", "on a resource at", "the first", "a later", "not UDP")):
        yield play.stranger[2], kinds[kind]


def questions(play: Play, data: st.DataObject) -> tuple[Port, bytes]:
    """ARP, honest, forged and damaged; none of it moves anybody."""
    mac, ipv4, port = data.draw(st.sampled_from(play.hosts))
    other_mac, other_ipv4, _ = data.draw(st.sampled_from([one for one in play.hosts if one[0] != mac]))
    target = data.draw(st.sampled_from([*(one.address for one in play.resources), other_ipv4, ipv4, "1.1.200.1"]))
    kind = data.draw(st.sampled_from(["honest", "answer", "as another", "half as another", "elsewhere", "damaged"]))
    frame = arp_frame(mac, ipv4, target, op=2 if kind == "answer" else 1)
    if kind == "as another":
        frame = arp_frame(other_mac, other_ipv4, target)
    elif kind == "half as another":
        frame = arp_frame(other_mac, ipv4, target, eth_src=mac)
    elif kind == "elsewhere":
        port = play.stranger[2]
    elif kind == "damaged":
        broken = bytearray(frame)
        broken[data.draw(st.integers(14, 41))] ^= data.draw(st.integers(1, 255))
        frame = bytes(broken[: data.draw(st.integers(14, 42))])
    return port, frame


def damaged(play: Play, data: st.DataObject) -> tuple[Port, bytes]:
    mac, ipv4, port = data.draw(st.sampled_from(play.hosts))
    resource = data.draw(st.sampled_from(play.resources))
    frame = bytearray(udp_frame(mac, ipv4, resource.address, play.payload("damaged")))
    kind = data.draw(st.sampled_from(["cut", "longer", "bits"]))
    if kind == "cut":
        return port, bytes(frame[: data.draw(st.integers(14, len(frame) - 1))])
    if kind == "longer":
        return port, bytes(frame) + b"\0" * data.draw(st.integers(1, 30))
    # Behind the Ethernet header: lengths, flags, protocol, checksums, addresses, ports.
    for place in data.draw(st.lists(st.integers(14, 41), min_size=1, max_size=3)):
        frame[place] ^= data.draw(st.integers(1, 255))
    return port, bytes(frame)


def played(play: Play, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 2))):
        directory, resource = play.directory.created(
            data.draw(st.sampled_from(Mode)), data.draw(st.sampled_from(Source))
        )
        for mac, ipv4, _port in data.draw(st.lists(st.sampled_from(play.hosts), unique=True)):
            directory = directory.subscribed(resource.address, mac, ipv4)
        play.change(directory)
    steps = st.sampled_from(
        ["publish", "publish", "publish", "attack", "attack", "damaged", "ask", "join", "mode", "source"]
    )
    for step in data.draw(st.lists(steps, min_size=5, max_size=25)):
        resource = data.draw(st.sampled_from(play.resources))
        if step == "publish":
            size = data.draw(st.sampled_from([0, 1, 400]))
            who = data.draw(st.sampled_from([*play.hosts, play.stranger]))
            play.publish(who, resource, play.payload("x" * size))
        elif step == "attack":
            for port, frame in attacks(play, data):
                play.attack(port, frame)
        elif step == "damaged":
            play.whatever(*damaged(play, data))
        elif step == "ask":
            play.whatever(*questions(play, data))
        elif step == "join":
            mac, ipv4, _port = data.draw(st.sampled_from(play.hosts))
            known = mac in resource.subscribers
            directory = play.directory
            at = resource.address
            play.change(directory.unsubscribed(at, mac) if known else directory.subscribed(at, mac, ipv4))
        elif step == "mode":
            play.change(play.directory.changed(resource.address, mode=data.draw(st.sampled_from(Mode))))
        else:
            play.change(play.directory.changed(resource.address, source=data.draw(st.sampled_from(Source))))
    play.settled()


@given(st.data())
@examples(24, suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate))
def test_fake_and_real_switches_do_the_same(
    ovs: DummySwitches, background: LoopInBackground, data: st.DataObject
) -> None:
    town = with_guests(data.draw(towns()))
    with tempfile.TemporaryDirectory() as folder:
        real = RealNetwork(ovs, Path(folder), background, town.ports, town.wires)
        try:
            real.start()
            play = Play(town, real)
            played(play, data)
            tables = real.tables()
            for switch, fake in play.fake.switches.items():
                assert tables[switch].rules == fake.tables.rules
                assert tables[switch].groups == fake.tables.groups
            for channel in real.controller.channels.values():
                assert (channel.counts.errors, channel.counts.malformed) == (0, 0), channel.counts
        finally:
            real.stop()


def with_guests(town: Town) -> Town:
    """An observer who is subscribed to nothing, and at the end a stranger whom nobody knows."""
    ports = dict(town.ports)
    hosts = list(town.hosts)
    for guest, switch in ((OBSERVER, min(ports)), (STRANGER, max(ports))):
        number = max(ports[switch], default=0) + 1
        ports[switch] |= {number}
        hosts.append((*guest, Port(switch, number)))
    return replace(town, ports=ports, hosts=hosts)
