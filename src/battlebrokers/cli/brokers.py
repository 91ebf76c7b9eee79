"""`bb brokers`: which contenders can run here, what they can do, how to get the others.

`install NAME` gets one, `new NAME` begins a file for one of your own, `test NAME` tries what it says.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from battlebrokers import signals
from battlebrokers.cli.consent import require_trust, require_trust_to_install
from battlebrokers.cli.options import AsJson, Profile, Trust
from battlebrokers.contenders.availability import Available, Missing, availability
from battlebrokers.contenders.foreign import would_start
from battlebrokers.contenders.install import install as install_contender
from battlebrokers.contenders.lifecycle import start_contender
from battlebrokers.contenders.offers import Offer, offers_of
from battlebrokers.contenders.reader import contender_names, load_contenders
from battlebrokers.contenders.scaffold import scaffold
from battlebrokers.contenders.spec import Contender
from battlebrokers.errors import BattleError, ExitCode, UsageError
from battlebrokers.output import PlainConsole, echo, echo_json
from battlebrokers.run.trial import Finding, Trial, stopped
from battlebrokers.scratch import Scratch

brokers_app = typer.Typer(
    help="Show the contenders and what they can do; install, test or describe one.", invoke_without_command=True
)


@brokers_app.callback()
def brokers(context: typer.Context, as_json: AsJson = False) -> int | None:
    """Show which brokers can run here, what they can do, and what to install for the others."""
    if context.invoked_subcommand is not None:
        return None
    found = [(contender, availability(contender)) for contender in load_contenders()]
    if as_json:
        echo_json(json.dumps([_facts(contender, here) for contender, here in found], indent=2, ensure_ascii=False))
    else:
        _tell(found)
    return ExitCode.PASS


@brokers_app.command("install")
def install(
    names: Annotated[list[str], typer.Argument(help="Contenders to install, as `bb brokers` names them, or files.")],
    trust: Trust = False,
    as_json: AsJson = False,
) -> int:
    """Install brokers: Node modules into your cache, system packages when you are root, else tells what to type."""
    require_trust_to_install(names, trusted=trust)
    facts = []
    failures: list[BattleError] = []
    for contender in [Contender.find(name) for name in names]:
        try:
            here = install_contender(contender)
        except BattleError as error:
            failures.append(error)
            echo(f"{contender.name}: {error.message}\n  {error.hint}", err=True)
        else:
            facts.append(_facts(contender, here))
            if not as_json:
                echo(f"{contender.name} {here.version} can run here: {here.path}")
    if as_json:
        echo_json(json.dumps(facts, indent=2, ensure_ascii=False))
    return failures[0].exit_code if failures else ExitCode.PASS


@brokers_app.command("new")
def new(
    name: Annotated[str, typer.Argument(help="What your middleware is called: small letters, digits and -.")],
    folder: Annotated[Path, typer.Option("--to", help="The folder to put NAME.yaml into.")] = Path(),
) -> int:
    """Begin a contender file of your own: complete and commented, to be filled in."""
    text = scaffold(name)
    path = folder / f"{name}.yaml"
    if path.exists():
        raise UsageError(f"{path} is there already", hint="Choose another name, or another folder with --to.")
    if name in contender_names():
        raise UsageError(f"{name} is shipped already", hint="Choose another name.")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    echo(f"{path}: fill it in, then `bb brokers test {path}`.")
    return ExitCode.PASS


@brokers_app.command("test")
def try_out(
    name: Annotated[str, typer.Argument(help="A contender's name, its file, or NAME@HOST if somebody else runs it.")],
    profile: Profile = "stock",
    trust: Trust = False,
    as_json: AsJson = False,
) -> int:
    """Try whether a contender does what its file says: start, answer, carry messages over each protocol, stop.

    It tells first what it starts, goes through every behaviour of the page of capabilities, and tells which hold.

    Exit code: 0 all that is offered holds, 10 something does not, 5 it did not start.
    """
    contender = Contender.find(name)
    require_trust([name], profile, trusted=trust)
    console = PlainConsole(stderr=as_json)
    for line in would_start(name, profile):
        console.print(line, soft_wrap=True)
    with Scratch("bb-test-") as folder, signals.keeping("nothing is kept of a test"):
        running = start_contender(name, profile, folder)
        with running:
            begun = Finding("", "it starts and answers", True, f"{running.name} {running.version}")
            _tell_finding(console, begun)
            for warning in running.warnings:
                console.print(f"warning: {warning}", soft_wrap=True, markup=False)
            trial = Trial(running, contender, lambda finding: _tell_finding(console, finding))
            findings = [begun, *signals.run(trial.run())]
        if not contender.run.external:
            findings.append(stopped(running))
            _tell_finding(console, findings[-1])
    if as_json:
        echo_json(json.dumps([asdict(finding) for finding in findings], indent=2, ensure_ascii=False))
    failed = [finding for finding in findings if finding.holds is False and not finding.is_bridge]
    return ExitCode.EXPECTATION_FAILED if failed else ExitCode.PASS


def _tell_finding(console: Console, finding: Finding) -> None:
    mark, style = {True: ("yes", None), False: ("NO", "bold red"), None: ("–", "dim")}[finding.holds]
    where = f"{finding.route}: " if finding.route else ""
    detail = f" ({finding.detail})" if finding.detail else ""
    console.print(f"{mark:>3}  {where}{finding.what}{detail}", style=style, soft_wrap=True, markup=False)


_WIDE = 110
"""Columns a terminal must have for the table to tell everything; `--json` always does."""


def _facts(contender: Contender, here: Available | Missing) -> dict[str, Any]:
    """What `--json` prints about a contender."""
    version = here.version if isinstance(here, Available) else ""
    able = contender.able(version)
    offers = offers_of(contender)
    return {
        "name": contender.name,
        "about": contender.about,
        "available": isinstance(here, Available),
        "version": version or None,
        "path": here.path if isinstance(here, Available) else None,
        "missing": here.what if isinstance(here, Missing) else None,
        "install": here.hint if isinstance(here, Missing) else None,
        "runs": _how(contender),
        "protocols": {name: _offered(offer) for name, offer in offers.items()},
        "mqtt": able.mqtt if "mqtt" in offers else [],
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
    console = PlainConsole()
    table = Table(box=None, header_style="dim", padding=(0, 1), pad_edge=False)
    columns = ["contender", "version", "here", "protocols", "MQTT", "QoS"]
    if console.width >= _WIDE:
        columns += ["over", "shared", "sessions"]
    for heading in columns:
        table.add_column(heading, no_wrap=heading != "protocols")
    for contender, here in found:
        cells = _cells(contender, here)
        table.add_row(*(cells[name] for name in columns), style=None if isinstance(here, Available) else "dim")
    console.print(table)
    lacking: dict[Missing, list[str]] = {}
    for contender, here in found:
        if isinstance(here, Missing):
            lacking.setdefault(here, []).append(contender.name)
    for missing, names in lacking.items():
        console.print(f"{', '.join(names)}: {missing.what} is missing. {missing.hint}", soft_wrap=True, markup=False)
    console.print(
        "elsewhere: somebody runs it, and you say where, as NAME@HOST. Any other broker: --broker mqtt://host:port "
        "(mqtts, ws, wss, amqp, coap, udp), or a contender file of your own (`bb brokers new NAME`).",
        soft_wrap=True,
    )


def _cells(contender: Contender, here: Available | Missing) -> dict[str, str]:
    version = here.version if isinstance(here, Available) else ""
    able, offers = contender.able(version), offers_of(contender)
    mqtt = {
        "MQTT": " ".join(able.mqtt),
        "QoS": f"0–{able.qos}" if able.qos else "0",
        "over": " ".join(able.transports),
        "shared": _word(able.shared),
        "sessions": _word(able.persistent_session),
    }
    return {
        "contender": contender.name,
        "version": version if version[:1].isdigit() else "–",
        "here": "elsewhere" if contender.run.external else _word(isinstance(here, Available)),
        "protocols": " ".join(offers),
        **(mqtt if "mqtt" in offers else dict.fromkeys(mqtt, "–")),
    }


def _how(contender: Contender) -> str:
    run = contender.run
    return "external" if run.external else "container" if run.container else "compose" if run.compose else "process"


def _offered(offer: Offer) -> dict[str, Any]:
    return {
        "publish": offer.publishes,
        "subscribe": offer.receives,
        "wildcards": offer.wildcards,
        "own_dialect": offer.scripted,
    }


def _word(able: bool) -> str:
    return "yes" if able else "no"
