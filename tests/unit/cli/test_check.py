from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from battlebrokers.cli.check import check
from battlebrokers.cli.schema import schema
from battlebrokers.errors import ExitCode, InputError, ScenarioError, UsageError
from battlebrokers.scenario.shipped import shipped_scenarios

app = typer.Typer()
app.command("check")(check)
app.command("schema")(schema)


def bb(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments), standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return int(result.return_value or 0), result.output


def test_a_valid_scenario_is_told_in_words() -> None:
    code, out = bb("check", "thesis-baseline", "--tiny")
    assert code == ExitCode.PASS
    assert "1 device and 1 client join at once; about 100 messages/s of 30 B on average" in out
    assert "It passes if sent == 1000" in out
    assert "--set 'phases.measure=1500ms'" in out


def test_scale_settings_and_seed_are_taken() -> None:
    code, out = bb("check", "fan-in", "--scale", "0.1", "--set", "phases.measure=5s", "--seed", "9")
    assert code == ExitCode.PASS
    assert "fan-in at scale 0.1 with phases.measure=5s is valid." in out
    assert "5 devices" in out
    assert "Seed 9" in out


def test_json_is_one_object() -> None:
    code, out = bb("check", "smart-city", "--json")
    facts = json.loads(out)
    assert code == ExitCode.PASS
    assert (facts["scenario"], facts["valid"], facts["devices"]) == ("smart-city", True, 375)
    assert len(facts["plan_sha256"]) == 64


def test_mistakes_are_raised_or_printed_as_json(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("name: x\nfoo: 1\nphases: {measure: 5}\n")
    with pytest.raises(ScenarioError):
        bb("check", str(path))
    code, out = bb("check", str(path), "--json")
    assert code == ExitCode.INVALID_INPUT
    found = json.loads(out)
    assert not found["valid"]
    assert [(mistake["line"], mistake["path"]) for mistake in found["mistakes"]] == [(2, "foo"), (3, "phases.measure")]


def test_all_shipped_scenarios_are_checked_at_once() -> None:
    code, out = bb("check", "--all")
    assert code == ExitCode.PASS
    assert [line.split(":")[0] for line in out.splitlines()] == [f"✓ {name}" for name in shipped_scenarios()]
    code, out = bb("check", "--all", "--set", "phases.measure=x", "--json")
    assert code == ExitCode.INVALID_INPUT
    assert not any(facts["valid"] for facts in json.loads(out))


def test_the_whole_plan_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / "plan.jsonl"
    bb("check", "one-to-one", "--plan", str(path))
    assert len(path.read_bytes().splitlines()) == 21
    with pytest.raises(InputError, match="cannot write"):
        bb("check", "one-to-one", "--plan", str(tmp_path / "no" / "folder"))


@pytest.mark.parametrize("arguments", [(), ("smart-city", "--all"), ("--all", "--plan", "x")])
def test_commands_that_make_no_sense_are_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        bb("check", *arguments)


def test_the_schema_is_printed() -> None:
    _, out = bb("schema")
    assert json.loads(out)["title"] == "BattleBrokers scenario"
