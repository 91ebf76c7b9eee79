"""Any network, any subscriptions, any mode: each subscriber gets each message once, nobody else gets anything."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.sdn.core.addresses import VIRTUAL_MAC
from battlebrokers.sdn.core.frames import mac_bytes
from battlebrokers.sdn.core.network import Port
from battlebrokers.sdn.core.resources import Directory, Mode, Source
from battlebrokers.sdn.fake_network import FakeNetwork
from support.datagrams import arp_frame, is_sound, udp_frame
from support.examples import examples
from support.towns import Town, towns


def lively(town: Town) -> FakeNetwork:
    """Started, links found, every host seen."""
    network = FakeNetwork(town.ports, town.wires)
    network.start()
    for mac, ipv4, port in town.hosts:
        assert network.inject(port, arp_frame(mac, ipv4, ipv4)) == []
    return network


@given(st.data())
@examples(60)
def test_each_subscriber_gets_each_message_once_and_nobody_else_anything(data: st.DataObject) -> None:
    town = data.draw(towns())
    network = lively(town)
    directory = Directory()
    for _ in range(data.draw(st.integers(1, 3))):
        directory, resource = directory.created(data.draw(st.sampled_from(Mode)), data.draw(st.sampled_from(Source)))
        for mac, ipv4, _port in data.draw(st.lists(st.sampled_from(town.hosts), unique=True)):
            directory = directory.subscribed(resource.address, mac, ipv4)
    network.change(directory)
    for resource in directory.resources.values():
        for mac, ipv4, port in town.hosts:
            came = network.inject(port, udp_frame(mac, ipv4, resource.address, b"a reading"))
            expected = [] if mac in resource.subscribers else [h for h in town.hosts if h[0] in resource.subscribers]
            source = (VIRTUAL_MAC, resource.address) if resource.source is Source.RESOURCE else (mac, ipv4)
            copies = {p: udp_frame(*source, i, b"a reading", to_mac=m) for m, i, p in expected}
            assert sorted(port for port, _ in came) == sorted(copies)
            for edge, frame in came:
                assert frame == copies[edge]
                assert is_sound(frame)
    assert not network.state.drops


@given(st.data())
@examples(30)
def test_any_order_of_changes_ends_in_the_same_rules(data: st.DataObject) -> None:
    town = data.draw(towns())
    network = lively(town)
    directory, first = Directory().created(data.draw(st.sampled_from(Mode)))
    directory, second = directory.created(data.draw(st.sampled_from(Mode)))
    network.change(directory)
    for _ in range(data.draw(st.integers(0, 12))):
        address = data.draw(st.sampled_from([first.address, second.address]))
        mac, ipv4, _port = data.draw(st.sampled_from(town.hosts))
        known = mac in directory[address].subscribers
        directory = directory.unsubscribed(address, mac) if known else directory.subscribed(address, mac, ipv4)
        network.change(directory)
    # Subscribed in another order, buckets stand in another order: that alone may differ.
    for switch, fake in network.switches.items():
        assert fake.tables.rules == network.state.known[switch].rules
        assert fake.tables.groups == network.state.known[switch].groups
    anew = lively(town)
    anew.change(directory)
    assert {s: f.tables.rules for s, f in anew.switches.items()} == {
        s: f.tables.rules for s, f in network.switches.items()
    }


def test_a_frame_to_a_host_or_with_another_ones_address_goes_nowhere() -> None:
    town = Town({1: frozenset({1, 2, 3})}, [], [(f"00:00:00:00:01:0{n}", f"10.0.0.{n}", Port(1, n)) for n in (1, 2, 3)])
    network = lively(town)
    directory, resource = Directory().created()
    network.change(directory.subscribed(resource.address, *town.hosts[1][:2]))
    (mac, ipv4, port), (other_mac, other_ipv4, _), _third = town.hosts
    assert network.inject(port, udp_frame(mac, ipv4, other_ipv4, b"direct", to_mac=other_mac)) == []
    assert network.inject(port, udp_frame(mac, ipv4, other_ipv4, b"by the virtual address")) == []
    assert network.inject(port, udp_frame(other_mac, other_ipv4, resource.address, b"as somebody else")) == []
    assert network.inject(port, udp_frame(mac, ipv4, resource.address, b"piece", flags=0x2000)) == []
    assert len(network.inject(port, udp_frame(mac, ipv4, resource.address, b"honest"))) == 1
    counted = network.switches[1].counted
    assert counted["host to host"] == 1
    assert counted["unknown resource"] == 1
    assert counted["spoofed source"] == 1
    assert counted["fragment"] == 1
    assert counted[f"published {resource.address}"] == 1


def test_arp_for_a_resource_is_answered_with_the_virtual_address() -> None:
    town = Town({1: frozenset({1})}, [], [("00:00:00:00:01:01", "10.0.0.1", Port(1, 1))])
    network = lively(town)
    directory, resource = Directory().created()
    network.change(directory)
    mac, ipv4, port = town.hosts[0]
    ((edge, answer),) = network.inject(port, arp_frame(mac, ipv4, resource.address))
    assert edge == port
    assert answer[:12] == mac_bytes(mac) + mac_bytes(VIRTUAL_MAC)
    assert answer[20:22] == b"\0\2"
    assert network.inject(port, arp_frame(mac, ipv4, "10.0.0.9")) == []
