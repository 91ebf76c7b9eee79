"""Packet ids and delivery states, without any socket."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.protocols.mqtt.session import LAST_ID, Flight, Session
from support.examples import examples


def flight(first_id: int, first_token: int, qos: int, payloads: tuple[bytes, ...] = (b"x",) * 9) -> Flight:
    return Flight(first_id, first_token, b"t", qos, False, payloads)


def launched(session: Session, count: int, qos: int, first_token: int = 0) -> list[int]:
    ids = []
    for run in session.take_ids(count):
        session.launch(flight(run.start, first_token + len(ids), qos, (b"x",) * len(run)), run)
        ids += run
    return ids


def test_ids_run_from_1_to_65535_and_begin_again():
    session = Session()
    assert session.take_ids(3) == [range(1, 4)]
    session.next_id = LAST_ID - 1
    assert session.take_ids(2) == [range(LAST_ID - 1, LAST_ID + 1)]
    assert session.take_id() == 1


def test_ids_at_the_end_are_used_before_the_numbers_begin_again():
    session = Session()
    session.next_id = LAST_ID
    assert session.take_ids(3) == [range(LAST_ID, LAST_ID + 1), range(1, 3)]


def test_ids_in_use_are_passed_over():
    session = Session()
    launched(session, 5, 1)
    session.acknowledge([2, 4])
    session.next_id = 1
    assert session.take_ids(4) == [range(2, 3), range(4, 5), range(6, 8)]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_whole_id_space_in_flight_is_possible(qos: int):
    session = Session()
    assert len(set(launched(session, LAST_ID, qos))) == LAST_ID
    assert session.free_ids() == 0


@examples(60)
@given(st.lists(st.tuples(st.integers(1, 9000), st.integers(0, 2**32)), max_size=30))
def test_ids_are_never_given_twice(steps: list[tuple[int, int]]):
    session = Session()
    in_use: set[int] = set()
    for count, draw in steps:
        count = min(count, session.free_ids())
        if count:
            taken = launched(session, count, 1)
            assert len(taken) == count
            assert in_use.isdisjoint(taken)
            assert all(0 < taken_id <= LAST_ID for taken_id in taken)
            in_use |= set(taken)
        gone = [packet_id for packet_id in in_use if (packet_id * 2654435761 + draw) % 3]
        if gone:
            session.acknowledge(gone)
        in_use -= set(gone)
        assert session.in_flight == len(in_use)


def test_acknowledgements_name_tokens_in_their_own_order():
    session = Session()
    launched(session, 4, 1, first_token=100)
    assert session.acknowledge([3, 1]) == [102, 100]
    assert session.acknowledge([2, 4]) == [101, 103]
    assert session.in_flight == 0


def test_unknown_repeated_and_mistaken_acknowledgements_are_counted_only():
    session = Session()
    launched(session, 2, 1, first_token=10)
    launched(session, 1, 2, first_token=50)
    assert session.acknowledge([1, 1, 77, 3]) == [10]
    assert session.ignored == 3
    assert sorted(session.unacked) == [2, 3]
    assert session.complete([3]) == []
    assert session.refuse(3, 1) == []
    session.receive([2])
    assert sorted(session.unacked) == [2, 3]
    assert session.ignored == 6


def test_qos_2_goes_through_receive_and_complete():
    session = Session()
    launched(session, 3, 2, first_token=7)
    session.receive([2, 1])
    assert list(session.released) == [2, 1]
    assert session.in_flight == 3
    session.receive([2])
    assert session.ignored == 0
    assert session.complete([1, 2]) == [7, 8]
    assert session.refuse(3, 2) == [9]
    assert session.in_flight == 0


def test_a_forgotten_session_owes_every_open_message_oldest_first():
    session = Session()
    launched(session, 4, 2)
    session.receive([1, 2])
    session.admit(9)
    session.forget()
    assert list(session.unacked) == [1, 2, 3, 4]
    assert not session.released
    assert session.admit(9)


def test_incoming_ids_are_admitted_once_until_released():
    session = Session()
    assert session.admit(5)
    assert not session.admit(5)
    assert not session.admit_all([6, 5])
    assert session.admit_all([6, 7])
    assert not session.admit_all([8, 8])
    session.release([5, 6, 7, 99])
    assert session.admit_all([5, 6, 7])


def test_a_session_that_sends_nothing_holds_nothing():
    one, other = Session(), Session()
    launched(one, 1, 1)
    assert not other.unacked
    other.receive([1])
    assert not one.released
    assert one.in_flight == 1


def test_a_flight_knows_its_payloads_by_id():
    rows = np.arange(6, dtype=np.uint8).reshape(3, 2)
    assert Flight(10, 0, b"t", 1, False, rows).payload(11) == b"\x02\x03"
    assert Flight(10, 0, b"t", 1, False, (b"a", b"b")).payload(11) == b"b"
