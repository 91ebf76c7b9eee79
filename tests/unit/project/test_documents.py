"""What the documents promise: links lead somewhere, examples are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
EXAMPLE = re.compile(r"```yaml\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "GLOSSARY.md", "CHANGELOG.md"])
def test_every_relative_link_leads_to_a_file(name: str) -> None:
    targets = LINK.findall((ROOT / name).read_text(encoding="utf-8"))
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_scenario_of_the_tutorial_is_valid(tmp_path: Path) -> None:
    from battlebrokers.scenario.reader import load_scenario

    [example] = EXAMPLE.findall((ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8"))
    path = tmp_path / "greenhouse.yaml"
    path.write_text(example, encoding="utf-8")
    assert load_scenario(str(path), [], 1.0).scenario.name == "greenhouse"


def test_the_services_in_the_how_to_of_captures_are_valid() -> None:
    from battlebrokers.contenders.reader import SPECS, parse_contender

    examples = EXAMPLE.findall((ROOT / "docs" / "how-to" / "captures.md").read_text(encoding="utf-8"))
    assert len(examples) == 3
    spec = (SPECS / "mosquitto.yaml").read_text(encoding="utf-8")
    for example in examples:
        services = example.removeprefix("run: {external: true}\n")
        contender = parse_contender(spec.replace('services: {mosquitto: ["*"]}', services), "captures.md")
        assert set(contender.services) & {"broker", "rabbitmq"}
