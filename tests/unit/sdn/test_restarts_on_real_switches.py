"""Controllers and switches that go and come back: the state survives, tables become what they should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from battlebrokers.sdn.absences import NotYetInEffectError
from battlebrokers.sdn.core.instructions import Tables
from battlebrokers.sdn.core.network import Port
from battlebrokers.sdn.core.resources import Directory, Mode
from battlebrokers.sdn.core.rules import PUBLISH
from support.datagrams import udp_frame
from support.dummy_switches import DummySwitches, LoopInBackground, RealNetwork, background, needs_open_vswitch, ovs
from support.waiting import until

__all__ = ["background", "ovs"]
pytestmark = [pytest.mark.slow, pytest.mark.broker, needs_open_vswitch]

PUBLISHER, NEAR, FAR = HOSTS = [
    ("00:00:00:00:01:01", "10.0.0.1", Port(1, 1)),
    ("00:00:00:00:01:02", "10.0.0.2", Port(1, 2)),
    ("00:00:00:00:01:03", "10.0.0.3", Port(2, 1)),
]
PORTS = {1: frozenset({1, 2, 3}), 2: frozenset({1, 3})}
WIRES = [(Port(1, 3), Port(2, 3))]


class Broker:
    """A network with one resource of each mode and two subscribers to each."""

    def __init__(self, real: RealNetwork, ovs: DummySwitches) -> None:
        self.real, self.ovs = real, ovs
        self._number = 0
        directory = Directory()
        for mode in Mode:
            directory, resource = directory.created(mode, name=f"in {mode} mode")
            for mac, ipv4, _ in (NEAR, FAR):
                directory = directory.subscribed(resource.address, mac, ipv4)
        real.change(directory)
        self.directory = directory

    def delivers(self, *modes: Mode) -> None:
        """A message in each mode reaches both, once."""
        for resource in self.directory.resources.values():
            if resource.mode not in (modes or tuple(Mode)):
                continue
            self._number += 1
            said = b"message %05d" % self._number
            mac, ipv4, port = PUBLISHER
            self.real.inject(port, udp_frame(mac, ipv4, resource.address, said))
            wanted = Counter((home, udp_frame(mac, ipv4, to, said, to_mac=to_mac)) for to_mac, to, home in (NEAR, FAR))

            def came(said: bytes = said) -> Counter[tuple[Port, bytes]]:
                return Counter({one: count for one, count in self.real.came().items() if said in one[1]})

            until(lambda: not wanted - came(), what=f"copies in {resource.mode} mode")  # noqa: B023
            assert came() == wanted

    def tables(self) -> dict[int, Tables]:
        return self.real.tables()

    def all_there(self) -> None:
        controller = self.real.controller
        until(lambda: set(controller.channels) == set(PORTS), what="both switches")
        until(lambda: controller.state.network.links == self.real.wires, what="the link")
        until(lambda: not controller.state.awaited, what="nobody to be awaited")
        self.real.told()

    def by_hand(self, *words: str) -> str:
        return self.ovs.run("ovs-ofctl", "-O", "OpenFlow13", *words)


@pytest.fixture
def broker(ovs: DummySwitches, background: LoopInBackground, tmp_path: Path) -> Iterator[Broker]:
    network = RealNetwork(ovs, tmp_path, background, PORTS, WIRES, state=tmp_path / "state.json")
    try:
        network.start()
        network.announce(HOSTS)
        yield Broker(network, ovs)
    finally:
        network.stop()


def test_a_restart_keeps_everything_and_changes_no_table(broker: Broker) -> None:
    broker.delivers()
    before = broker.tables()
    told = broker.by_hand("dump-flows", "s1", "--no-stats")
    broker.real.stop_controller()
    broker.delivers(Mode.GROUP, Mode.TREE)
    broker.real.start_controller()
    broker.all_there()
    assert broker.real.controller.state.directory == broker.directory
    assert set(broker.real.controller.state.network.hosts) == {mac for mac, *_ in HOSTS}
    assert broker.tables() == before
    assert broker.by_hand("dump-flows", "s1", "--no-stats") == told
    broker.delivers()


def test_what_somebody_else_put_into_the_tables_is_removed_when_the_controller_comes_back(broker: Broker) -> None:
    before = broker.tables()
    broker.real.stop_controller()
    broker.by_hand("add-flow", "s1", "priority=200,in_port=1,actions=output:2")
    broker.by_hand("add-flow", "s1", "table=2,priority=300,ip,nw_ttl=9,actions=learn(table=7,in_port=1),flood")
    broker.by_hand("add-flow", "s1", "table=9,priority=1,idle_timeout=600,actions=drop")
    broker.by_hand("add-flow", "s1", "table=8,ip,actions=resubmit(,9),ct(commit,table=9)")
    broker.by_hand("add-group", "s1", "group_id=77,type=select,bucket=output:2")
    broker.by_hand("add-meter", "s1", "meter=5,kbps,band=type=drop,rate=10")
    broker.by_hand("del-flows", "s2", "table=1")
    broker.real.start_controller()
    broker.all_there()
    until(lambda: broker.tables() == before, what="the tables to be as they were")
    assert "group_id=77" not in broker.by_hand("dump-groups", "s1")
    assert "meter=5" not in broker.by_hand("dump-meters", "s1")
    broker.delivers()


def test_a_switch_that_lost_its_tables_gets_them_again_while_the_controller_lives(broker: Broker) -> None:
    before = broker.tables()
    broker.real.drop_bridges(2)
    until(lambda: 2 not in broker.real.controller.channels, what="the switch to be gone")
    broker.real.add_bridges(2)
    broker.all_there()
    broker.real.announce(HOSTS)
    until(lambda: broker.tables() == before, what="the tables to be as they were")
    broker.delivers()


def test_another_switch_of_the_same_number_takes_its_place(broker: Broker) -> None:
    broker.delivers()
    before = broker.tables()
    broker.real.stop_controller()
    # While nobody looks, a switch is replaced by one that somebody had used for something else.
    broker.real.drop_bridges(2)
    broker.real.add_bridges(2)
    broker.by_hand("add-flow", "s2", "actions=normal")
    broker.by_hand("add-group", "s2", "group_id=1,type=all,bucket=output:1,bucket=output:3")
    broker.real.start_controller()
    broker.all_there()
    until(lambda: broker.tables() == before, what="the tables to be as they were")
    broker.delivers()


def test_a_switch_that_does_not_come_back_holds_up_the_others_for_the_grace_only(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("battlebrokers.sdn.controller._GRACE_S", 1.0)
    broker.real.stop_controller()
    broker.real.drop_bridges(2)
    broker.real.start_controller()
    until(lambda: not broker.real.controller.state.awaited, what="the end of the grace")
    until(lambda: 1 in broker.real.controller.channels, what="the other switch")
    assert set(broker.real.controller.state.network.ports) == {1}
    # The host behind the lost switch stays subscribed, and gets its messages when the switch is back.
    broker.real.add_bridges(2)
    broker.all_there()
    broker.real.announce(HOSTS)
    broker.delivers()


@pytest.mark.parametrize("mode", [Mode.GROUP, Mode.TREE])
def test_a_switch_that_is_only_cut_off_is_not_taken_for_one_that_obeys(broker: Broker, mode: Mode) -> None:
    resource = next(one for one in broker.directory.resources.values() if one.mode is mode)
    mac, ipv4, port = PUBLISHER
    broker.real.cut_off(1)
    with pytest.raises(NotYetInEffectError, match=r"switch 1 \(away\)"):
        broker.real.change(broker.directory.unsubscribed(resource.address, NEAR[0]))
    broker.real.inject(port, udp_frame(mac, ipv4, resource.address, b"as before"))
    # That is why: nobody could tell it.
    copy = (NEAR[2], udp_frame(mac, ipv4, NEAR[1], b"as before", to_mac=NEAR[0]))
    until(lambda: broker.real.came()[copy], what="a copy for somebody who left")
    assert broker.real.controller.pending(resource.address) == [1]
    broker.real.connect(1)
    broker.all_there()
    assert broker.real.controller.pending(resource.address) == []
    far = (FAR[2], udp_frame(mac, ipv4, FAR[1], b"as it should be", to_mac=FAR[0]))

    def arrives() -> int:
        # The link to the other switch is trusted again with the next beacon; until then copies end there.
        broker.real.inject(port, udp_frame(mac, ipv4, resource.address, b"as it should be"))
        return broker.real.came()[far]

    until(arrives, what="a copy for somebody who stayed")
    assert not any(b"as it should be" in frame and end == NEAR[2] for end, frame in broker.real.came())


def test_a_full_switch_is_said_and_told_again_when_there_is_room(broker: Broker) -> None:
    wanted, resource = broker.directory.created(Mode.TREE)
    limit = len([key for key in broker.tables()[1].rules if key[0] == PUBLISH])
    room = ("--", "--id=@full", "create", "Flow_Table", f"flow_limit={limit}", "overflow_policy=refuse")
    broker.ovs.configure(*room[1:], "--", "set", "bridge", "s1", f"flow_tables:{PUBLISH}=@full")
    with pytest.raises(NotYetInEffectError, match=r"switch 1 \(it refused an order"):
        broker.real.change(wanted)
    assert broker.real.controller.pending(resource.address) == [1]
    assert broker.real.controller.state.directory[resource.address]
    broker.ovs.configure("clear", "bridge", "s1", "flow_tables")
    until(lambda: not broker.real.controller.pending(resource.address), what="the switch to know everything")
    assert broker.tables()[1].rules == broker.real.controller.state.known[1].rules
    broker.delivers()
