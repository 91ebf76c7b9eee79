"""Clients that no message is for, and expectations that can never fail, are warned of before a run."""

from __future__ import annotations

import pytest

from battlebrokers.scenario.plan import build_plan
from battlebrokers.scenario.reader import load_scenario
from battlebrokers.scenario.shipped import shipped_scenarios
from battlebrokers.scenario.vacuity import warnings

TEXT = """
name: greenhouse
fleets:
  air: {{devices: 2, topic: "house/{{device}}/air", every: 1s, qos: {qos}, payload: {{random_bytes: 20}}}}
clients:
  app: {{count: 3, subscribe: {subscribe}}}
phases: {{measure: 5s}}
expect: {expect}
"""


def told(tmp_path, *, subscribe='["#"]', expect="[]", qos=1, scale=1.0, more=""):
    path = tmp_path / "greenhouse.yaml"
    path.write_text(TEXT.format(subscribe=subscribe, expect=expect, qos=qos) + more)
    return warnings(build_plan(load_scenario(str(path), [], scale).scenario))


@pytest.mark.parametrize("name", shipped_scenarios())
def test_a_shipped_scenario_is_worth_something_in_every_part(name):
    assert warnings(build_plan(load_scenario(name, [], 1.0).scenario)) == []


@pytest.mark.parametrize(
    "subscribe",
    ['["house/#"]', '["house/air-1/air"]', '["house/+/air"]', '["+/+/+"]', '["house/air-1/air/#"]', '["#"]', "[]"],
)
def test_filters_that_match_are_nothing_to_warn_of(tmp_path, subscribe):
    assert told(tmp_path, subscribe=subscribe) == []


@pytest.mark.parametrize(
    "subscribe", ['["hose/#"]', '["house"]', '["house/+"]', '["+/air"]', '["house/air-1/air/x"]', '["+/+/+/+"]']
)
def test_a_client_that_matches_no_topic_is_named_with_its_filter(tmp_path, subscribe):
    (warning,) = told(tmp_path, subscribe=subscribe)
    assert warning.startswith("app: 3 of 3 clients get no message, because no fleet publishes to ")
    assert subscribe.strip('[]"') in warning


def test_one_filter_of_several_that_matches_nothing_is_named(tmp_path):
    (warning,) = told(tmp_path, subscribe='["house/#", "hose/#"]')
    assert warning == "app: not all filters match, because no fleet publishes to hose/#."


@pytest.mark.parametrize(
    ("expect", "why"),
    [
        ("lost >= 0", "it holds whatever happens"),
        ("sent <= 100% of planned", "it holds whatever happens"),
        ("lost < 200%", "it holds whatever happens"),
        ("wills == 0", "nobody has a last will"),
    ],
)
def test_an_expectation_that_can_never_fail_is_named(tmp_path, expect, why):
    assert told(tmp_path, expect=f'["{expect}"]') == [f"`{expect}` can never fail: {why}."]


def test_without_listeners_nothing_can_be_lost(tmp_path):
    assert told(tmp_path, subscribe="[]", expect='["lost == 0", "subscribe_failures == 0"]') == [
        "`lost == 0` can never fail: no client is owed any message.",
        "`subscribe_failures == 0` can never fail: nobody subscribes.",
    ]


def test_at_qos_0_nothing_is_refused(tmp_path):
    assert told(tmp_path, expect='["refused == 0"]') == []
    (warning,) = told(tmp_path, expect='["refused == 0"]', qos=0)
    assert "no publish is answered at QoS 0" in warning
