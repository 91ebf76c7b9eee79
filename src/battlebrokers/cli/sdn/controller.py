"""`bb sdn controller` and `bb sdn status`: the broker itself, and how it is."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from battlebrokers import signals
from battlebrokers.cli.options import AsJson
from battlebrokers.cli.sdn.app import ReactiveLimit, sdn_app
from battlebrokers.cli.sdn.asking import URL, Url, asked
from battlebrokers.errors import ExitCode
from battlebrokers.output import PlainConsole, echo, echo_json

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
) -> int:
    """Run the controller: OpenFlow 1.3 for switches, REST and a live page for people. Ends with Ctrl-C.

    Subscriptions and the network survive a restart; in group and tree mode deliveries go on meanwhile.
    """
    from battlebrokers.sdn.service import Places, serve  # slow to import: a web server and a codec

    def tell(openflow: int, http: int) -> None:
        echo(f"switches: tcp:{host}:{openflow}   page: http://{host}:{http}/   REST: http://{host}:{http}/docs")
        sys.stdout.flush()

    place = state or _STATE
    with signals.keeping(f"resources and subscriptions are kept in {place}"):
        asyncio.run(serve(Places(host, openflow_port, port, place, reactive_limit), tell))
    return ExitCode.PASS


@sdn_app.command("status")
def status(url: Url = URL, as_json: AsJson = False) -> int:
    """Show switches, hosts and what was dropped, as the controller sees them."""
    topology, statistics = asked(url, "GET", "/api/v1/topology"), asked(url, "GET", "/api/v1/statistics")
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
