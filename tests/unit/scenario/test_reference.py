from __future__ import annotations

import json

from battlebrokers.scenario.expectations import METRICS
from battlebrokers.scenario.model import Clients, Fleet, Payload, Phases, Scenario
from battlebrokers.scenario.reference import json_schema, scenario_reference
from battlebrokers.scenario.validation import keys_of


def test_every_key_has_a_line_and_a_sentence() -> None:
    text = scenario_reference()
    for model in (Scenario, Fleet, Clients, Phases, Payload):
        for key in keys_of(model):
            assert f"| `{key}` |" in text
        assert all(field.description for field in model.model_fields.values())


def test_every_metric_is_explained() -> None:
    text = scenario_reference()
    for metric in METRICS:
        name, _, statistic = metric.rpartition("_")
        assert f"`{metric}`" in text or (f"`{name}_…`" in text and f"`{statistic}`" in text)


def test_tables_are_not_broken_by_their_content() -> None:
    for line in scenario_reference().splitlines():
        if line.startswith("|") and "---" not in line:
            assert line.replace("\\|", "").count("|") in (3, 4), line


def test_the_schema_is_json_and_strict() -> None:
    schema = json.loads(json.dumps(json_schema()))
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == set(keys_of(Scenario))
    assert "for" in schema["$defs"]["Away"]["properties"]
