"""`bb check`: is this scenario valid, and what would it do? Answers in words; starts nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from battlebrokers.cli.options import AsJson, Overrides, Scale, Seed
from battlebrokers.errors import ExitCode, InputError, ScenarioError, UsageError
from battlebrokers.output import echo, echo_json
from battlebrokers.scenario.plan import Plan, build_plan
from battlebrokers.scenario.reader import LoadedScenario, load_scenario
from battlebrokers.scenario.shipped import shipped_scenarios
from battlebrokers.scenario.tiny import tiny_overrides
from battlebrokers.scenario.vacuity import warnings
from battlebrokers.scenario.words import notes, tell
from battlebrokers.visible import visible


def check(
    scenario: Annotated[str | None, typer.Argument(help="A shipped scenario's name or a YAML file.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Check all shipped scenarios.")] = False,
    overrides: Overrides = [],  # noqa: B006 - typer reads the default, nobody changes it
    scale: Scale = 1.0,
    seed: Seed = None,
    tiny: Annotated[
        bool, typer.Option("--tiny", help="Also print the --set options that make it run in two seconds.")
    ] = False,
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Write the whole plan there, one JSON line per device and client.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Check a scenario and tell its plan in words; all mistakes at once if it has any.

    Warns of clients that no message is for and of expectations that can never fail.
    Exit code: 0 valid, 3 invalid.
    """
    if everything == (scenario is not None):
        raise UsageError("name one scenario, or --all", hint="shipped: " + ", ".join(shipped_scenarios()))
    if everything and plan is not None:
        raise UsageError("--plan goes with one scenario")
    if everything:
        return _check_all(overrides, scale, seed, as_json=as_json)
    try:
        loaded = load_scenario(scenario or "", overrides, scale)
    except ScenarioError as error:
        if not as_json:
            raise
        echo_json(_json(_mistakes(scenario or "", error)))
        return ExitCode.INVALID_INPUT
    made = build_plan(loaded.scenario, seed)
    if plan is not None:
        _write(made, plan)
    if as_json:
        echo_json(_json(_facts(loaded, made)))
        return ExitCode.PASS
    echo(f"{visible(loaded.title)} is valid.")
    if loaded.scenario.about:
        echo(loaded.scenario.about)
    echo(tell(made))
    for line in notes(made):
        echo(f"  {line}")
    for line in warnings(made):
        echo(f"  warning: {line}")
    if loaded.scenario.expect:
        echo("It passes if " + ", ".join(loaded.scenario.expect) + ".")
    echo(f"Seed {made.seed}, plan {made.sha256[:12]}.")
    if tiny:
        echo(" ".join(f"--set '{override}'" for override in tiny_overrides(loaded.scenario)))
    return ExitCode.PASS


def _check_all(overrides: list[str], scale: float, seed: int | None, *, as_json: bool) -> int:
    found: list[dict[str, Any]] = []
    for name in shipped_scenarios():
        try:
            loaded = load_scenario(name, overrides, scale)
            found.append(_facts(loaded, build_plan(loaded.scenario, seed), fingerprint=False))
        except ScenarioError as error:
            found.append(_mistakes(name, error))
    if as_json:
        echo_json(_json(found))
    else:
        for facts in found:
            mark = "✓" if facts["valid"] else "✗"
            echo(f"{mark} {facts['scenario']}: {facts['words'] if facts['valid'] else ''}")
            for mistake in facts.get("mistakes", []):
                echo(f"    {mistake['text']}")
            for line in facts.get("warnings", []):
                echo(f"    warning: {line}")
    return ExitCode.PASS if all(facts["valid"] for facts in found) else ExitCode.INVALID_INPUT


def _facts(loaded: LoadedScenario, plan: Plan, *, fingerprint: bool = True) -> dict[str, Any]:
    """What `--json` prints about a valid scenario."""
    estimate = plan.estimate
    facts = {
        "scenario": loaded.scenario.name,
        "valid": True,
        "title": loaded.title,
        "about": loaded.scenario.about,
        "words": tell(plan),
        "notes": notes(plan),
        "warnings": warnings(plan),
        "seed": plan.seed,
        "devices": estimate.devices,
        "clients": estimate.clients,
        "messages_per_s": estimate.messages_per_s,
        "deliveries_per_s": estimate.deliveries_per_s,
        "payload_bytes": estimate.payload_bytes,
        "duration_s": estimate.duration_ns / 1e9,
        "expect": loaded.scenario.expect,
        "tiny": tiny_overrides(loaded.scenario),
    }
    return {**facts, "plan_sha256": plan.sha256} if fingerprint else facts


def _mistakes(name: str, error: ScenarioError) -> dict[str, Any]:
    mistakes = [
        {"where": m.where, "line": m.line, "path": m.path, "message": m.message, "hint": m.hint, "text": str(m)}
        for m in error.mistakes
    ]
    return {"scenario": name, "valid": False, "mistakes": mistakes}


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _write(plan: Plan, path: Path) -> None:
    try:
        with path.open("wb") as file:
            file.writelines(plan.lines())
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}", hint="--plan needs a file that can be written"
        ) from None
