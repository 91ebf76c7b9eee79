from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from battlebrokers.cli.brokers import brokers_app
from battlebrokers.contenders.offers import offers_of
from battlebrokers.contenders.reader import contender_names, read_contender
from battlebrokers.errors import InputError, UsageError


def test_every_contender_is_shown() -> None:
    shown = CliRunner().invoke(brokers_app, [])
    assert shown.exit_code == 0
    assert all(name in shown.stdout for name in contender_names())


def test_json_tells_the_same_for_machines() -> None:
    facts = json.loads(CliRunner().invoke(brokers_app, ["--json"]).stdout)
    assert [each["name"] for each in facts] == contender_names()
    embedded = next(each for each in facts if each["name"] == "amqtt")
    assert embedded["available"]
    assert embedded["mqtt"] == ["3.1.1"]


def test_what_is_missing_is_told_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    facts = json.loads(CliRunner().invoke(brokers_app, ["--json"]).stdout)
    aedes = next(each for each in facts if each["name"] == "aedes")
    assert not aedes["available"]
    assert aedes["missing"]
    assert aedes["install"]


def test_installing_what_is_here_already_does_nothing() -> None:
    done = CliRunner().invoke(brokers_app, ["install", "amqtt"])
    assert done.exit_code == 0
    assert done.stdout.startswith("amqtt ")


def test_a_new_file_reads_without_mistakes(tmp_path: Path) -> None:
    made = CliRunner().invoke(brokers_app, ["new", "my-hub", "--to", str(tmp_path / "new")])
    assert made.exit_code == 0
    contender = read_contender(tmp_path / "new" / "my-hub.yaml")
    assert contender.name == "my-hub"
    assert set(offers_of(contender)) == {"http"}


@pytest.mark.parametrize("name", ["Hub", "9lives", "a b", "hub/..", "häb"])
def test_a_new_file_must_have_a_name(tmp_path: Path, name: str) -> None:
    made = CliRunner().invoke(brokers_app, ["new", name, "--to", str(tmp_path)])
    assert isinstance(made.exception, InputError)
    assert list(tmp_path.iterdir()) == []


def test_a_new_file_takes_no_others_place(tmp_path: Path) -> None:
    (tmp_path / "hub.yaml").write_text("precious")
    for name in ("hub", "mosquitto"):
        assert isinstance(CliRunner().invoke(brokers_app, ["new", name, "--to", str(tmp_path)]).exception, UsageError)
    assert (tmp_path / "hub.yaml").read_text() == "precious"


def test_protocols_are_told(tmp_path: Path) -> None:
    facts = {each["name"]: each for each in json.loads(CliRunner().invoke(brokers_app, ["--json"]).stdout)}
    assert set(facts["rabbitmq"]["protocols"]) == {"mqtt", "amqp"}
    assert facts["mosquitto"]["protocols"]["mqtt"] == {
        "publish": True,
        "subscribe": True,
        "wildcards": True,
        "own_dialect": False,
    }


@pytest.mark.broker
def test_a_broker_is_tried_over_everything_it_offers() -> None:
    tried = CliRunner().invoke(brokers_app, ["test", "amqtt", "--json"])
    assert tried.exit_code == 0, tried.output
    findings = json.loads(tried.stdout)
    assert {each["route"] for each in findings} == {"", "mqtt", "mqtt over ws"}
    assert all(each["holds"] for each in findings)
    assert len(findings) > 15
