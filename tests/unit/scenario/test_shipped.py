from __future__ import annotations

from collections import Counter

import pytest

from battlebrokers.pacing.schedule import Schedule
from battlebrokers.scenario.plan import build_plan
from battlebrokers.scenario.reader import load_scenario
from battlebrokers.scenario.shipped import scenario_folder, shipped_path, shipped_scenarios
from battlebrokers.scenario.tiny import tiny_overrides
from battlebrokers.units import parse_duration_ns

MQTTBS = {
    "singlenode-conn-tcp-10K-100": (0, 10_000, 0, 0),
    "singlenode-fanout-1-1K-1-1K": (1, 1_000, 1, 1_000),
    "singlenode-p2p-1K-1K-1K-1K": (1_000, 1_000, 1_000, 1_000),
    "singlenode-sharedsub-1K-5-1K-1K": (1_000, 5, 1_000, 1_000),
    "singlenode-conn-tcp-1M-5K": (0, 1_000_000, 0, 0),
    "singlenode-fanout-5-1000-5-250K": (5, 1_000, 250, 250_000),
    "singlenode-p2p-50K-50K-50K-50K": (50_000, 50_000, 50_000, 50_000),
    "singlenode-sharedsub-50K-500-50K-50K": (50_000, 500, 50_000, 50_000),
}
OURS = {
    "smart-city", "one-to-one", "fan-in", "fan-out", "one-to-one-shared", "fan-in-shared", "fan-out-shared",
    "many-publishers-no-subscriber", "many-publishers-one-subscriber", "few-publishers-many-subscribers",
    "thesis-baseline", "retained", "persistent-offline", "reconnect-storm", "slow-subscriber",
    "middleware-small", "middleware-large", "network-small",
}  # fmt: skip


def test_everything_promised_is_shipped() -> None:
    assert set(shipped_scenarios()) == OURS | set(MQTTBS)


@pytest.mark.parametrize("name", shipped_scenarios())
def test_each_is_valid_named_after_its_file_and_expects_something(name: str) -> None:
    loaded = load_scenario(name)
    assert loaded.scenario.name == loaded.source == loaded.title == name
    assert len(loaded.scenario.about) > 20
    assert loaded.scenario.expect


@pytest.mark.parametrize("name", sorted(MQTTBS))
def test_the_benchmark_suite_is_what_its_names_say(name: str) -> None:
    scenario = load_scenario(name).scenario
    plan = build_plan(scenario)
    devices, clients, published, delivered = MQTTBS[name]
    assert (plan.device_count, plan.client_count) == (devices, clients)
    assert parse_duration_ns(scenario.phases.measure) == 1800 * 10**9
    assert plan.phases.warm_up_ns + plan.phases.measure_ns >= 1800 * 10**9
    first = next(plan.clients())
    assert (first.connection.keep_alive_s, first.connection.clean, first.connection.transport) == (300, True, "tcp")
    assert first.connection.version == ("5" if "sharedsub" in name else "3.1.1")
    if devices <= 1000:
        assert plan.messages_per_s == pytest.approx(published)
        assert plan.deliveries_per_s == pytest.approx(delivered)
    if devices:
        device = next(plan.devices())
        assert (device.qos, device.retain, device.payload.size.low) == (1, False, 16)  # type: ignore[union-attr]
        assert {subscription.qos for subscription in first.subscriptions} == {1}
    if "sharedsub" in name:
        assert [(s.share, s.filter) for s in first.subscriptions] == [("benchmark", "test/#")]
        assert device.topics == ("test/1",)


def test_a_scaled_benchmark_says_so_in_its_title() -> None:
    assert (
        load_scenario("singlenode-p2p-50K-50K-50K-50K", [], 0.01).title
        == "singlenode-p2p-50K-50K-50K-50K at scale 0.01"
    )


def test_the_thesis_baseline_is_a_thousand_messages_all_of_them_measured() -> None:
    plan = build_plan(load_scenario("thesis-baseline").scenario)
    [device] = plan.devices()
    assert (device.at_most, plan.phases.warm_up_ns, plan.estimate.messages, plan.estimate.payload_bytes) == (
        1000,
        0,
        1000,
        30,
    )


@pytest.mark.parametrize("name", sorted(OURS))
def test_ours_are_content_with_mqtt_311_and_qos_1(name: str) -> None:
    plan = build_plan(load_scenario(name).scenario)
    assert {node.connection.version for node in (*plan.devices(), *plan.clients())} == {"3.1.1"}
    assert max(device.qos for device in plan.devices()) <= 1
    assert name.startswith("middleware") or plan.estimate.duration_ns < 60 * 10**9


@pytest.mark.parametrize("name", shipped_scenarios())
def test_each_can_be_tiny(name: str) -> None:
    whole = load_scenario(name)
    tiny = load_scenario(name, tiny_overrides(whole.scenario))
    plan = build_plan(tiny.scenario)
    assert plan.estimate.duration_ns <= 2.5e9
    assert plan.estimate.connections <= 40
    assert plan.messages_per_s <= 1000
    assert tiny.scenario.fleets.keys() == whole.scenario.fleets.keys()
    if whole.scenario.fleets:
        assert plan.estimate.messages >= 4
    if build_plan(whole.scenario).estimate.clients < 50_000:
        assert bool(plan.deliveries_per_s) == bool(build_plan(whole.scenario).deliveries_per_s)


def test_tiny_keeps_the_expectations_that_hold_at_any_size() -> None:
    whole = load_scenario("thesis-baseline").scenario
    tiny = load_scenario("thesis-baseline", tiny_overrides(whole)).scenario
    assert [text for text in whole.expect if text not in tiny.expect] == ["sent == 1000"]


def test_the_readme_names_every_scenario() -> None:
    text = (scenario_folder() / "README.md").read_text(encoding="utf-8")
    assert [name for name in shipped_scenarios() if f"]({name}.yaml)" not in text] == []


def test_only_our_names_are_names() -> None:
    assert shipped_path("../pyproject") is None
    assert shipped_path("smart-city") is not None


@pytest.mark.parametrize(("name", "payload_bytes"), [("middleware-small", 22), ("middleware-large", 10_012)])
@pytest.mark.parametrize(("scale", "publishes"), [(1.0, 20_000), (0.01, 200)])
def test_middlewares_get_so_many_publishes_at_no_more_than_a_hundred_a_second(
    name: str, payload_bytes: int, scale: float, publishes: int
) -> None:
    plan = build_plan(load_scenario(name, scale=scale).scenario)
    assert plan.until_silent
    times_ns: list[int] = []
    for device in plan.devices():
        schedule = Schedule(device.pace, device.seed, device.at_most, plan.phases.load_ns)
        times_ns += schedule.take(plan.phases.load_ns, 10**6).tolist()
        assert len(device.topics) == len({*device.topics}) == 4
        assert device.payload.size.high == payload_bytes  # type: ignore[union-attr]
        assert device.connection.protocol == "auto"
    assert len(times_ns) == publishes
    assert max(Counter(at_ns // 10**9 for at_ns in times_ns).values()) <= 100
