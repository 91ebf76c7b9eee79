from __future__ import annotations

from pathlib import Path

import pytest

from battlebrokers.contenders.availability import Available
from battlebrokers.contenders.offers import offers_of
from battlebrokers.contenders.reader import load_contenders
from battlebrokers.errors import InputError
from battlebrokers.protocols.registry import capabilities_of, protocol_names
from battlebrokers.run import fitness
from battlebrokers.run.fitness import lowered_qos, protocols_of, refuse_what_cannot_be_honoured, settled_for
from battlebrokers.run.team_size import suggest_processes
from battlebrokers.scenario.model import Scenario
from battlebrokers.scenario.plan import build_plan
from battlebrokers.scenario.reader import load_scenario, read_scenario
from battlebrokers.scenario.resolve import OF_MQTT, strange_to

SCENARIO = """\
name: small
fleets:
  air: {devices: 2, topic: "a/{device}", payload: {random_bytes: 30}, every: 1s}
clients:
  all: {count: 2, subscribe: "a/#"}
phases: {measure: 10s}
"""
BRIDGE = """\
name: bridge
about: Takes messages over HTTP and gives them over MQTT.
run: {external: true}
ports: {mqtt: 1883, http: 3000}
endpoints: {tcp: "mqtt://${host}:${port.mqtt}", http: "http://${host}:${port.http}"}
speak:
  http: {publish: {put: "/resources/${topic}", text: "${payload}"}}
"""


@pytest.fixture
def bridge(tmp_path: Path) -> str:
    (tmp_path / "bridge.yaml").write_text(BRIDGE)
    return str(tmp_path / "bridge.yaml")


def scenario(*overrides: str) -> Scenario:
    return read_scenario(SCENARIO, "f", overrides).scenario


def test_an_open_protocol_is_http_where_it_can_be_and_what_the_broker_offers_where_not(bridge: str) -> None:
    chosen = settled_for(scenario("protocol=auto"), bridge)
    assert protocols_of(chosen) == {"air": "http", "all": "mqtt"}
    refuse_what_cannot_be_honoured(chosen, bridge)
    refuse_what_cannot_be_honoured(scenario("protocol=auto"), bridge)
    by_url = settled_for(scenario("protocol=auto"), "amqp://127.0.0.1")
    assert protocols_of(by_url) == {"air": "amqp", "all": "amqp"}


def test_an_open_protocol_has_the_highest_qos_that_publisher_and_listener_offer(bridge: str, tmp_path: Path) -> None:
    def told(broker: str, *overrides: str) -> dict[str, str]:
        asked = scenario("protocol=auto", *overrides)
        refuse_what_cannot_be_honoured(asked, broker)
        return lowered_qos(asked, settled_for(asked, broker))

    assert told(bridge, "fleets.air.qos=1", "clients.all.qos=0") == {"air": "0 instead of 1"}
    Path(bridge).write_text(BRIDGE + "capabilities: {qos: 2}\n")
    assert told(bridge, "defaults.qos=1") == {}
    assert told(bridge, "defaults.qos=2") == {"air": "1 instead of 2", "all": "1 instead of 2"}
    assert told("mqtt://127.0.0.1", "defaults.qos=2") == {}
    assert told("udp://127.0.0.1:9", "defaults.qos=1") == {"air": "0 instead of 1", "all": "0 instead of 1"}
    with pytest.raises(InputError, match="air asks for QoS 2, http knows"):
        refuse_what_cannot_be_honoured(scenario("protocol=auto", "defaults.qos=2", "fleets.air.protocol=http"), bridge)


@pytest.mark.parametrize("name", ["middleware-small", "middleware-large"])
def test_every_shipped_middleware_can_honour_the_middleware_scenarios(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(fitness, "availability", lambda _: Available("9", "", {}))
    asked = load_scenario(name).scenario
    # The network broker has a dialect too, but takes nothing that is larger than a datagram.
    dialects = {
        each.name: {key for key, offer in offers_of(each).items() if offer.scripted} for each in load_contenders()
    }
    middlewares = [each for each in load_contenders() if dialects[each.name] - {"udp"}]
    assert {"acme-onem2m", "acme-onem2m-mqtt", "om2m", "fiware-orion", "ponte"} < {each.name for each in middlewares}
    for each in middlewares:
        refuse_what_cannot_be_honoured(asked, each.name)
        told = lowered_qos(asked, settled_for(asked, each.name))
        if set(protocols_of(settled_for(asked, each.name)).values()) != {"mqtt"} or each.capabilities.qos:
            assert told == {}, each.name
        else:
            assert told == {"sensors": "0 instead of 1", "dashboard": "0 instead of 1"}, each.name


def test_what_was_said_is_not_chosen_again(bridge: str) -> None:
    said = scenario("protocol=mqtt")
    assert settled_for(said, bridge) is said
    assert protocols_of(settled_for(scenario("fleets.air.protocol=auto"), bridge)) == {"air": "http", "all": "mqtt"}


def test_nothing_to_subscribe_over_is_told(tmp_path: Path) -> None:
    deaf = BRIDGE.replace('tcp: "mqtt://${host}:${port.mqtt}", ', "").replace("mqtt: 1883, ", "")
    (tmp_path / "bridge.yaml").write_text(deaf)
    with pytest.raises(InputError, match="offers no protocol to subscribe over"):
        settled_for(scenario("protocol=auto"), str(tmp_path / "bridge.yaml"))


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["protocol=coap"], "air speaks coap, it offers http and mqtt"),
        (["protocol=http"], "all subscribes over http, its file says nothing of that"),
        (["transport=ws"], "air connects over ws, started here it offers tcp"),
        (["version='5'"], "air speaks MQTT 5, it speaks 3.1.1"),
        (["fleets.air.protocol=http", "fleets.air.qos=2"], "air asks for QoS 2, http knows"),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_the_reason(bridge: str, overrides: list[str], reason: str) -> None:
    with pytest.raises(InputError) as caught:
        refuse_what_cannot_be_honoured(scenario(*overrides), bridge)
    assert reason in caught.value.message


DIALECT = """\
name: hub
about: Speaks MQTT in its own way.
run: {external: true}
ports: {mqtt: 1883}
endpoints: {tcp: "mqtt://${host}:${port.mqtt}"}
capabilities: {qos: 1, shared: true}
speak:
  mqtt:
    publish: {publish: "in/${topic}", json: {data: "${payload}"}}
    subscribe: {steps: {subscribe: "out/${filter}"}, wildcards: true}
    notification: {payload: $.data}
"""


def test_what_a_dialect_has_no_words_for_is_refused_with_all_reasons(tmp_path: Path) -> None:
    (tmp_path / "hub.yaml").write_text(DIALECT)
    hub = str(tmp_path / "hub.yaml")
    refuse_what_cannot_be_honoured(scenario("fleets.air.qos=1"), hub)
    asked = scenario("clients.all.share=group", "clients.all.session=persistent", "fleets.air.qos=2")
    with pytest.raises(InputError) as caught:
        refuse_what_cannot_be_honoured(asked, hub)
    for reason in (
        "all wants persistent sessions, and there are none over mqtt in its dialect",
        "all wants shared subscriptions, and there are none over mqtt in its dialect",
        "air asks for QoS 2, it honours up to 1",
    ):
        assert reason in caught.value.message


def test_what_is_larger_than_a_contender_takes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hub.yaml").write_text(DIALECT.replace("  mqtt:\n", "  mqtt:\n    largest_payload_bytes: 29\n"))
    with pytest.raises(InputError, match="air sends up to 30 bytes, over mqtt it takes 29 in one message"):
        refuse_what_cannot_be_honoured(scenario(), str(tmp_path / "hub.yaml"))


def test_publishers_and_subscribers_may_speak_different_protocols(bridge: str) -> None:
    refuse_what_cannot_be_honoured(scenario("fleets.air.protocol=http"), bridge)
    with pytest.raises(InputError, match="all subscribes over http"):
        refuse_what_cannot_be_honoured(scenario("clients.all.protocol=http"), bridge)


DEAF = """\
name: deaf
about: Tells over CoAP what came over CoAP, and nothing else.
run: {external: true}
ports: {mqtt: 1883, coap: 5683}
endpoints: {tcp: "mqtt://${host}:${port.mqtt}", coap: "coap://${host}:${port.coap}"}
speak:
  coap:
    publish: {put: "/r/${topic}", text: "${payload}"}
    subscribe: {way: observe, fetch: {get: "/r/${topic}"}, deaf_to: {mqtt: it keeps nothing}}
"""


@pytest.mark.parametrize("wanted", ["a/#", "#", "a/+", "+/{client}", "a/one"])
def test_clients_that_would_wait_in_vain_for_another_protocol_are_refused(tmp_path: Path, wanted: str) -> None:
    (tmp_path / "deaf.yaml").write_text(DEAF)
    asked = scenario("clients.all.protocol=coap", f"clients.all.subscribe={wanted}")
    with pytest.raises(InputError, match="all would not hear air: it keeps nothing"):
        refuse_what_cannot_be_honoured(asked, str(tmp_path / "deaf.yaml"))
    refuse_what_cannot_be_honoured(
        scenario("clients.all.protocol=coap", f"clients.all.subscribe={wanted}", "fleets.air.protocol=coap"),
        str(tmp_path / "deaf.yaml"),
    )


@pytest.mark.parametrize("wanted", ["b/#", "b/+", "a/one/two", "a"])
def test_clients_of_other_topics_may_speak_what_hears_nothing_of_another_protocol(tmp_path: Path, wanted: str) -> None:
    (tmp_path / "deaf.yaml").write_text(DEAF)
    asked = scenario("clients.all.protocol=coap", f"clients.all.subscribe={wanted}")
    refuse_what_cannot_be_honoured(asked, str(tmp_path / "deaf.yaml"))


def test_a_url_of_another_protocol_is_refused() -> None:
    refuse_what_cannot_be_honoured(scenario("protocol=amqp"), "amqp://127.0.0.1")
    with pytest.raises(InputError, match=r"air speaks mqtt, its URL says coap"):
        refuse_what_cannot_be_honoured(scenario(), "coap://127.0.0.1")


def test_in_memory_a_scenario_speaks_whatever_it_says_over_the_loopback() -> None:
    said = scenario("fleets.air.protocol=http", "clients.all.protocol=auto")
    assert protocols_of(settled_for(said, "loopback://")) == {"air": "loopback", "all": "loopback"}
    refuse_what_cannot_be_honoured(said, "loopback://", 1)
    for overrides, processes, reason in (
        (["transport=tls"], 0, "air connects over tls, and in memory there is none"),
        (["defaults.retain=true"], 0, "air wants retained messages, and there are none over loopback"),
        ([], 2, "2 engine processes have 2 memories"),
    ):
        with pytest.raises(InputError, match=reason):
            refuse_what_cannot_be_honoured(scenario(*overrides), "loopback://", processes)


def test_a_scenario_of_the_loopback_needs_no_more_than_one_process() -> None:
    many = scenario("fleets.air.devices=100000", "fleets.air.every=10/s", "protocol=loopback")
    assert suggest_processes(build_plan(many), 8) == 1
    assert suggest_processes(build_plan(scenario("fleets.air.devices=100000", "fleets.air.every=10/s")), 8) > 1


@pytest.mark.parametrize("protocol", [name for name in protocol_names() if name != "mqtt"])
def test_keys_of_mqtt_are_mistakes_exactly_where_no_link_honours_them(protocol: str) -> None:
    able = capabilities_of(protocol)
    honoured = {
        "retain": able.retain, "will": able.will, "session": able.persistent_session, "share": able.shared_subscription,
    }  # fmt: skip
    assert set(honoured) <= set(OF_MQTT)
    assert {key for key, can in honoured.items() if not can} == set(honoured) & set(strange_to(protocol))


@pytest.mark.parametrize(
    ("url", "overrides", "reason"),
    [
        ("amqp://127.0.0.1", ["protocol=amqp", "fleets.air.qos=2"], "air asks for QoS 2, amqp knows 0 and 1"),
        ("http://127.0.0.1", ["protocol=http"], "all subscribes, and nothing can be received over http"),
        ("udp://127.0.0.1:9", ["protocol=udp", "fleets.air.payload.random_bytes=70000"], "70000 bytes, udp takes"),
    ],
)
def test_the_limits_of_our_links_hold_for_a_broker_given_by_url(url: str, overrides: list[str], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        refuse_what_cannot_be_honoured(scenario(*overrides), url)
