"""Switches learn of a change one after the other: in every mixture of old and new, those who stay are served."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.sdn.core import broker
from battlebrokers.sdn.core.instructions import Tables
from battlebrokers.sdn.core.network import Port
from battlebrokers.sdn.core.resources import Directory, Mode
from battlebrokers.sdn.fake_network import FakeNetwork
from support.datagrams import arp_frame, udp_frame
from support.examples import examples
from support.towns import Town, towns


def lively(town: Town) -> FakeNetwork:
    network = FakeNetwork(town.ports, town.wires)
    network.start()
    for mac, ipv4, port in town.hosts:
        network.inject(port, arp_frame(mac, ipv4, ipv4))
    return network


def every_mixture(town: Town, mode: Mode, before: list[int], who: int) -> None:
    """`who` joins, or leaves when it was there before; every switch is before, amid or after what it is told."""
    network = lively(town)
    directory, resource = Directory().created(mode)
    for number in before:
        directory = directory.subscribed(resource.address, *town.hosts[number][:2])
    network.change(directory)
    mac, ipv4, _ = town.hosts[who]
    if who in before:
        directory = directory.unsubscribed(resource.address, mac)
    else:
        directory = directory.subscribed(resource.address, mac, ipv4)
    old = {switch: fake.tables for switch, fake in network.switches.items()}
    _, orders = broker.directory_changed(network.state, directory)
    staying = {port for number, (*_, port) in enumerate(town.hosts) if number in before and number != who}
    publishers = [host for number, host in enumerate(town.hosts) if number not in before and number != who]
    for done in product(*(range(len(orders.get(switch, ())) + 1) for switch in network.switches)):
        for (switch, fake), count in zip(network.switches.items(), done, strict=True):
            tables = old[switch]
            fake.tables = Tables(dict(tables.rules), dict(tables.groups), dict(tables.meters))
            for order in orders.get(switch, [])[:count]:
                fake.obey(order)
        for sender_mac, sender_ipv4, at in publishers:
            # A frame that runs in circles is an error of its own.
            came = network.inject(at, udp_frame(sender_mac, sender_ipv4, resource.address, b"a reading"))
            ports = Counter(port for port, _ in came)
            assert {port: count for port, count in ports.items() if port in staying} == dict.fromkeys(staying, 1)
            assert set(ports) <= staying | {town.hosts[who][2]}
            assert max(ports.values(), default=1) == 1


def ring(size: int) -> Town:
    """Switches in a ring with a host at each."""
    ports = {switch: frozenset({1, 2, 3}) for switch in range(1, size + 1)}
    wires = [(Port(switch, 3), Port(switch % size + 1, 2)) for switch in range(1, size + 1)]
    hosts = [(f"00:00:00:00:01:0{n}", f"10.0.0.{n}", Port(n, 1)) for n in range(1, size + 1)]
    return Town(ports, wires, hosts)


@given(st.data())
@examples(60)
def test_whoever_stays_gets_everything_once_while_another_joins_or_leaves(data: st.DataObject) -> None:
    town = data.draw(towns() | st.builds(ring, st.integers(3, 5)))
    numbers = st.integers(0, len(town.hosts) - 1)
    before = data.draw(st.lists(numbers, unique=True))
    every_mixture(town, data.draw(st.sampled_from([Mode.GROUP, Mode.TREE])), before, data.draw(numbers))


@pytest.mark.parametrize("before", [[3], [0, 3], [2], [0, 2]])
def test_in_a_ring_nothing_moves_because_somebody_joins_or_leaves(before: list[int]) -> None:
    """A tree that followed its subscribers would move here."""
    every_mixture(ring(5), Mode.TREE, before, 0)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("cut_off", range(1, 6))
def test_a_switch_that_is_cut_off_and_goes_on_doubles_nothing(mode: Mode, cut_off: int) -> None:
    town = ring(5)
    network = lively(town)
    directory, resource = Directory().created(mode)
    for number in (0, 2, 4):
        directory = directory.subscribed(resource.address, *town.hosts[number][:2])
    network.change(directory)
    going_on = network.switches[cut_off].tables
    network.decided(broker.switch_left(network.state, cut_off))
    assert network.switches[cut_off].tables is going_on
    for number in (1, 3):
        mac, ipv4, at = town.hosts[number]
        if mode.asks and at.switch == cut_off:
            continue
        came = Counter(port for port, _ in network.inject(at, udp_frame(mac, ipv4, resource.address, b"a reading")))
        assert max(came.values(), default=1) == 1
        assert set(came) <= {town.hosts[other][2] for other in (0, 2, 4)}
        if at.switch != cut_off:
            assert set(came) == {Port(one, 1) for one in (1, 3, 5) if one != cut_off}
