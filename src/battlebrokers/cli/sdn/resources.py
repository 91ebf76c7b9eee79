"""`bb sdn resources`, `create`, `delete`, `subscribe` and `unsubscribe`: who gets what."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table

from battlebrokers.cli.options import AsJson
from battlebrokers.cli.sdn.app import TokenFile, sdn_app
from battlebrokers.cli.sdn.asking import URL, Url, asked, resource_path, rest_at
from battlebrokers.errors import ExitCode, UsageError
from battlebrokers.output import PlainConsole, echo, echo_json


@sdn_app.command("resources")
def resources(url: Url = URL, token_file: TokenFile = None, as_json: AsJson = False) -> int:
    """List resources with their subscribers and counters."""
    found = asked(rest_at(url, token_file), "GET", "/api/v1/resources")
    if as_json:
        echo_json(json.dumps(found, indent=2))
        return ExitCode.PASS
    table = Table(box=None, header_style="bold")
    counters = ("published", "delivered", "refused", "dropped")
    for name in ("resource", "id", "name", "mode", "copies from", *counters, "subscribers"):
        table.add_column(name)
    for one in found:
        who = ", ".join(f"{sub['ipv4']} ({sub['seen_at'] or 'not seen yet'})" for sub in one["subscribers"])
        numbers = (str(one[name]) for name in counters)
        table.add_row(one["address"], str(one["id"]), one["name"], one["mode"], one["source"], *numbers, who or "none")
    PlainConsole().print(table if found else "no resources yet: bb sdn create")
    return ExitCode.PASS


@sdn_app.command("create")
def create(
    mode: Annotated[str, typer.Option("--mode", help="reactive, direct, group or tree.")] = "tree",
    source: Annotated[str, typer.Option("--from", help="Whom copies come from: publisher or resource.")] = "publisher",
    name: Annotated[str, typer.Option("--name", help="What to call it, such as an MQTT topic.")] = "",
    url: Url = URL,
    token_file: TokenFile = None,
) -> int:
    """Create a resource; prints its address."""
    from battlebrokers.sdn.core.resources import Mode, Source

    for option, said, known in (("--mode", mode, list(Mode)), ("--from", source, list(Source))):
        if said not in known:
            raise UsageError(f"{option} cannot be '{said}'", hint=f"one of {', '.join(known)}")
    wanted = {"mode": mode, "source": source, "name": name}
    echo(asked(rest_at(url, token_file), "POST", "/api/v1/resources", wanted)["address"])
    return ExitCode.PASS


@sdn_app.command("delete")
def delete(
    resource: Annotated[str, typer.Argument(help="Its address, such as 1.1.1.1.")],
    url: Url = URL,
    token_file: TokenFile = None,
) -> int:
    """Delete a resource with its subscriptions."""
    asked(rest_at(url, token_file), "DELETE", resource_path(resource))
    return ExitCode.PASS


@sdn_app.command("subscribe")
def subscribe(
    resource: Annotated[str, typer.Argument(help="Its address, such as 1.1.1.1.")],
    who: Annotated[str, typer.Argument(help="A host of the lab, or MAC address,IPv4 address.")],
    url: Url = URL,
    token_file: TokenFile = None,
) -> int:
    """Subscribe a host; it receives from the moment this ends."""
    mac, ipv4 = _addresses(who)
    asked(rest_at(url, token_file), "POST", f"{resource_path(resource)}/subscribers", {"mac": mac, "ipv4": ipv4})
    return ExitCode.PASS


@sdn_app.command("unsubscribe")
def unsubscribe(
    resource: Annotated[str, typer.Argument(help="Its address, such as 1.1.1.1.")],
    who: Annotated[str, typer.Argument(help="A host of the lab, or its MAC address.")],
    url: Url = URL,
    token_file: TokenFile = None,
) -> int:
    """Unsubscribe a host; it receives nothing from the moment this ends."""
    mac = who if ":" in who else _addresses(who)[0]
    asked(rest_at(url, token_file), "DELETE", f"{resource_path(resource)}/subscribers/{mac}")
    return ExitCode.PASS


def _addresses(who: str) -> tuple[str, str]:
    if "," in who:
        mac, _, ipv4 = who.partition(",")
        return mac, ipv4
    from battlebrokers.sdn.lab.laboratory import Laboratory

    host = Laboratory().host(who)
    return host.mac, host.ipv4
