from __future__ import annotations

import pytest
from benchmarks.ours import PAYLOAD_BYTES, Evidence, Load

from battlebrokers.scenario.plan import build_plan
from battlebrokers.scenario.reader import read_scenario
from support.made_up_runs import make_run

__all__ = ["make_run"]


@pytest.mark.parametrize(
    "load",
    [
        Load(),
        Load(qos=1),
        Load(subscribers=0),
        Load(publishers=0),
        Load(publishers=1000, subscribers=1000, per_s=1234.5),
    ],
)
def test_a_load_is_a_valid_scenario_that_offers_what_it_says(load):
    plan = build_plan(read_scenario(load.scenario(), "bench").scenario)
    assert plan.device_count == load.publishers
    assert plan.client_count == load.subscribers
    if load.publishers:
        assert plan.messages_per_s == pytest.approx(load.per_s, rel=0.01)
        device = next(iter(plan.devices()))
        assert device.qos == load.qos
        assert device.payload.size.low == PAYLOAD_BYTES


def test_each_message_of_a_load_goes_to_exactly_one_subscriber():
    plan = build_plan(read_scenario(Load().scenario(), "bench").scenario)
    topics = [topic for device in plan.devices() for topic in device.topics]
    filters = [each.filter for client in plan.clients() for each in client.subscriptions]
    assert sorted(topics) == sorted(filters)
    assert len(set(topics)) == len(topics)


def test_cpu_time_per_message_needs_no_events_but_a_load_that_was_carried(make_run):
    folder = make_run(counters={"sent": 1000, "received": 1000}).lifelike(rate=20).write()
    told = Evidence(folder, folder.read_manifest(), [])
    # The made-up generator uses 30 % of a core, give or take a tenth: 300 ms for 1000 messages a second.
    assert told.cpu_us_at(1000.0) == pytest.approx(300, rel=0.1)
    folder = make_run(counters={"sent": 1000, "received": 900}).lifelike(rate=20).write()
    with pytest.raises(RuntimeError, match="carried 900 of 1,000"):
        Evidence(folder, folder.read_manifest(), []).cpu_us_at(1000.0)
