"""`bb doctor`: is this machine ready, and what exactly to type if it is not."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from battlebrokers.cli.options import RUNS_DEFAULT, AsJson, Overrides, Runs, Scale
from battlebrokers.contenders.broker_url import is_url
from battlebrokers.errors import ExitCode
from battlebrokers.output import PlainConsole, echo_json
from battlebrokers.run.analysis_checks import analysis
from battlebrokers.run.host import host_facts
from battlebrokers.run.machine import gather
from battlebrokers.run.preflight import Check, Needs, State, examine
from battlebrokers.units import format_count

_MARKS: dict[State, tuple[str, str]] = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}
_NAME_WIDTH = 14
_ADVISED_WHEN_OK = ("brokers", "capture", "Open vSwitch", "lab tools", "lab rights")
"""Nothing is wrong without them, but people want to know how to get them."""


def doctor(
    scenario: Annotated[str | None, typer.Option("--scenario", "-s", help="Check for this scenario's load.")] = None,
    broker: Annotated[str, typer.Option("--broker", "-b", help="A name, or a URL: then it needs nothing here.")] = "",
    overrides: Overrides = [],  # noqa: B006 - typer reads the default, nobody changes it
    scale: Scale = 1.0,
    runs: Runs = RUNS_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Look at limits, ports, Java, brokers, CPU, memory, disk and load; tell what each means and how to mend it.

    Exit code: 0 ready (perhaps with advice), 4 something a run needs is missing.
    """
    needs = _needs_of(scenario, overrides, scale, broker_here=not is_url(broker)) if scenario else Needs()
    machine = gather(runs)
    checks = [*examine(machine, needs), *analysis(machine, needs)]
    ready = all(check.state != "fail" for check in checks)
    if as_json:
        facts = {
            "ready": ready,
            "needs": asdict(needs),
            "checks": [asdict(check) for check in checks],
            "host": host_facts(),
        }
        echo_json(json.dumps(facts, indent=2, ensure_ascii=False))
    else:
        _tell(checks, scenario, needs)
    return ExitCode.PASS if ready else ExitCode.ENVIRONMENT


def _needs_of(scenario: str, overrides: list[str], scale: float, *, broker_here: bool) -> Needs:
    # Only when a scenario is named: reading one takes a moment.
    from battlebrokers.cli.conduct import expected_events
    from battlebrokers.scenario.plan import build_plan
    from battlebrokers.scenario.reader import load_scenario

    plan = build_plan(load_scenario(scenario, overrides, scale).scenario)
    return Needs(
        connections=plan.device_count + plan.client_count,
        events=expected_events(plan),
        broker_here=broker_here,
    )


def _tell(checks: list[Check], scenario: str | None, needs: Needs) -> None:
    console = PlainConsole()
    for check in checks:
        mark, style = _MARKS[check.state]
        _line(console, Text.assemble((f"{mark} ", style), (check.name.ljust(_NAME_WIDTH), "bold"), check.value))
        if check.state != "ok":
            _line(console, Text.assemble(" " * (_NAME_WIDTH + 2), check.meaning))
        if check.fix and (check.state != "ok" or check.name in _ADVISED_WHEN_OK):
            lead = "more: " if check.state == "ok" else "fix: "
            _line(console, Text.assemble(" " * (_NAME_WIDTH + 2), (lead, style), check.fix))
    load = f"{format_count(needs.connections)} connections"
    if scenario:
        load = f"{scenario} ({load})"
    failed = [check.name for check in checks if check.state == "fail"]
    advised = [check.name for check in checks if check.state == "warn"]
    if failed:
        _line(console, Text(f"Not ready for {load}: {', '.join(failed)}.", "bold red"))
    elif advised:
        _line(console, Text(f"Ready for {load}, with advice on: {', '.join(advised)}.", "bold"))
    else:
        _line(console, Text(f"Ready for {load}.", "bold green"))


def _line(console: Console, text: Text) -> None:
    console.print(text, soft_wrap=True)
