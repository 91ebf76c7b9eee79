from __future__ import annotations

import pytest
from benchmarks.ours import PAYLOAD_BYTES, Load

from battlebrokers.scenario.plan import build_plan
from battlebrokers.scenario.reader import read_scenario


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
