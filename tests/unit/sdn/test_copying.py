"""What the controller sends and counts for every message and copy that comes to it, without a network."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from battlebrokers.sdn import copying
from battlebrokers.sdn.controller import Controller
from battlebrokers.sdn.copying import Copying
from battlebrokers.sdn.core import broker
from battlebrokers.sdn.core.addresses import VIRTUAL_MAC
from battlebrokers.sdn.core.instructions import Meter, Send
from battlebrokers.sdn.core.network import Host, Network, Port
from battlebrokers.sdn.core.resources import Directory, Mode, Source
from battlebrokers.sdn.openflow.channel import Channel
from battlebrokers.sdn.openflow.wire import packet_out_head
from battlebrokers.sdn.store import Store
from support.datagrams import udp_frame

PUBLISHER = ("00:00:00:00:02:01", "10.0.1.1")
AT, NEXT, BEFORE = 1, 8, 9


@dataclass(eq=False)
class FakeChannel:
    """Keeps what it is given."""

    sent: list[bytes] = field(default_factory=list)
    is_clogged: bool = False
    flushed: int = 0

    def send_frame(self, heads: tuple[bytes, ...], frame: bytes) -> bool:
        if not self.is_clogged:
            self.sent += [head + frame for head in heads[:-1]]
        return not self.is_clogged

    def flush(self) -> None:
        self.flushed += 1


class Scene:
    """Three switches in a row: hosts at port 2 of each, the publisher at the first."""

    def __init__(self, skills: broker.Skills = broker.OPEN_VSWITCH) -> None:
        network = Network()
        self.hosts = {one: Host(f"00:00:00:00:01:0{one}", f"10.0.0.{one}", Port(one, 2)) for one in (1, 2, 3)}
        for one in self.hosts:
            network = network.with_switch(one, frozenset({AT, 2, NEXT, BEFORE}))
        for one in (1, 2):
            network = network.with_link(Port(one, NEXT), Port(one + 1, BEFORE))
        for host in self.hosts.values():
            network = network.with_host(host)
        self.fakes = {one: FakeChannel() for one in self.hosts}
        self.channels = {one: cast("Channel", fake) for one, fake in self.fakes.items()}
        self.copying = Copying()
        self.state = broker.State(b"", network=network, skills=dict.fromkeys(self.hosts, skills))

    def has(self, mode: Mode, *at: int, source: Source = Source.PUBLISHER) -> str:
        """One more resource, with the hosts of these switches."""
        directory, resource = self.state.directory.created(mode, source)
        for one in at:
            directory = directory.subscribed(resource.address, self.hosts[one].mac, self.hosts[one].ipv4)
        self.becomes(directory)
        return resource.address

    def becomes(self, directory: Directory) -> None:
        self.state = broker.directory_changed(self.state, directory)[0]
        self.copying.changed()

    def publish(self, resource: str, payload: bytes = b"a reading") -> None:
        self.copying.copy(self.state, self.channels, 1, AT, udp_frame(*PUBLISHER, resource, payload))

    def asks(self, switch: int, to: int, source: tuple[str, str] = PUBLISHER) -> None:
        """A switch asks about a copy that came from the one before it."""
        host = self.hosts[to]
        frame = udp_frame(*source, host.ipv4, b"a reading", to_mac=host.mac)
        self.copying.copy(self.state, self.channels, switch, BEFORE, frame)

    def counted(self, resource: str) -> tuple[int, int]:
        one = self.copying.traffic[resource]
        return one.delivered, one.dropped


def test_a_copy_counts_as_delivered_at_the_switch_of_its_subscriber() -> None:
    scene = Scene()
    resource = scene.has(Mode.REACTIVE, 1, 3)
    scene.publish(resource)
    assert len(scene.fakes[1].sent) == 2
    assert scene.counted(resource) == (1, 0)
    scene.asks(2, to=3)
    assert scene.counted(resource) == (1, 0)
    scene.asks(3, to=3)
    assert scene.counted(resource) == (2, 0)
    assert [len(fake.sent) for fake in scene.fakes.values()] == [2, 1, 1]
    assert scene.copying.on_the_way == 0


def test_frames_of_every_size_are_sent_whole_and_go_together() -> None:
    scene = Scene()
    resource = scene.has(Mode.REACTIVE, 3)
    for size in (10, 10, 700, 0):
        scene.publish(resource, b"x" * size)
    assert [int.from_bytes(raw[2:4], "big") for raw in scene.fakes[1].sent] == list(map(len, scene.fakes[1].sent))
    assert [raw.count(b"x") for raw in scene.fakes[1].sent] == [10, 10, 700, 0]
    scene.copying.caught_up()
    assert [fake.flushed for fake in scene.fakes.values()] == [1, 0, 0]
    with pytest.raises(ValueError, match="more than OpenFlow can say"):
        packet_out_head(b"", 1 << 16, 1)


def test_direct_copies_count_where_they_are_handed_out() -> None:
    scene = Scene()
    resource = scene.has(Mode.DIRECT, 1, 2, 3)
    scene.fakes[2].is_clogged = True
    scene.publish(resource)
    assert [len(fake.sent) for fake in scene.fakes.values()] == [1, 0, 1]
    assert scene.counted(resource) == (2, 1)
    assert scene.copying.on_the_way == 0


def test_copies_of_two_resources_that_look_alike_count_where_they_are_made() -> None:
    scene = Scene()
    first, second = scene.has(Mode.REACTIVE, 3), scene.has(Mode.REACTIVE, 3)
    own = scene.has(Mode.REACTIVE, 3, source=Source.RESOURCE)
    scene.publish(first)
    scene.publish(second)
    scene.publish(second)
    assert [scene.counted(one) for one in (first, second)] == [(1, 0), (2, 0)]
    for _ in range(3):
        scene.asks(3, to=3)
    assert [scene.counted(one) for one in (first, second)] == [(1, 0), (2, 0)]
    # One whose copies come from its own address is told apart everywhere.
    scene.publish(own)
    assert scene.counted(own) == (0, 0)
    scene.asks(3, to=3, source=(VIRTUAL_MAC, own))
    assert scene.counted(own) == (1, 0)
    # And the first two again, as soon as only one of them is left.
    scene.becomes(scene.state.directory.unsubscribed(second, scene.hosts[3].mac))
    scene.publish(first)
    assert scene.counted(first) == (1, 0)
    scene.asks(3, to=3)
    assert scene.counted(first) == (2, 0)


def test_copies_that_switches_carry_by_rules_of_group_mode_count_where_they_are_made_and_are_not_waited_for() -> None:
    scene = Scene()
    resource = scene.has(Mode.REACTIVE, 3)
    scene.has(Mode.GROUP, 3)
    scene.publish(resource)
    assert scene.counted(resource) == (1, 0)
    assert scene.copying.on_the_way == 0


def test_a_copy_that_is_let_pass_no_further_is_astray_and_dropped() -> None:
    scene = Scene()
    resource = scene.has(Mode.REACTIVE, 2, 3)
    scene.publish(resource)
    network = scene.state.network.without_link(Port(2, NEXT))
    scene.state = broker.settled(replace(scene.state, network=network))[0]
    scene.copying.changed()
    scene.asks(2, to=3)
    assert scene.copying.drops == {"astray between switches": 1}
    assert scene.counted(resource) == (0, 1)
    scene.publish(resource)
    assert scene.counted(resource) == (0, 2)
    scene.fakes[2].is_clogged = True
    scene.asks(2, to=2)
    assert scene.counted(resource) == (0, 3)


def test_a_frame_from_a_host_is_never_a_copy_on_its_way() -> None:
    scene = Scene()
    scene.has(Mode.REACTIVE, 3)
    victim = scene.hosts[3]
    forged = udp_frame(*PUBLISHER, victim.ipv4, b"direct", to_mac=victim.mac)
    scene.copying.copy(scene.state, scene.channels, 3, AT, forged)
    scene.copying.copy(scene.state, scene.channels, 3, AT, forged[:20])
    assert scene.fakes[3].sent == []
    assert scene.copying.drops["astray between switches"] == 2


def test_no_more_is_let_in_while_too_much_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "MOST_ON_THE_WAY", 4)
    scene = Scene()
    resource, near, direct = scene.has(Mode.REACTIVE, 2, 3), scene.has(Mode.REACTIVE, 1), scene.has(Mode.DIRECT, 2)
    for _ in range(10):
        scene.publish(resource)
    assert (scene.copying.on_the_way, len(scene.fakes[1].sent)) == (4, 4)
    assert scene.counted(resource) == (0, 8)
    assert scene.copying.drops == {"over the limit": 8}
    # What is handed out at once is no part of that.
    scene.publish(near)
    scene.publish(direct)
    assert scene.counted(near) == scene.counted(direct) == (1, 0)
    scene.asks(2, to=2)
    scene.publish(resource)
    assert scene.counted(resource) == (1, 8)
    # One resource's flood keeps no other one's messages out.
    other = scene.has(Mode.REACTIVE, 3)
    scene.publish(other)
    assert scene.copying.traffic[other].dropped == 0
    scene.publish(resource)
    assert scene.counted(resource) == (1, 9)
    # Those that are lost on their way are not waited for for ever.
    for _ in range(4):
        scene.copying.time_passed()
    scene.publish(resource)
    assert scene.copying.traffic[resource].dropped == 9


def test_where_a_switch_has_no_meters_the_controller_limits_copies_on_their_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copying, "IN_TRANSIT", Meter(2, packets_per_s=1, burst_packets=1))
    scene = Scene(broker.Skills())
    resource = scene.has(Mode.REACTIVE, 3)
    for _ in range(5):
        scene.asks(3, to=3)
    assert scene.counted(resource) == (1, 4)
    assert scene.copying.drops == {"over the limit": 4}


class FakeTransport:
    """Keeps what is written, call by call."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)


def test_frames_that_wait_go_together_and_before_anything_else_that_is_said() -> None:
    controller = Controller(Store(None))
    channel, transport = Channel(controller, controller.lobby), FakeTransport()
    assert not channel.send_frame((b"head", b""), b"frame")
    channel._transport = cast("asyncio.Transport", transport)
    assert channel.send_frame((b"a", b"b", b""), b"-one ")
    assert channel.send_frame((b"c", b""), b"-two ")
    assert transport.written == []
    channel.flush()
    channel.flush()
    assert transport.written == [b"a-one b-one c-two "]
    channel.send_frame((b"d", b""), b"-three ")
    channel.tell([Send((), b"said")])
    assert transport.written[1].startswith(b"d-three ")
    assert transport.written[1].endswith(b"said")
    assert (channel.counts.packet_outs, channel.counts.unsent) == (5, 1)
    # Much of it does not wait.
    channel.send_frame((b"", b""), bytes(1 << 19))
    assert len(transport.written) == 3
