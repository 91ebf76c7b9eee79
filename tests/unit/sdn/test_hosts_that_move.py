"""Hosts that move while nobody looks, and subscribers nobody has located: served and held back."""

from __future__ import annotations

import pytest

from battlebrokers.sdn.core import broker
from battlebrokers.sdn.core.broker import OPEN_VSWITCH
from battlebrokers.sdn.core.network import Host, Port
from battlebrokers.sdn.core.resources import Mode
from battlebrokers.sdn.fake_network import FakeNetwork
from battlebrokers.sdn.store import remembered
from support.datagrams import arp_frame, udp_frame

A, B = ("00:00:00:00:01:01", "10.0.0.1"), ("00:00:00:00:01:02", "10.0.0.2")
HOME, AWAY, OTHER = Port(1, 1), Port(2, 1), Port(1, 2)


def network() -> FakeNetwork:
    """Two switches; A at s1:1, B at s1:2 and subscribed to a resource of each mode; s2:1 is free."""
    made = FakeNetwork({1: frozenset({1, 2, 3}), 2: frozenset({1, 3})}, [(Port(1, 3), Port(2, 3))])
    made.start()
    for who, port in ((A, HOME), (B, OTHER)):
        made.inject(port, arp_frame(*who, who[1]))
    for mode in Mode:
        directory, resource = made.state.directory.created(mode)
        made.change(directory.subscribed(resource.address, *B))
    return made


def pulled_out(made: FakeNetwork, port: Port) -> None:
    """Nobody is told that a port went down."""
    fake = made.switches[port.switch]
    fake.ports -= {port.number}


def joined(made: FakeNetwork, switch: int) -> None:
    fake = made.switches[switch]
    made.decided(broker.switch_joined(made.state, switch, fake.ports, fake.tables, OPEN_VSWITCH))


def works_at(made: FakeNetwork, port: Port) -> None:
    """A is believed there: it is known, and what it publishes is delivered."""
    made.inject(port, arp_frame(*A, A[1]))
    assert made.state.network.hosts[A[0]] == Host(*A, port)
    for resource in made.state.directory.resources.values():
        came = made.inject(port, udp_frame(*A, resource.address, b"from the new place"))
        assert [edge for edge, _ in came] == [OTHER], resource.mode


def test_a_host_that_moved_while_the_controller_was_away_is_believed() -> None:
    made = network()
    memory = remembered(made.state.secret, made.state.directory, made.state.network)
    pulled_out(made, HOME)
    made.state = broker.State(
        memory.secret, memory.directory, memory.network, awaited=frozenset(memory.network.ports)
    )  # fmt: skip
    assert A[0] in made.state.network.hosts
    for switch in made.switches:
        joined(made, switch)
    made.discover()
    works_at(made, AWAY)


def test_a_host_that_moved_while_its_switch_was_away_is_believed() -> None:
    made = network()
    made.decided(broker.switch_left(made.state, 1))
    pulled_out(made, HOME)
    joined(made, 1)
    made.discover()
    works_at(made, AWAY)


def test_a_host_whose_switch_is_gone_is_believed_elsewhere() -> None:
    made = network()
    made.decided(broker.switch_left(made.state, 1))
    made.inject(AWAY, arp_frame(*A, A[1]))
    assert made.state.network.hosts[A[0]] == Host(*A, AWAY)


def test_a_host_whose_switch_is_back_is_where_it_was() -> None:
    made = network()
    made.decided(broker.switch_left(made.state, 1))
    joined(made, 1)
    made.discover()
    assert made.state.network.hosts[A[0]] == Host(*A, HOME)
    made.inject(AWAY, arp_frame(*A, A[1]))
    assert made.state.network.hosts[A[0]] == Host(*A, HOME)


@pytest.mark.parametrize("mode", Mode)
def test_a_subscriber_nobody_has_located_does_not_publish_on_its_own_resource(mode: Mode) -> None:
    made = network()
    directory, resource = made.state.directory.created(mode)
    directory = directory.subscribed(resource.address, *B)
    stranger = ("00:00:00:00:01:09", "10.0.0.9")
    made.change(directory.subscribed(resource.address, *stranger))
    assert made.inject(AWAY, udp_frame(*stranger, resource.address, b"to its own")) == []
    assert made.switches[2].counted[f"own resource {resource.address}"] == 1
    others = [one for one in directory.resources.values() if one.address != resource.address]
    for other in others:
        assert len(made.inject(AWAY, udp_frame(*stranger, other.address, b"to others"))) == 1


def test_the_controller_looks_at_who_sent_a_message_too() -> None:
    """A rule that is on its way to the switch holds nobody back yet."""
    made = network()
    resource = next(one for one in made.state.directory.resources.values() if one.mode is Mode.REACTIVE)
    assert broker.handed_out(made.state, AWAY, resource.address, B[0]) == "own resource"
    assert broker.handed_out(made.state, AWAY, resource.address, "00:00:00:00:01:09") != "own resource"
    _, orders = broker.packet_came(made.state, AWAY, udp_frame(*B, resource.address, b"x"), 0)
    assert orders == {}
