"""`bb brokers`: which contenders can run here, what they can do, how to get the others; `bb brokers install NAME`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from battlebrokers.cli.options import AsJson
from battlebrokers.contenders.availability import Available, Missing, availability
from battlebrokers.contenders.install import install as install_contender
from battlebrokers.contenders.reader import load_contenders
from battlebrokers.contenders.spec import Contender
from battlebrokers.errors import BattleError, ExitCode

brokers_app = typer.Typer(help="Show the contenders and what they can do; install one.", invoke_without_command=True)


@brokers_app.callback()
def brokers(context: typer.Context, as_json: AsJson = False) -> int | None:
    """Show which brokers can run here, what they can do, and what to install for the others."""
    if context.invoked_subcommand is not None:
        return None
    found = [(contender, availability(contender)) for contender in load_contenders()]
    if as_json:
        typer.echo(json.dumps([_facts(contender, here) for contender, here in found], indent=2, ensure_ascii=False))
    else:
        _tell(found)
    return ExitCode.PASS


@brokers_app.command("install")
def install(
    names: Annotated[list[str], typer.Argument(help="Contenders to install, as `bb brokers` names them.")],
    as_json: AsJson = False,
) -> int:
    """Install brokers: Node modules into your cache, system packages when you are root, else tells what to type."""
    facts = []
    failures: list[BattleError] = []
    for contender in [Contender.find(name) for name in names]:
        try:
            here = install_contender(contender)
        except BattleError as error:
            failures.append(error)
            typer.echo(f"{contender.name}: {error.message}\n  {error.hint}", err=True)
        else:
            facts.append(_facts(contender, here))
            if not as_json:
                typer.echo(f"{contender.name} {here.version} can run here: {here.path}")
    if as_json:
        typer.echo(json.dumps(facts, indent=2, ensure_ascii=False))
    return failures[0].exit_code if failures else ExitCode.PASS


def _facts(contender: Contender, here: Available | Missing) -> dict[str, Any]:
    """What `--json` prints about a contender."""
    version = here.version if isinstance(here, Available) else ""
    able = contender.able(version)
    return {
        "name": contender.name,
        "about": contender.about,
        "available": isinstance(here, Available),
        "version": version or None,
        "path": here.path if isinstance(here, Available) else None,
        "missing": here.what if isinstance(here, Missing) else None,
        "install": here.hint if isinstance(here, Missing) else None,
        "mqtt": able.mqtt,
        "qos": able.qos,
        "transports": able.transports,
        "shared_subscriptions": able.shared,
        "persistent_sessions": able.persistent_session,
        "retained": able.retain,
        "will": able.will,
        "tls": contender.tls is not None,
        "profiles": {name: profile.about for name, profile in contender.profiles.items()},
        "notes": able.notes,
    }


def _tell(found: list[tuple[Contender, Available | Missing]]) -> None:
    console = Console(highlight=False)
    table = Table(box=None, header_style="dim", padding=(0, 1), pad_edge=False)
    for heading in ("contender", "version", "runs here", "MQTT", "QoS", "transports", "shared", "sessions"):
        table.add_column(heading, no_wrap=True)
    for contender, here in found:
        runs = isinstance(here, Available)
        able = contender.able(here.version if isinstance(here, Available) else "")
        table.add_row(
            contender.name,
            here.version if isinstance(here, Available) else "–",
            "yes" if runs else "no",
            ", ".join(able.mqtt),
            f"0–{able.qos}" if able.qos else "0",
            " ".join(able.transports),
            _word(able.shared),
            _word(able.persistent_session),
            style=None if runs else "dim",
        )
    console.print(table)
    for contender, here in found:
        if isinstance(here, Missing):
            console.print(f"{contender.name}: {here.what} is missing. {here.hint}", soft_wrap=True, markup=False)
    console.print(
        "Any other broker: --broker mqtt://host:port (mqtts, ws, wss), or a contender file of your own.", soft_wrap=True
    )


def _word(able: bool) -> str:
    return "yes" if able else "no"
