"""Reactive mode, hop by hop: who asks the controller about what, what it answers, and which copies it lets pass."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from battlebrokers.sdn.core import broker
from battlebrokers.sdn.core.addresses import VIRTUAL_MAC
from battlebrokers.sdn.core.instructions import CONTROLLER, Match, Output, Rewrite, Send
from battlebrokers.sdn.core.network import Port
from battlebrokers.sdn.core.resources import Directory, Mode, Source
from battlebrokers.sdn.core.rules import IN_TRANSIT, PUBLISH, TRANSIT
from battlebrokers.sdn.fake_network import FakeNetwork
from battlebrokers.sdn.settling import rounds_to_go
from support.datagrams import arp_frame, udp_frame

NEXT, BEFORE = 8, 9
"""The ports towards the next switch and the one before; hosts live at 1 and 2."""
Host = tuple[str, str, Port]


def host(switch: int, port: int = 1) -> Host:
    return f"00:00:00:00:0{switch}:0{port}", f"10.0.{switch}.{port}", Port(switch, port)


class Chain(FakeNetwork):
    """Switches in a row, or in a ring; what was asked and answered is written down."""

    def __init__(self, switches: int = 4, *, closed: bool = False) -> None:
        numbers = range(1, switches + 1)
        wires = [(Port(one, NEXT), Port(one + 1, BEFORE)) for one in numbers[:-1]]
        wires += [(Port(switches, NEXT), Port(1, BEFORE))] if closed else []
        super().__init__({one: frozenset({1, 2, NEXT, BEFORE}) for one in numbers}, wires)
        self.start()
        for switch in numbers:
            for port in (1, 2):
                mac, ipv4, at = host(switch, port)
                self.inject(at, arp_frame(mac, ipv4, ipv4))
        self.asked: list[tuple[str, str]] = []
        """Where, and about a frame for whom."""
        self.answered: list[tuple[int, Send]] = []

    def listen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        decide = broker.packet_came

        def packet_came(state: broker.State, at: Port, frame: bytes, now_ms: int) -> broker.Decision:
            self.asked.append((str(at), str(IPv4Address(frame[30:34]))))
            decided, orders = decide(state, at, frame, now_ms)
            for switch, told in orders.items():
                self.answered += [(switch, order) for order in told if isinstance(order, Send)]
            return decided, orders

        monkeypatch.setattr(broker, "packet_came", packet_came)


def subscribed(directory: Directory, address: str, *hosts: Host) -> Directory:
    for mac, ipv4, _ in hosts:
        directory = directory.subscribed(address, mac, ipv4)
    return directory


@pytest.mark.parametrize("source", Source)
def test_the_first_switch_gets_a_copy_per_subscriber_and_every_further_one_asks_about_each(
    monkeypatch: pytest.MonkeyPatch, source: Source
) -> None:
    chain = Chain()
    directory, resource = Directory().created(Mode.REACTIVE, source)
    near, middle, far = host(1, 2), host(2), host(4)
    chain.change(subscribed(directory, resource.address, near, middle, far))
    chain.listen(monkeypatch)
    mac, ipv4, port = host(1)
    came = chain.inject(port, udp_frame(mac, ipv4, resource.address, b"a reading"))
    as_who = (mac, ipv4) if source is Source.PUBLISHER else (VIRTUAL_MAC, resource.address)
    assert sorted(came) == sorted(
        (at, udp_frame(*as_who, to, b"a reading", to_mac=to_mac)) for to_mac, to, at in (near, middle, far)
    )
    assert sorted(chain.asked) == sorted(
        [("s1:1", resource.address), ("s2:9", middle[1]), ("s2:9", far[1]), ("s3:9", far[1]), ("s4:9", far[1])]
    )
    # Rewritten at the first switch, and nowhere else.
    renamed = () if source is Source.PUBLISHER else (
        Rewrite("eth_src", VIRTUAL_MAC), Rewrite("ipv4_src", resource.address),
    )  # fmt: skip
    first = [
        (1, (*renamed, Rewrite("eth_dst", to_mac), Rewrite("ipv4_dst", to), Output(out)), 1)
        for (to_mac, to, _), out in ((near, 2), (middle, NEXT), (far, NEXT))
    ]
    further = [(switch, (Output(out),), CONTROLLER) for switch, out in ((2, 1), (2, NEXT), (3, NEXT), (4, 1))]
    assert [(switch, one.actions, one.in_port) for switch, one in chain.answered[:3]] == first
    found = [(switch, one.actions, one.in_port) for switch, one in chain.answered[3:]]
    assert sorted(found, key=str) == sorted(further, key=str)


def test_in_direct_mode_the_controller_is_asked_once_and_tells_each_subscribers_own_switch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chain = Chain()
    directory, resource = Directory().created(Mode.DIRECT)
    chain.change(subscribed(directory, resource.address, host(1, 2), host(4), host(4, 2)))
    chain.listen(monkeypatch)
    mac, ipv4, port = host(1)
    came = chain.inject(port, udp_frame(mac, ipv4, resource.address, b"a reading"))
    assert sorted(at for at, _ in came) == [Port(1, 2), Port(4, 1), Port(4, 2)]
    assert chain.asked == [("s1:1", resource.address)]
    assert [(switch, sum(isinstance(one, Output) for one in sent.actions)) for switch, sent in chain.answered] == [
        (1, 1), (4, 2),
    ]  # fmt: skip


def test_nothing_is_installed_but_the_question_and_that_only_as_long_as_somebody_needs_it() -> None:
    chain = Chain()
    plain = {switch: set(fake.tables.rules) for switch, fake in chain.switches.items()}
    directory, direct = Directory().created(Mode.DIRECT)
    chain.change(subscribed(directory, direct.address, host(4)))
    assert not any(rule.table == TRANSIT and rule.actions for rule in chain.switches[2].tables.rules.values())
    assert IN_TRANSIT.id not in chain.switches[2].tables.meters
    directory, reactive = directory.created(Mode.REACTIVE)
    chain.change(directory)
    asks = {switch: set(fake.tables.rules) for switch, fake in chain.switches.items()}
    chain.change(subscribed(directory, reactive.address, host(3), host(4)))
    for switch, fake in chain.switches.items():
        (question,) = [rule for rule in fake.tables.rules.values() if rule.table == TRANSIT and rule.actions]
        assert (question.actions, question.meter) == ((Output(CONTROLLER),), IN_TRANSIT.id)
        assert (question.match.eth_dst, question.match.ipv4_dst) == (None, None)
        assert fake.tables.groups == {}
        # Beyond that, only that subscribers do not publish.
        assert {table for table, _, _ in set(fake.tables.rules) - asks[switch]} <= {PUBLISH}
    chain.change(directory.removed(reactive.address).removed(direct.address))
    assert {switch: set(fake.tables.rules) for switch, fake in chain.switches.items()} == plain


def test_what_looks_like_a_copy_goes_nowhere_when_a_host_sends_it() -> None:
    chain = Chain()
    directory, resource = Directory().created(Mode.REACTIVE)
    victim = host(2)
    chain.change(subscribed(directory, resource.address, victim))
    mac, ipv4, port = host(1)
    forged = [
        udp_frame(mac, ipv4, victim[1], b"a copy", to_mac=victim[0]),
        udp_frame(VIRTUAL_MAC, resource.address, victim[1], b"a copy", to_mac=victim[0]),
    ]
    stranger = Port(1, 2)
    chain.decided(broker.host_forgotten(chain.state, host(1, 2)[0]))
    for frame in forged:
        for at in (port, stranger):
            assert chain.inject(at, frame) == []
            # Nor does the controller let it pass, should a switch ask about it all the same.
            state, orders = broker.packet_came(chain.state, at, frame, 0)
            assert orders == {}
            assert state.drops["astray between switches"] == chain.state.drops.get("astray between switches", 0) + 1
    # What is still for the resource never comes over a link.
    message = udp_frame(mac, ipv4, resource.address, b"a reading")
    assert broker.packet_came(chain.state, Port(2, BEFORE), message, 0)[1] == {}


def test_a_copy_for_somebody_who_left_meanwhile_is_stopped_at_the_next_switch() -> None:
    chain = Chain()
    directory, resource = Directory().created(Mode.REACTIVE)
    leaver = host(4)
    wanted = subscribed(directory, resource.address, leaver)
    chain.change(wanted)
    mac, ipv4, _ = host(1)
    on_its_way = udp_frame(mac, ipv4, leaver[1], b"a copy", to_mac=leaver[0])
    at = Port(3, BEFORE)
    assert broker.packet_came(chain.state, at, on_its_way, 0)[1] == {3: [Send((Output(NEXT),), on_its_way)]}
    chain.change(directory)
    state, orders = broker.packet_came(chain.state, at, on_its_way, 0)
    assert (orders, state.drops) == ({}, {"astray between switches": 1})
    # Nor one under another address of the same host, nor one for somebody nobody has seen.
    chain.change(directory.subscribed(resource.address, leaver[0], "10.9.9.9"))
    assert broker.packet_came(chain.state, at, on_its_way, 0)[1] == {}
    chain.change(wanted)
    chain.decided(broker.host_forgotten(chain.state, leaver[0]))
    assert broker.packet_came(chain.state, at, on_its_way, 0)[1] == {}


def test_whoever_leaves_one_of_two_is_answered_when_copies_of_the_first_had_time_to_pass_every_switch() -> None:
    chain = Chain(4)
    directory, first = Directory().created(Mode.REACTIVE)
    directory, second = directory.created(Mode.REACTIVE)
    directory, grouped = directory.created(Mode.GROUP)
    directory, tree = directory.created(Mode.TREE)
    one, two, three = host(4), host(2), host(3)
    before = subscribed(directory, first.address, one, two, three)
    before = subscribed(before, second.address, one)
    before = subscribed(before, grouped.address, two)
    before = subscribed(before, tree.address, three)
    chain.change(before)
    network = chain.state.network
    assert rounds_to_go(before, before.unsubscribed(first.address, one[0]), network) == 3
    assert rounds_to_go(before, before.unsubscribed(first.address, two[0]), network) == 2
    assert rounds_to_go(before, before.unsubscribed(grouped.address, two[0]), network) == 2
    assert rounds_to_go(before, before.removed(first.address), network) == 3
    # Copies of a tree are for the resource until their last switch, and are never taken for others.
    assert rounds_to_go(before, before.unsubscribed(first.address, three[0]), network) == 0
    assert rounds_to_go(before, before.unsubscribed(tree.address, three[0]), network) == 0
    assert rounds_to_go(before, before.changed(first.address, mode=Mode.TREE), network) == 0


def test_a_subscriber_of_two_reactive_resources_gets_each_message_of_both_once() -> None:
    chain = Chain()
    directory, first = Directory().created(Mode.REACTIVE)
    directory, second = directory.created(Mode.REACTIVE, Source.RESOURCE)
    far = host(4)
    directory = subscribed(subscribed(directory, first.address, far), second.address, far)
    chain.change(directory)
    mac, ipv4, port = host(1)
    for resource, source in ((first, (mac, ipv4)), (second, (VIRTUAL_MAC, second.address))):
        came = chain.inject(port, udp_frame(mac, ipv4, resource.address, b"a reading"))
        assert came == [(far[2], udp_frame(*source, far[1], b"a reading", to_mac=far[0]))]
    chain.change(directory.unsubscribed(first.address, far[0]))
    assert chain.inject(port, udp_frame(mac, ipv4, first.address, b"unwanted")) == []
    assert len(chain.inject(port, udp_frame(mac, ipv4, second.address, b"wanted"))) == 1


def test_switches_that_know_the_subscriber_by_group_mode_need_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = Chain()
    directory, reactive = Directory().created(Mode.REACTIVE)
    directory, grouped = directory.created(Mode.GROUP)
    far = host(4)
    chain.change(subscribed(subscribed(directory, reactive.address, far), grouped.address, far))
    chain.listen(monkeypatch)
    mac, ipv4, port = host(1)
    assert len(chain.inject(port, udp_frame(mac, ipv4, reactive.address, b"a reading"))) == 1
    assert chain.asked == [("s1:1", reactive.address)]


def test_in_a_ring_copies_take_the_shortest_way_and_the_other_one_when_a_cable_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ring = Chain(5, closed=True)
    directory, resource = Directory().created(Mode.REACTIVE)
    far = host(4)
    ring.change(subscribed(directory, resource.address, far))
    ring.listen(monkeypatch)
    mac, ipv4, port = host(1)
    message = udp_frame(mac, ipv4, resource.address, b"a reading")
    assert [at for at, _ in ring.inject(port, message)] == [far[2]]
    assert [at for at, _ in ring.asked] == ["s1:1", "s5:8", "s4:8"]
    ring.asked.clear()
    copy = udp_frame(mac, ipv4, far[1], b"on its way", to_mac=far[0])
    ring.decided(broker.ports_changed(ring.state, 4, frozenset({1, 2, BEFORE})))
    # One that was on its way already turns round.
    assert ring.decided(broker.packet_came(ring.state, Port(5, NEXT), copy, 0)) == [(far[2], copy)]
    assert [at for at, _ in ring.asked] == ["s5:8", "s1:9", "s2:9", "s3:9", "s4:9"]
    ring.asked.clear()
    assert [at for at, _ in ring.inject(port, message)] == [far[2]]
    assert [at for at, _ in ring.asked] == ["s1:1", "s2:9", "s3:9", "s4:9"]


def test_a_subscriber_to_whom_no_way_leads_is_known_to_get_nothing() -> None:
    chain = Chain(3)
    directory, resource = Directory().created(Mode.REACTIVE)
    chain.change(subscribed(directory, resource.address, host(1, 2), host(3)))
    chain.decided(broker.ports_changed(chain.state, 3, frozenset({1, 2})))
    mac, ipv4, port = host(1)
    found = broker.handed_out(chain.state, port, resource.address, mac)
    assert not isinstance(found, str)
    assert (len(found.sent), found.unreachable) == (1, 1)
    assert [at for at, _ in chain.inject(port, udp_frame(mac, ipv4, resource.address, b"a reading"))] == [Port(1, 2)]
    assert Match(eth_dst=VIRTUAL_MAC) in {key[2] for key in chain.switches[2].tables.rules}
