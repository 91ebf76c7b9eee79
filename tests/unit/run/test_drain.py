from __future__ import annotations

import pytest

from battlebrokers.clock import SECOND_NS
from battlebrokers.run.drain import is_drained
from battlebrokers.scenario.nodes import PhasesPlan

PHASES = PhasesPlan(0.0, 0, 10 * SECOND_NS, 0, drain_ns=5 * SECOND_NS, quiet_ns=2 * SECOND_NS)


def drained(waited_s: float, silent_s: float, *, open_acks: bool = False, phases: PhasesPlan = PHASES) -> bool:
    return is_drained(
        phases, waited_ns=int(waited_s * SECOND_NS), silent_ns=int(silent_s * SECOND_NS), open_acks=open_acks
    )


def test_it_ends_early_when_nothing_has_arrived_for_a_while_and_all_is_acknowledged():
    assert drained(2.0, 2.0)
    assert not drained(2.0, 1.9)
    assert not drained(1.0, 60.0), "silence counts from the end of the load on"
    assert not drained(3.0, 3.0, open_acks=True)


def test_a_silent_broker_is_waited_for_as_long_as_planned():
    assert not drained(4.9, 4.9, open_acks=True)
    assert drained(5.0, 5.0, open_acks=True)


@pytest.mark.parametrize("open_acks", [False, True])
def test_one_that_still_delivers_is_waited_for_up_to_ten_times_as_long(open_acks):
    assert not drained(5.0, 0.01, open_acks=open_acks)
    assert not drained(49.9, 1.9, open_acks=open_acks)
    assert drained(30.0, 2.0, open_acks=open_acks), "until it falls silent"
    assert drained(50.0, 0.0, open_acks=open_acks)


def test_a_drain_of_no_length_is_over_at_once():
    assert drained(0.0, 0.0, phases=PhasesPlan(0.0, 0, SECOND_NS, 0, drain_ns=0, quiet_ns=SECOND_NS))
