"""Subscribers that never said a word: they are asked for where nobody is known, and found by their answer."""

from __future__ import annotations

from battlebrokers.sdn.core import broker
from battlebrokers.sdn.core.frames import Arp, arp_answer, arp_question, read_arp
from battlebrokers.sdn.core.instructions import Send
from battlebrokers.sdn.core.network import Host, Port
from battlebrokers.sdn.core.resources import Directory
from battlebrokers.sdn.fake_network import FakeNetwork

MAC, IPV4 = "00:00:00:00:00:08", "10.0.0.8"
SPEAKER = ("00:00:00:00:00:01", "10.0.0.1")


def network() -> FakeNetwork:
    """Two switches; a host that speaks at s1:1, one that does not at s2:2, and a port where nobody is at s2:1."""
    made = FakeNetwork({1: frozenset({1, 2}), 2: frozenset({1, 2, 3})}, [(Port(1, 2), Port(2, 3))])
    made.start()
    made.inject(Port(1, 1), arp_question(*SPEAKER, SPEAKER[1], "ff:ff:ff:ff:ff:ff"))
    return made


def subscribed(made: FakeNetwork, mac: str, ipv4: str) -> str:
    directory, resource = made.state.directory.created() if not made.state.directory.resources else (
        made.state.directory, next(iter(made.state.directory.resources.values())),
    )  # fmt: skip
    made.change(directory.subscribed(resource.address, mac, ipv4))
    return resource.address


def asked_at(made: FakeNetwork) -> dict[Port, list[str]]:
    """Where which addresses are asked for."""
    found: dict[Port, list[str]] = {}
    for switch, orders in broker.searches(made.state, made.now_ms).items():
        for order in orders:
            assert isinstance(order, Send)
            question = read_arp(order.frame)
            assert question is not None
            for action in order.actions:
                port = Port(switch, action.port)  # type: ignore[union-attr]
                found.setdefault(port, []).append(question.target_ipv4)
    return found


def test_nobody_is_asked_for_when_everybody_was_seen() -> None:
    made = network()
    assert asked_at(made) == {}
    subscribed(made, *SPEAKER)
    assert asked_at(made) == {}


def test_it_is_asked_for_only_where_neither_a_host_nor_a_link_is() -> None:
    made = network()
    subscribed(made, MAC, IPV4)
    assert broker.unseen(made.state) == {MAC: IPV4}
    assert asked_at(made) == {Port(2, 1): [IPV4], Port(2, 2): [IPV4]}


def test_its_answer_brings_it_its_copies() -> None:
    made = network()
    address = subscribed(made, MAC, IPV4)
    # What a host answers to a question from nobody.
    answer = bytearray(arp_answer(Arp("00:00:00:00:00:fe", 1, "00:00:00:00:00:fe", "0.0.0.0", IPV4)))
    mac = bytes.fromhex(MAC.replace(":", ""))
    answer[6:12] = answer[22:28] = mac
    made.inject(Port(2, 2), bytes(answer))
    assert made.state.network.hosts[MAC] == Host(MAC, IPV4, Port(2, 2))
    assert broker.unseen(made.state) == {}
    assert asked_at(made) == {}
    assert made.state.directory[address].subscribers == {MAC: IPV4}


def test_many_that_do_not_answer_are_asked_for_by_turns() -> None:
    made = network()
    for number in range(10, 50):
        subscribed(made, f"00:00:00:00:00:{number:02x}", f"10.0.0.{number}")
    turns: set[str] = set()
    for second in range(5):
        made.now_ms = second * 1000
        asked = asked_at(made)[Port(2, 2)]
        assert len(asked) == len(set(asked)) == 16
        turns |= set(asked)
    assert turns == {f"10.0.0.{number}" for number in range(10, 50)}


def test_a_directory_without_subscribers_asks_nothing() -> None:
    assert broker.searches(broker.State(b"secret", Directory()), 0) == {}
