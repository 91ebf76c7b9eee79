"""Data models of middlewares in whole runs: round robin reaches every attribute of every resource."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from pyarrow.dataset import dataset

from battlebrokers.contenders.reader import SPECS
from support.middleware.described import described
from support.middleware.process import contract_server
from support.runs import run_for_real, write_scenario

pytestmark = [pytest.mark.broker, pytest.mark.slow]

ROUNDS, RESOURCES, ATTRIBUTES = 3, 2, 3
MESSAGES = ROUNDS * RESOURCES * ATTRIBUTES
SCENARIO = f"""\
name: modelled
protocol: http
fleets:
  air: {{devices: 2, topic: "city/{{device}}", payload: {{random_bytes: 30}}, every: 0.1s, at_most: {MESSAGES}}}
clients:
  all: {{count: 1, subscribe: "city/+"}}
phases: {{measure: 20s, drain: 20s, until_silent: true}}
"""
PLACES = {
    f"city/air-{device}/resource-{resource}/attribute-{attribute}"
    for device in (1, 2)
    for resource in range(1, RESOURCES + 1)
    for attribute in range(1, ATTRIBUTES + 1)
}


def modelled(file: Path, folder: Path, *, tidy: bool = True) -> Path:
    """A shipped file with numbers in its model; an untidy one leaves behind what it made."""
    text = file.read_text(encoding="utf-8")
    numbers = f"model: {{attribute: last-level, resources: {RESOURCES}, attributes: {ATTRIBUTES}, choose: round-robin}}"
    assert text.count("model: {attribute: last-level}") == 1
    lines = text.replace("model: {attribute: last-level}", numbers).splitlines()
    path = folder / f"modelled-{file.name}"
    path.write_text("\n".join(line for line in lines if tidy or not line.startswith("  remove:")), encoding="utf-8")
    return path


def rows(folder: Path, table: str, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in dataset(folder / "recorded" / table).to_table(list(columns)).to_pylist()]


def check_evidence(folder: Path, made: Counter[str]) -> None:
    """Every place was published to as often as the others, every message was heard, everything was registered once."""
    assert Counter(topic for (topic,) in rows(folder, "publishes", "topic")) == Counter(dict.fromkeys(PLACES, ROUNDS))
    published = rows(folder, "publishes", "device", "seq")
    assert Counter(rows(folder, "deliveries", "device", "seq")) == Counter(published)
    operations = rows(folder, "operations", "role", "kind", "outcome")
    assert {outcome for *_, outcome in operations} == {"ok"}
    assert Counter(role for role, kind, _ in operations if kind == "register") == made


@pytest.mark.parametrize("spec", ["fiware-orion", "fiware-orion-memory"])
def test_orion_has_every_attribute_of_every_entity(spec: str, tmp_path: Path) -> None:
    scenario = write_scenario(tmp_path, SCENARIO)
    with contract_server("orion") as ports:
        folder = run_for_real(
            scenario, str(modelled(described(spec, ports, tmp_path), tmp_path, tidy=False)), tmp_path / "runs"
        )
        with urlopen(
            f"http://127.0.0.1:{ports['http']}/v2/entities?options=keyValues&limit=1000", timeout=60
        ) as answer:
            entities = json.load(answer)
    found = Counter(
        (entity["id"].rpartition(":")[2] if spec == "fiware-orion" else entity["type"].removeprefix("bb-"), name)
        for entity in entities
        for name, value in entity.items()
        if name not in ("id", "type") and value
    )
    places = {
        (f"city-air-{device}-resource-{n}", f"attribute-{m}") for device in (1, 2) for n in (1, 2) for m in (1, 2, 3)
    }
    updates = spec == "fiware-orion"
    # An update takes the place of the one before; with memory every publish is there.
    assert found == Counter(dict.fromkeys(places, 1 if updates else ROUNDS))
    assert len(entities) == (2 * RESOURCES if updates else 2 * MESSAGES)
    made = Counter(resource=2 * RESOURCES, attribute=len(PLACES)) if updates else Counter[str]()
    check_evidence(folder.path, made)


def test_onem2m_has_a_container_for_every_attribute_of_every_resource(
    tmp_path: Path, require_broker: Callable[[str], str]
) -> None:
    require_broker("acme-onem2m")
    scenario = write_scenario(tmp_path, SCENARIO)
    folder = run_for_real(scenario, str(modelled(SPECS / "acme-onem2m.yaml", tmp_path)), tmp_path / "runs")
    # A client hears an attribute only through a subscription to its own container.
    check_evidence(folder.path, Counter(resource=2 * RESOURCES, attribute=len(PLACES)))
