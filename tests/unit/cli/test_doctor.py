from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from battlebrokers.cli import doctor as doctor_module
from battlebrokers.cli.doctor import doctor
from battlebrokers.run.machine import Machine


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    app.command()(doctor)
    return app


def test_json_has_every_check_and_the_host(app: typer.Typer, tmp_path: Path) -> None:
    facts = json.loads(CliRunner().invoke(app, ["--json", "--runs", str(tmp_path)]).stdout)
    assert {check["name"] for check in facts["checks"]} >= {
        "open files",
        "local ports",
        "Java",
        "Spark",
        "brokers",
        "disk",
    }
    assert facts["ready"] is all(check["state"] != "fail" for check in facts["checks"])
    assert facts["host"]["kernel"]


def test_a_scenario_says_how_much_is_needed(app: typer.Typer, tmp_path: Path) -> None:
    said = CliRunner().invoke(app, ["--json", "--runs", str(tmp_path), "--scenario", "one-to-one", "--scale", "1"])
    assert json.loads(said.stdout)["needs"]["connections"] >= 2


def test_a_machine_that_is_not_ready_gets_its_fixes_and_exit_code_4(
    app: typer.Typer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_module, "gather", lambda _runs: Machine(java=None))
    said = CliRunner().invoke(app, [], standalone_mode=False)
    assert said.return_value == 4
    assert "Not ready" in said.stdout
    assert "openjdk-17-jre-headless" in said.stdout
