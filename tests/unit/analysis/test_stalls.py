"""A silence of the broker is named with its length, its second and the share of messages that waited in it."""

from __future__ import annotations

import numpy as np
import pytest

from battlebrokers import tables
from battlebrokers.analysis.conclusion import draw_conclusion
from battlebrokers.clock import SECOND_NS
from battlebrokers.tables.slots import SLOT_NS

LOAD_S = 37
"""Of a made-up run: warm-up, measure and cool-down."""


def arriving(run, planned_s, took_s, client_fleet="app"):
    """Add the slots of messages planned at these seconds of the load that took so long; infinite: never arrived."""
    load_start_ns = next(phase.start_ns for phase in run.phases() if phase.name == "warm_up")
    planned_ns = (np.asarray(planned_s) * SECOND_NS).astype(int)
    received_ns = [int(at + took * SECOND_NS) for at, took in zip(planned_ns, took_s, strict=True) if np.isfinite(took)]
    due: dict[int, int] = {}
    for at in planned_ns:
        due[int(at) // SLOT_NS] = due.get(int(at) // SLOT_NS, 0) + 1
    came: dict[int, list[int]] = {}
    for at in received_ns:
        came.setdefault(at // SLOT_NS, []).append(at + load_start_ns)
    for slot in sorted({*due, *came}):
        here = came.get(slot, [])
        run.add(
            tables.SLOTS,
            slot=slot, client_fleet=client_fleet, planned=due.get(slot, 0), sent=due.get(slot, 0), arrived=len(here),
            first_ns=min(here, default=None), last_ns=max(here, default=None),
        )  # fmt: skip
    return run


def stalled(planned_s, begin_s, end_s, usual_s=0.002):
    """How long each takes if nothing is delivered between two moments."""
    arrival = planned_s + usual_s
    return np.where((arrival > begin_s) & (arrival < end_s), end_s - planned_s, usual_s)


def told(run):
    return [finding.sentence for finding in draw_conclusion(run.write()).findings if finding.id == "stall"]


EVERY_10_MS = np.arange(0, LOAD_S, 0.01)


def test_a_stall_is_named_to_a_fraction_of_a_second(make_run):
    run = arriving(make_run().healthy(), EVERY_10_MS, stalled(EVERY_10_MS, 9.25, 10.35))
    assert told(run) == ["Nothing arrived for 1.11 s at second 9; 2.97 % of the messages waited in it."]


def test_a_stall_is_told_instead_of_a_long_tail(make_run):
    run = make_run().healthy(0)
    took_s = stalled(EVERY_10_MS, 9.25, 10.35)
    run.latency("response", 1000 * took_s, second=EVERY_10_MS.astype(int))
    run.ledger(expected=len(took_s), delivered=len(took_s))
    run.publishing(planned=len(took_s), sent=len(took_s), acked=len(took_s))
    ids = [finding.id for finding in draw_conclusion(arriving(run, EVERY_10_MS, took_s).write()).findings]
    assert "stall" in ids
    assert "long-tail" not in ids


def test_a_broker_that_is_silent_to_the_end_is_told_as_such(make_run):
    took_s = np.where(EVERY_10_MS > 30, np.inf, 0.002)
    (sentence,) = told(arriving(make_run().healthy(), EVERY_10_MS, took_s))
    assert sentence.startswith("Nothing arrived any more from second 30 on, 7 s before the load ended; 18.")


@pytest.mark.parametrize(
    "planned_s",
    [
        np.repeat(np.arange(0, LOAD_S, 1.0), 50),
        np.arange(0, LOAD_S, 0.6),
        EVERY_10_MS,
    ],
    ids=["a burst each second", "hardly any messages", "a steady flow"],
)
def test_the_plans_own_silences_are_no_stalls(make_run, planned_s):
    assert told(arriving(make_run().healthy(), planned_s, np.full(len(planned_s), 0.002))) == []


def test_clients_that_are_away_or_read_slowly_on_purpose_stall_nobody(make_run):
    run = make_run(resolved={"clients": {"slow": {"reads": "10/s"}}}).healthy()
    assert told(arriving(run, EVERY_10_MS, stalled(EVERY_10_MS, 5, 15), "slow")) == []


def test_a_run_in_which_nothing_ever_arrived_has_no_stall(make_run):
    assert told(arriving(make_run().healthy(), EVERY_10_MS, np.full(len(EVERY_10_MS), np.inf))) == []
    assert told(make_run().healthy()) == []
