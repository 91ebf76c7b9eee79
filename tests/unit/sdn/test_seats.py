"""Who sits where: clients alone, devices together, all of them spread over the switches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.sdn.lab.topology import find_topology
from battlebrokers.sdn.seats import NoSeatError, Seats, UnknownSeatError
from support.examples import examples


def test_devices_share_a_host_of_each_switch_and_clients_have_the_others() -> None:
    seats = Seats(find_topology("chain:4x16"))
    devices = [seats.take("device").host for _ in range(9)]
    assert [host.port.switch for host in devices] == [1, 2, 3, 4, 1, 2, 3, 4, 1]
    assert len(set(devices)) == 4
    clients = [seats.take("client").host for _ in range(60)]
    assert [host.port.switch for host in clients[:5]] == [1, 2, 3, 4, 1]
    assert len({host.mac for host in clients}) == 60
    assert not set(clients) & set(devices)


def test_when_seats_run_out_their_number_is_told_and_one_given_back_is_taken_again() -> None:
    seats = Seats(find_topology("chain:2x2"))
    first, _ = seats.take("client"), seats.take("client")
    with pytest.raises(NoSeatError, match="all 2 seats"):
        seats.take("client")
    assert seats.give_back(first.number) == first
    with pytest.raises(UnknownSeatError):
        seats.give_back(first.number)
    again = seats.take("client")
    assert again.host == first.host
    assert again.number != first.number


def test_a_lab_of_single_hosts_spares_one_for_devices() -> None:
    seats = Seats(find_topology("star:3x1"))
    assert len(seats.device_hosts) == 1
    assert len(seats.client_hosts) == 2


@examples(60)
@given(st.integers(1, 6), st.integers(0, 5), st.lists(st.sampled_from(["device", "client", "back"]), max_size=40))
def test_no_two_clients_ever_share_a_host_nor_sit_with_devices(switches: int, hosts: int, asked: list[str]) -> None:
    seats = Seats(find_topology(f"ring:{switches}x{hosts}"))
    for what in asked:
        if what == "back":
            if seats.taken:
                seats.give_back(next(iter(seats.taken)))
            continue
        try:
            seats.take(what)  # type: ignore[arg-type]
        except NoSeatError:
            clients = sum(seat.role == "client" for seat in seats.taken.values())
            assert clients == len(seats.client_hosts) or not seats.device_hosts
        clients_at = [seat.host for seat in seats.taken.values() if seat.role == "client"]
        assert len(set(clients_at)) == len(clients_at)
        assert not set(clients_at) & {seat.host for seat in seats.taken.values() if seat.role == "device"}
