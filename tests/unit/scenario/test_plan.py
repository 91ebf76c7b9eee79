from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.errors import InputError
from battlebrokers.scenario.nodes import AwayPlan, FilterPlan, TlsPlan, WillPlan
from battlebrokers.scenario.plan import Plan, build_plan
from battlebrokers.scenario.reader import load_scenario, read_scenario
from battlebrokers.scenario.resolve import settled
from battlebrokers.scenario.topics import dice_seed
from battlebrokers.secrets import Secret
from support.examples import examples

TEXT = """\
name: small
seed: 7
fleets:
  air: {devices: 5, topic: "a/{device}", payload: {random_bytes: 30}, every: 1s, qos: 1}
  wind:
    devices: 3
    category: weather
    topic: ["w/{category}/{index}", "w/{int:1..2}"]
    payload: {template: "{device}"}
    every: 1s..3s
clients:
  all: {count: 2, subscribe: ["a/#", "w/#"]}
  some: {count: 4, subscribe: "a/air-{int:1..5}", subscriptions: 2, qos: 1, share: crew}
phases: {connect: 10/s, warm_up: 2s, measure: 10s, cool_down: 1s, drain: 3s, quiet: 1s}
"""


def plan(*overrides: str, text: str = TEXT, **settings: object) -> Plan:
    return build_plan(read_scenario(text, "f", overrides).scenario, **settings)  # type: ignore[arg-type]


def test_devices_are_numbered_through_and_named_by_fleet() -> None:
    devices = list(plan().devices())
    assert [device.number for device in devices] == list(range(8))
    assert [device.name for device in devices[4:6]] == ["air-5", "wind-1"]
    assert devices[5].topics == ("w/weather/1", "w/1", "w/2")
    assert devices[0].topics == ("a/air-1",)
    assert (devices[0].qos, devices[5].qos) == (1, 0)
    assert devices[5].payload.variables == (("device", "wind-1"),)
    assert plan().device_count == 8


def test_clients_take_their_filters_in_turn() -> None:
    clients = list(plan().clients())
    assert [client.number for client in clients] == list(range(6))
    assert clients[0].subscriptions == (FilterPlan("a/#", 0, None), FilterPlan("w/#", 0, None))
    assert [[s.filter[-1] for s in client.subscriptions] for client in clients[2:]] == [
        ["1", "2"],
        ["3", "4"],
        ["5", "1"],
        ["2", "3"],
    ]
    assert clients[2].subscriptions[0] == FilterPlan("a/air-1", 1, "crew")
    assert {client.join_ns for client in clients} == {-1}
    assert plan().client_count == 6


@given(st.integers(1, 9))
@examples(9)
def test_shares_are_by_number_and_lose_nobody(of: int) -> None:
    whole = plan()
    for nodes in (whole.devices, whole.clients):
        parts = [list(nodes(share, of)) for share in range(of)]  # type: ignore[operator]
        assert all(node.number % of == share for share, part in enumerate(parts) for node in part)
        assert sorted(itertools.chain(*parts), key=lambda node: node.number) == list(nodes())  # type: ignore[operator]


def test_the_same_seed_gives_the_same_plan_byte_for_byte() -> None:
    assert plan().to_bytes() == plan().to_bytes()
    assert plan().sha256 == plan(seed=7).sha256
    assert plan().sha256 != plan(seed=8).sha256


def test_the_same_seed_gives_the_same_plan_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(TEXT)
    code = (
        "import sys; from battlebrokers.scenario.plan import build_plan; "
        "from battlebrokers.scenario.reader import load_scenario; "
        "print(build_plan(load_scenario(sys.argv[1]).scenario).sha256)"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code, str(path)],
            env={"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {plan().sha256}


def test_the_run_changes_client_ids_but_not_the_fingerprint() -> None:
    one, two = plan(run_id="one"), plan(run_id="two")
    assert one.sha256 == two.sha256 == plan().sha256
    ids = {node.connection.client_id for made in (one, two) for node in (*made.devices(), *made.clients())}
    assert len(ids) == 2 * 14


def test_default_client_ids_are_short_and_plain() -> None:
    made = plan("fleets.air.devices=0")
    assert all(
        re.fullmatch("[0-9a-zA-Z]{1,23}", node.connection.client_id) for node in (*made.devices(), *made.clients())
    )


def test_client_ids_by_pattern_or_at_random() -> None:
    made = plan("fleets.air.client_id=x-{fleet}-{index}", "clients.all.client_id=random 62 characters", run_id="r")
    assert [device.connection.client_id for device in made.devices()][:2] == ["x-air-1", "x-air-2"]
    ids = [client.connection.client_id for client in made.clients()][:2]
    assert all(re.fullmatch("[0-9a-zA-Z]{62}", client_id) for client_id in ids)
    assert len(set(ids)) == 2


def test_a_plan_crosses_a_process_boundary() -> None:
    made = plan(
        "fleets.air.away={at: 1s, for: 2s}", "fleets.wind.payload={random_bytes: [30, 4KiB]}", run_id="r", seed=9
    )
    again = Plan.from_message(made.to_message())
    assert again == made
    assert again.to_bytes() == made.to_bytes()
    assert list(again.devices()) == list(made.devices())


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"{}",
        b"\xff\x00",
        b"[1]",
        b'{"format": 2}',
        b'{"format": 1, "scenario": {}, "seed": 1, "run_id": ""}',
        b"null",
    ],
)
def test_a_message_that_is_no_plan_is_refused(message: bytes) -> None:
    with pytest.raises(InputError):
        Plan.from_message(message)


def test_phases_are_in_nanoseconds() -> None:
    phases = plan().phases
    assert phases.connect_per_s == 10
    assert (phases.warm_up_ns, phases.measure_ns, phases.load_ns) == (2_000_000_000, 10_000_000_000, 13_000_000_000)
    assert plan("phases.connect=null").phases.connect_per_s == 0


def test_alike_devices_take_turns_unless_told_otherwise() -> None:
    assert [device.pace.offset_ns for device in plan().devices()][:5] == [
        0,
        200_000_000,
        400_000_000,
        600_000_000,
        800_000_000,
    ]
    assert {device.pace.offset_ns for device in plan("defaults.staggered=false").devices()} == {0}


def test_joins_and_absences_are_spread_over_their_range() -> None:
    made = plan(
        "fleets.air.join=1s..6s",
        "clients.all.join=3s",
        "fleets.air.away={at: 5s..10s, for: 500ms, every: 5s, how: clean}",
    )
    devices = list(made.devices())
    assert [device.pace.start_ns // 10**9 for device in devices][:6] == [1, 2, 3, 4, 5, 0]
    assert devices[1].away == AwayPlan(6_000_000_000, 500_000_000, 5_000_000_000, abrupt=False)
    assert next(made.clients()).join_ns == 3_000_000_000


def test_a_connection_says_everything(tmp_path: Path) -> None:
    made = plan(
        "version=5",
        "transport=wss",
        "defaults={session: persistent, keep_alive: 5min, inflight: 10, receive_maximum: 5}",
        "fleets.air.topic_alias=true",
        "fleets.air.will={topic: 'gone/{device}', payload: bye, qos: 1, retain: true, delay: 3s}",
    )
    connection = next(made.devices()).connection
    assert (connection.protocol, connection.version, connection.transport) == ("mqtt", "5", "wss")
    assert (connection.clean, connection.session_expiry_s, connection.keep_alive_s) == (False, 3600, 300)
    assert (connection.inflight, connection.receive_maximum, connection.topic_alias) == (10, 5, True)
    assert connection.will == WillPlan("gone/air-1", "bye", 1, True, 3)
    assert connection.tls == TlsPlan(None, None, None, True)
    client = next(made.clients()).connection
    assert (client.topic_alias, client.will) == (False, None)


def test_a_persistent_session_of_311_has_no_expiry() -> None:
    connection = next(plan("defaults.session=persistent").devices()).connection
    assert (connection.clean, connection.session_expiry_s) == (False, 0)


def test_credentials_by_pattern_and_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BB_TEST_PASSWORD", "hush")
    made = plan("defaults.credentials={username: 'u-{fleet}-{index}', password: '{env:BB_TEST_PASSWORD}'}")
    connection = next(made.devices()).connection
    assert (connection.username, connection.password) == ("u-air-1", Secret("hush"))
    assert b"hush" not in made.to_bytes()
    assert b"hush" not in made.to_message()
    (tmp_path / "logins.csv").write_text("username,password,client_id\na,1,me\nb,2,\nc,,\nd,4,\ne,5,\n")
    (tmp_path / "small.yaml").write_text(TEXT)
    loaded = load_scenario(str(tmp_path / "small.yaml"), ["fleets.air.credentials.csv=logins.csv"])
    connections = [device.connection for device in build_plan(loaded.scenario, run_id="r").devices()]
    assert [(c.username, c.password and c.password.reveal()) for c in connections[:4]] == [
        ("a", "1"),
        ("b", "2"),
        ("c", None),
        ("d", "4"),
    ]
    assert connections[0].client_id == "me"
    assert connections[1].client_id.startswith("bb")


def test_nobody_is_a_plan_too() -> None:
    made = plan("fleets.air.devices=0", "fleets.wind.devices=0", "clients.all.count=0", "clients.some.count=0")
    assert (list(made.devices()), list(made.clients())) == ([], [])
    assert made.messages_per_s == made.deliveries_per_s == 0


def test_the_written_plan_is_one_json_line_per_node() -> None:
    lines = [json.loads(line) for line in plan().to_bytes().splitlines()]
    assert lines[0]["scenario"] == "small"
    assert [next(iter(line)) for line in lines[1:]] == ["device"] * 8 + ["client"] * 6


def test_estimates_add_up() -> None:
    estimate = plan().estimate
    assert estimate.connections == 14
    assert estimate.connect_ns == 1_400_000_000
    assert estimate.messages_per_s == pytest.approx(5 + 3 / 2)
    # air: two listen to all, and the crew's filters for that device (one group each); wind: two listen to all
    assert [fleet.listeners for fleet in estimate.fleets] == [3, 2]
    assert estimate.payload_bytes == pytest.approx((5 * 30 + 1.5 * (16 + 6)) / 6.5)
    assert estimate.duration_ns == 1_400_000_000 + 13_000_000_000 + 1_000_000_000


def test_estimates_know_limits_joins_and_small_payloads() -> None:
    assert plan("fleets.air.at_most=4").estimate.fleets[0].messages == 5 * 2
    assert plan("fleets.air.join=7s").estimate.fleets[0].messages == 5 * 5
    assert plan("fleets.air.payload={random_bytes: 4}").estimate.unstamped == ("air",)
    assert plan("fleets.air.every=ramp 0/s..10/s over 12s").estimate.fleets[0].messages == pytest.approx(
        5 * (60 - 10 / 12 * 2), rel=0.01
    )


def test_estimates_know_when_everybody_has_fallen_silent() -> None:
    limits = ["fleets.air.at_most=4", "fleets.wind.at_most=3", "phases.until_silent=true"]
    # air is silent after 4 s, wind (1s..3s) after 6 s: 4 s of measurement remain behind the warm-up.
    early = plan(*limits).estimate
    assert early.measure_ns == pytest.approx(4e9, abs=2)
    assert early.duration_ns == pytest.approx(1.4e9 + 6e9 + 1e9, abs=2)
    assert early.messages == pytest.approx(5 * 2 + 3 * 2)
    assert early.messages_per_s == pytest.approx(16 / 4)
    assert plan(*limits[:2]).estimate.duration_ns == plan().estimate.duration_ns
    assert plan(*limits, "fleets.air.at_most=1000").estimate.duration_ns == plan().estimate.duration_ns
    assert plan(*limits, "fleets.air.join=5s").estimate.duration_ns == pytest.approx(1.4e9 + 9e9 + 1e9, abs=2)
    at_once = plan("fleets.air.at_most=0", "fleets.wind.at_most=0", "phases.until_silent=true").estimate
    assert (at_once.measure_ns, at_once.duration_ns, at_once.messages_per_s) == (0, 2_400_000_000, 0)


def test_estimates_of_pairs_see_each_its_own() -> None:
    text = """\
name: pairs
fleets: {pub: {devices: 2000, topic: "p/{index}", payload: {random_bytes: 16}, every: 1s}}
clients: {sub: {count: 2000, subscribe: "p/{index}"}}
phases: {measure: 10s}
"""
    assert plan(text=text).deliveries_per_s == 2000


def test_what_does_not_speak_mqtt_has_no_version_or_transport_in_the_plan() -> None:
    mixed = plan("fleets.air.protocol=http", "version='5'", "defaults.retain=true")
    air = next(mixed.devices()).connection
    assert (air.protocol, air.version, air.transport) == ("http", "", "")
    assert not next(mixed.devices()).retain
    wind = list(mixed.devices())[-1]
    assert (wind.connection.protocol, wind.connection.version, wind.retain) == ("mqtt", "5", True)
    assert Plan.from_message(mixed.to_message()).to_bytes() == mixed.to_bytes()


def test_automatic_protocols_are_settled_per_side_and_leave_what_was_said_alone() -> None:
    scenario = read_scenario(
        TEXT, "f", ["protocol=auto", "clients.some.share=null", "fleets.wind.protocol=coap"]
    ).scenario
    chosen = build_plan(settled(scenario, "http", "mqtt"))
    assert {device.fleet: device.connection.protocol for device in chosen.devices()} == {"air": "http", "wind": "coap"}
    assert {(client.connection.protocol, client.connection.version) for client in chosen.clients()} == {
        ("mqtt", "3.1.1")
    }


def test_connections_take_their_source_addresses_in_turns() -> None:
    made = plan("defaults={source_addresses: [127.0.0.7, 127.0.0.8]}", "clients.all.source_addresses=127.0.0.9")
    sources = [device.connection.source_address for device in made.devices()]
    assert sources[:5] == ["127.0.0.7", "127.0.0.8", "127.0.0.7", "127.0.0.8", "127.0.0.7"]
    assert {client.connection.source_address for client in made.clients()} >= {"127.0.0.9", "127.0.0.7"}
    assert next(plan().devices()).connection.source_address is None
    with pytest.raises(InputError, match="no IP address"):
        plan("defaults={source_addresses: [my-machine]}")


def test_the_topics_of_a_protocols_devices_are_those_they_choose_from() -> None:
    text = TEXT.replace("    category: weather", "    category: weather\n    topic_choice: random")
    text = text.replace(
        "clients:", "  web: {devices: 2, topic: page, every: 1s, payload: {text: x}, protocol: http}\nclients:", 1
    )
    made = plan(text=text, seed=11, run_id="abc")
    told = {number: (topics, seed) for number, topics, seed in made.topics_over("mqtt")}
    devices = {device.number: device for device in made.devices()}
    assert set(told) == {number for number, device in devices.items() if device.connection.protocol == "mqtt"}
    assert set(devices) - set(told) == {8, 9}
    for number, (topics, seed) in told.items():
        device = devices[number]
        assert topics == device.topics
        assert seed == (dice_seed("random", device.seed) if len(topics) > 1 else -1)
