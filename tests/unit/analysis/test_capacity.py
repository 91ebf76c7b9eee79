"""Known queues, second by second: which of them are an overload, and since when."""

from __future__ import annotations

import math

import pytest

from battlebrokers.analysis.capacity import broker_behind, find_overload
from battlebrokers.analysis.conclusion import draw_conclusion
from battlebrokers.analysis.facts import read_facts


def loaded(make_run, queued, arrived, planned=None, sent=None, **values):
    """A run of so many seconds with this queue at the end of each, and these arrivals in each."""
    made = make_run(warm_up_s=0, measure_s=len(queued), cool_down_s=0, **values)
    planned = planned or arrived
    for second, (waiting, came) in enumerate(zip(queued, arrived, strict=True)):
        made.moment(second, "measure", "publish", "air", (sent or planned)[second], (100, 130), planned[second], 0)
        made.moment(second, "measure", "deliver", "app", came, (100, 130), 0, waiting)
    return made


def overload(made):
    return find_overload(read_facts(made.write()))


def test_a_queue_that_grows_to_the_end_is_an_overload_since_its_first_second(make_run):
    queued = [0, 2, 1, *(500 * (n + 1) for n in range(7))]
    found = overload(loaded(make_run, queued, [1000] * 10, planned=[1000] * 3 + [1500] * 7))
    assert found is not None
    assert (found.since, found.queued) == (3, 3500)
    assert (found.offered_per_s, found.delivered_per_s) == (pytest.approx(1500, rel=0.001), 1000)


def test_messages_the_broker_does_not_take_are_part_of_its_queue(make_run):
    found = overload(loaded(make_run, [1] * 10, [600] * 10, planned=[1000] * 10, sent=[600] * 10))
    assert found is not None
    assert (found.since, found.queued) == (0, 4001)


@pytest.mark.parametrize(
    ("queued", "arrived"),
    [
        ([3] * 10, [1000] * 10),
        ([2000] * 10, [1000] * 10),
        ([0, 0, 1500, 3000, 2000, 1000, 0, 0, 0, 0], [1000] * 10),
        ([0] * 8 + [1000, 2000], [1000] * 10),
        ([0, 0, *(1000 * n for n in range(1, 9))], [1000, 1000] + [0] * 8),
        ([0] * 10, [0] * 10),
    ],
    ids=["up to date", "long but steady", "caught up", "a burst at the end", "stalled", "nobody listens"],
)
def test_other_queues_are_none(make_run, queued, arrived):
    assert overload(loaded(make_run, queued, arrived)) is None


@pytest.mark.parametrize("key", ["reads", "away"])
def test_what_waits_for_clients_that_are_slow_or_away_on_purpose_is_none(make_run, key):
    queued = [500 * n for n in range(10)]
    made = loaded(make_run, queued, [1000] * 10, resolved={"clients": {"app": {key: "5/s"}}})
    assert overload(made) is None


def test_an_overload_is_a_finding(make_run):
    made = make_run(warm_up_s=0, measure_s=10, cool_down_s=0).healthy()
    for row in made.rows["timeline"]:
        if row["side"] == "deliver":
            row["queued"] = 400 * row["second"]
    found = {finding.id: finding for finding in draw_conclusion(made.write()).findings}
    assert found["over-capacity"].severity == "warning"
    assert "over its capacity since second 1" in found["over-capacity"].sentence


def test_where_others_used_the_machine_the_broker_is_not_blamed_for_an_overload(make_run):
    made = make_run(warm_up_s=0, measure_s=10, cool_down_s=0, host={"cpu_cores": 2}).healthy()
    made.service("host", "host", 50.0, cpu_mean_percent=190.0)
    made.rows["services"] = [row for row in made.rows["services"] if row["cpu_mean_percent"] != 50.0]
    for row in made.rows["timeline"]:
        if row["side"] == "deliver":
            row["queued"] = 400 * row["second"]
    found = {finding.id: finding.sentence for finding in draw_conclusion(made.write()).findings}
    assert found["over-capacity"].startswith("Less arrived than was offered since second 1")
    assert "while others used 60 % of the machine" in found["over-capacity"]


def test_what_slow_readers_left_is_told_as_theirs_and_not_as_lost(make_run):
    made = make_run(drain_s=4, resolved={"clients": {"app": {"reads": "5/s"}}}).healthy()
    made.ledger(phase="measure", expected=500, overdue=500, qos=0)
    made.latency("response", [math.inf] * 500, second=6)
    found = {finding.id: finding.sentence for finding in draw_conclusion(made.write()).findings}
    assert "500 deliveries were not in time, because clients that read slowly" in found["slow-readers"]
    assert "behind" not in found
    assert "did not arrive before the drain ended" in found["infinite"]


def test_what_was_overdue_is_told_in_messages_and_in_seconds_at_the_rate_of_the_drain(make_run):
    made = make_run(drain_s=4).healthy()
    made.ledger(phase="measure", expected=500, overdue=500, qos=0)
    made.ledger(phase="cool_down", expected=100, overdue=100, qos=0)
    made.moment(40, "drain", "deliver", "app", 800, (100, 130), 0, 600)
    behind = broker_behind(read_facts(made.write()))
    assert behind is not None
    assert (behind.messages, behind.seconds) == (600, 3.0)
    sentences = {finding.id: finding.sentence for finding in draw_conclusion(made.write()).findings}
    assert sentences["behind"].endswith("The broker was 600 messages, about 3 s behind.")


def test_what_waits_for_slow_readers_does_not_put_the_broker_behind(make_run):
    made = make_run(resolved={"clients": {"app": {"reads": "5/s"}}}).healthy()
    made.ledger(expected=500, overdue=500)
    conclusion = draw_conclusion(made.write())
    assert conclusion.summary.messages.overdue == 500
    assert "behind" not in {finding.id for finding in conclusion.findings}
    assert not [one for one in conclusion.summary.expectations if "before the drain ends" in one.text]


@pytest.mark.parametrize(("qos", "verdict"), [(0, "PASS"), (1, "FAIL"), (2, "FAIL")])
def test_at_qos_1_and_2_overdue_fails_a_run_and_at_qos_0_nothing_was_promised(make_run, qos, verdict):
    made = make_run().healthy()
    made.ledger(expected=500, overdue=500, qos=qos)
    summary = draw_conclusion(made.write()).summary
    assert summary.verdict == verdict
    promises = [one for one in summary.expectations if one.source == "promise" and one.ok is False]
    assert [one.text for one in promises] == (
        ["QoS 1 and 2: every message arrives before the drain ends"] if qos else []
    )


def test_who_says_how_much_may_be_overdue_decides(make_run):
    made = make_run(expect=["overdue < 20%"]).healthy()
    made.ledger(expected=500, overdue=500)
    assert draw_conclusion(made.write()).summary.verdict == "PASS"


def test_the_delivered_rate_is_what_arrived_in_the_measure_phase(make_run):
    made = make_run(measure_s=30)
    made.healthy(n=3000)
    made.rows["ledger"][0] |= {"in_measure": 2100, "in_measure_bytes": 210_000}
    made.ledger(phase="warm_up", expected=50, delivered=50, in_measure=30, in_measure_bytes=3000)
    rates = draw_conclusion(made.write()).summary.rates
    assert (rates.sent, rates.delivered, rates.goodput_bytes) == (100, 71, 7100)
