from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from battlebrokers.cli import doctor as doctor_module
from battlebrokers.cli.doctor import doctor
from battlebrokers.run.machine import Machine, gather
from battlebrokers.sdn.lab.open_vswitch import Lacks


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


def test_what_a_lab_of_the_network_broker_lacks_is_told_with_the_fix_and_is_no_failure(
    app: typer.Typer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lacking = replace(gather(tmp_path, programs=False), lab=Lacks(("ovs-vsctl",), root_rights=True))
    monkeypatch.setattr(doctor_module, "gather", lambda _runs: lacking)
    said = CliRunner().invoke(app, [], standalone_mode=False).stdout
    lines = [" ".join(line.split()) for line in said.splitlines()]
    at = lines.index("✓ Open vSwitch not here: ovs-vsctl")
    assert lines[at + 1] == "more: as root: apt-get install openvswitch-switch"
    at = lines.index("✓ lab rights not root")
    assert lines[at + 1] == "more: run bb with sudo"
    assert "✓ lab tools ip is here" in lines
