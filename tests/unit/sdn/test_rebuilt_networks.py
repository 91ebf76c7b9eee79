"""The broker's mind when a switch calls that has an old one's number but is another: nothing old is believed of it."""

from __future__ import annotations

from battlebrokers.sdn.core import broker
from battlebrokers.sdn.core.broker import OPEN_VSWITCH, State
from battlebrokers.sdn.core.instructions import Tables
from battlebrokers.sdn.core.network import Host, Network, Port
from battlebrokers.sdn.core.resources import Directory
from battlebrokers.sdn.openflow.introduction import serial_number
from battlebrokers.sdn.store import remembered

PORTS = frozenset({1, 2, 3})


def host(number: int, at: Port) -> Host:
    return Host(f"00:00:00:00:00:{number:02x}", f"10.0.0.{number}", at)


def built(serials: dict[int, str]) -> State:
    """A chain of switches with a host at port 1 of each, as one lab with these serial numbers."""
    state = State(b"secret")
    for switch, serial in serials.items():
        state, _ = broker.switch_joined(state, switch, PORTS, Tables(), OPEN_VSWITCH, serial)
        state, _ = broker.settled(state)
    network = state.network
    for switch in serials:
        network = network.with_host(host(switch, Port(switch, 1)))
        if switch + 1 in serials:
            network = network.with_link(Port(switch, 3), Port(switch + 1, 2))
    return State(b"secret", network=network, skills=state.skills, known=state.known)


def left(state: State) -> State:
    for switch in list(state.known):
        state, _ = broker.switch_left(state, switch)
    return state


def joined(state: State, switch: int, serial: str) -> State:
    return broker.switch_joined(state, switch, PORTS, Tables(), OPEN_VSWITCH, serial)[0]


def test_a_switch_that_is_back_finds_its_hosts_where_they_were() -> None:
    state = joined(left(built({1: "a", 2: "a"})), 1, "a")
    assert set(state.network.hosts.values()) == {host(1, Port(1, 1)), host(2, Port(2, 1))}


def test_one_without_a_serial_number_is_taken_for_the_one_of_before() -> None:
    state = joined(left(built({1: "", 2: ""})), 1, "")
    assert len(state.network.hosts) == 2
    assert state.network.serials == {}


def test_the_first_switch_of_another_lab_ends_what_is_known_of_the_whole_old_one() -> None:
    state = joined(left(built({1: "a", 2: "a", 3: "a"})), 1, "b")
    assert state.network.hosts == {}
    assert state.network.serials == {1: "b"}


def test_a_switch_that_was_replaced_alone_takes_no_others_along() -> None:
    state, _ = broker.switch_left(built({1: "a", 2: "a", 3: "c"}), 1)
    state = joined(state, 1, "b")
    assert set(state.network.hosts.values()) == {host(2, Port(2, 1)), host(3, Port(3, 1))}
    assert set(state.network.links) == {Port(2, 3), Port(3, 2)}


def test_a_replaced_switch_that_never_left_is_another_one_too() -> None:
    state = joined(built({1: "a", 2: "c"}), 1, "b")
    assert set(state.network.hosts.values()) == {host(2, Port(2, 1))}
    assert state.network.links == {}


def test_after_a_restart_nobody_waits_for_switches_of_a_lab_that_is_gone() -> None:
    before = built({1: "a", 2: "a", 3: "a"})
    network: Network = remembered(b"secret", Directory(), before.network).network
    assert network.serials == {1: "a", 2: "a", 3: "a"}
    state = State(b"secret", network=network, awaited=frozenset(network.ports))
    assert joined(state, 2, "a").awaited == {1, 3}
    assert joined(state, 2, "b").awaited == frozenset()


def test_serial_numbers_of_switches_nobody_knows_anything_of_are_forgotten() -> None:
    state = State(b"secret")
    for switch in range(1, 50):
        state = joined(state, switch, f"serial {switch}")
        state, _ = broker.switch_left(state, switch)
    assert len(state.network.serials) == 1


def test_what_open_vswitch_says_without_a_serial_number_is_none() -> None:
    assert [serial_number(said) for said in (b"None", b"", b"ab12", b"\xff")] == ["", "", "ab12", "�"]
