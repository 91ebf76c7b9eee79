"""`bb sdn controller` and `bb sdn status`: the broker itself, and how it is."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from battlebrokers import signals
from battlebrokers.cli.options import AsJson
from battlebrokers.cli.sdn.app import AllowedHosts, ReactiveLimit, TokenFile, sdn_app, tell_places
from battlebrokers.cli.sdn.asking import URL, Url, asked, rest_at
from battlebrokers.errors import ExitCode
from battlebrokers.output import PlainConsole, echo_json
from battlebrokers.sdn.token import given_token

_STATE = Path.home() / ".local" / "state" / "battlebrokers" / "sdn.json"


@sdn_app.command("controller")
def controller(
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="For REST and the page; 0 = any.")] = 8080,
    openflow_port: Annotated[int, typer.Option("--openflow-port", min=0, max=65535, help="For switches.")] = 6653,
    state: Annotated[
        Path | None,
        typer.Option("--state", help="Where subscriptions are kept; else ~/.local/state/battlebrokers/sdn.json."),
    ] = None,
    reactive_limit: ReactiveLimit = 50_000,
    token_file: TokenFile = None,
    allow_host: AllowedHosts = None,
) -> int:
    """Run the controller: OpenFlow 1.3 for switches, REST and a live page for people. Ends with Ctrl-C.

    Beyond loopback REST asks for a token: the one given, else a random one, printed once.
    Subscriptions and the network survive a restart; in group and tree mode deliveries go on meanwhile.
    """
    from battlebrokers.sdn.service import Access, Places, Served, serve  # slow to import: a web server and a codec

    token = given_token(token_file)

    def tell(served: Served) -> None:
        tell_places(host, served, token_is_new=token is None)

    place = state or _STATE
    access = Access(token, tuple(allow_host or ()))
    with signals.keeping(f"resources and subscriptions are kept in {place}"):
        asyncio.run(serve(Places(host, openflow_port, port, place, reactive_limit, access), tell))
    return ExitCode.PASS


@sdn_app.command("status")
def status(url: Url = URL, token_file: TokenFile = None, as_json: AsJson = False) -> int:
    """Show switches, hosts and what was dropped, as the controller sees them."""
    rest = rest_at(url, token_file)
    topology, statistics = asked(rest, "GET", "/api/v1/topology"), asked(rest, "GET", "/api/v1/statistics")
    if as_json:
        echo_json(json.dumps({"topology": topology, "statistics": statistics}, indent=2))
        return ExitCode.PASS
    table = Table(box=None, header_style="bold")
    for name in ("switch", "connected", "ports", "rules", "groups", "packet-ins", "packet-outs", "errors"):
        table.add_column(name)
    for one in topology["switches"]:
        words = ("rules", "groups", "packet_ins", "packet_outs", "errors")
        table.add_row(
            f"s{one['number']}",
            "yes" if one["connected"] else "no",
            str(len(one["ports"])),
            *(str(one[w]) for w in words),
        )
    console = PlainConsole()
    console.print(table if topology["switches"] else "no switch has called yet: bb sdn lab up paper")
    where = ", ".join(f"{host['ipv4']} at s{host['switch']}:{host['port']}" for host in topology["hosts"])
    console.print(f"links: {len(topology['links'])}   hosts: {where or 'none seen yet'}")
    drops = ", ".join(f"{count} {kind}" for kind, count in statistics["drops"].items() if count)
    console.print(f"dropped: {drops or 'nothing'}")
    return ExitCode.PASS
