from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from battlebrokers.contenders.dialogue import registration_of, scripts_of
from battlebrokers.contenders.model import Model, facts_of
from battlebrokers.contenders.reader import find_contender, parse_contender
from battlebrokers.errors import InputError
from battlebrokers.scenario.model import Scenario
from battlebrokers.scenario.plan import build_plan
from battlebrokers.scenario.reader import read_scenario
from battlebrokers.scenario.topics import TopicChooser

CONTEXT = """\
name: context
about: Entities with attributes.
run: {external: true}
ports: {http: 3000}
endpoints: {http: "http://${host}:${port.http}"}
model: {attribute: last-level, resources: 2, attributes: 3, choose: round-robin}
register:
  resource: {post: "/entities/${resource}", keep: {number: $.number}}
  attribute: {post: "/entities/${resource}/${number}/${attribute}", keep: {handle: $.handle}}
  remove:
    attribute: {delete: "/attributes/${handle}"}
    resource: {delete: "/entities/${resource}/${number}"}
speak:
  http:
    publish: {patch: "/entities/${resource}", json: {"${attribute}": "${payload}"}}
    subscribe: {way: poll, steps: {post: /watch, json: {what: "${attribute}"}}, fetch: {get: "/news/${handle}"}}
"""
SCENARIO = """\
name: small
protocol: http
fleets:
  air: {devices: 2, topic: ["city/{device}", "town/{device}"], payload: {random_bytes: 30}, every: 1s}
clients:
  all: {count: 1, subscribe: "city/#"}
  some: {count: 1, subscribe: ["city/+", "town/air-2"]}
phases: {measure: 10s}
"""


def scenario(*overrides: str) -> Scenario:
    return read_scenario(SCENARIO, "f", overrides).scenario


def model() -> Model:
    found = parse_contender(CONTEXT, "context.yaml").model
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "attribute: last-level",
            "attribut: last-level",
            "model.attribut: is not a key here (did you mean `attribute`?)",
        ),
        ("last-level", "first-level", "model.attribute: Input should be 'last-level'"),
        ("resources: 2", "resources: 0", "model.resources: Input should be greater than or equal to 1"),
        ("resources: 2", "resources: 1001", "model.resources: Input should be less than or equal to 1000"),
        ("attributes: 3", "attributes: many", "model.attributes: Input should be a valid integer"),
        ("choose: round-robin", "choose: first", "model.choose: Input should be 'round-robin' or 'random'"),
        ("resources: 2, attributes: 3, ", "", "model: `choose` needs `resources` or `attributes` to choose from"),
    ],
)
def test_mistakes_in_a_model_are_told_with_their_line(old: str, new: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_contender(CONTEXT.replace(old, new), "context.yaml")
    assert f"context.yaml:6: {told}" in caught.value.message


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "/entities/${resource}/${number}/${attribute}",
            "/e/${atribute}",
            "9: register.attribute.post: ${atribute} is not",
        ),
        ('/entities/${resource}", keep', '/e/${topic}", keep', "8: register.resource.post: ${topic} is not known here"),
        ('/entities/${resource}", keep', '/e/${handle}", keep', "8: register.resource.post: ${handle} is not known"),
        (
            '{delete: "/entities/${resource}/${number}"}',
            '{delete: "/e/${handle}"}',
            "12: register.remove.resource.delete",
        ),
    ],
)
def test_a_resource_knows_no_topic_and_nothing_of_its_attributes(old: str, new: str, told: str) -> None:
    assert old in CONTEXT
    with pytest.raises(InputError) as caught:
        parse_contender(CONTEXT.replace(old, new), "context.yaml")
    assert f"context.yaml:{told}" in caught.value.message


def test_without_a_model_there_are_no_attributes() -> None:
    line = "model: {attribute: last-level, resources: 2, attributes: 3, choose: round-robin}\n"
    with pytest.raises(InputError) as caught:
        parse_contender(CONTEXT.replace(line, ""), "context.yaml")
    told = caught.value.message
    assert "context.yaml:8: register.attribute: there are no attributes without a `model`" in told
    assert "speak.http.publish.json.${attribute}: ${attribute} is not known here" in told


def test_the_last_level_is_the_attribute_and_the_rest_the_resource() -> None:
    assert facts_of("city/air-1/temperature") == {"resource": "city-air-1", "attribute": "temperature"}
    assert facts_of("a/b c/d.e") == {"resource": "a-b-c", "attribute": "d-e"}
    assert facts_of("alone") == {"resource": "alone", "attribute": "value"}
    assert facts_of("a/") == {"resource": "a", "attribute": "value"}


def test_every_topic_is_spread_and_every_client_hears_what_it_heard_before() -> None:
    before, after = build_plan(scenario(), run_id="r"), build_plan(model().spread(scenario()), run_id="r")
    assert len(after.matching.topics) == len(before.matching.topics) * 6
    assert "city/air-1/resource-2/attribute-3" in after.matching.topics
    for was, now in zip(before.clients(), after.clients(), strict=True):
        heard = {topic for each in was.subscriptions for topic in before.matching.matched_by(each.filter)}
        hears = {topic for each in now.subscriptions for topic in after.matching.matched_by(each.filter)}
        assert hears == {topic for topic in after.matching.topics if topic.rsplit("/", 2)[0] in heard}


def test_a_device_goes_round_robin_over_all_of_them() -> None:
    device = next(build_plan(model().spread(scenario()), run_id="r").devices())
    assert device.topic_choice == "round-robin"
    chooser = TopicChooser(device.topics, device.topic_choice, 1)
    chosen = Counter(np.asarray(chooser.choose(0, 60)).tolist())
    assert chosen == Counter(dict.fromkeys(range(12), 5))


def test_the_scenario_has_the_last_word_about_the_choice() -> None:
    assert model().spread(scenario("fleets.air.topic_choice=random")).fleets["air"].topic_choice == "random"
    random = Model(attributes=2, choose="random")
    assert random.spread(scenario()).fleets["air"].topic_choice == "random"
    assert random.spread(scenario("fleets.air.topic_choice=round-robin")).fleets["air"].topic_choice == "round-robin"


def test_a_model_without_numbers_leaves_a_scenario_as_it_is() -> None:
    asked = scenario()
    assert Model().spread(asked) is asked


def test_what_names_the_attribute_is_said_for_every_topic() -> None:
    contender = parse_contender(CONTEXT, "context.yaml")
    listening = scripts_of(contender)["http"].listening
    assert listening is not None
    assert [say.repeat for say in listening.steps] == [True]
    assert listening.fetch is not None
    assert listening.fetch.repeat
    registration = registration_of(contender)
    assert registration is not None
    assert registration.has_model
    assert [say.target for say in registration.remove_attribute] == ["/attributes/${handle}"]


@pytest.mark.parametrize("name", ["fiware-orion", "fiware-orion-memory", "acme-onem2m", "acme-onem2m-mqtt", "om2m"])
def test_shipped_middlewares_with_attributes_have_a_model(name: str) -> None:
    assert find_contender(name).model == Model()
