from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from battlebrokers.cli.brokers import brokers_app
from battlebrokers.contenders.reader import contender_names


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
