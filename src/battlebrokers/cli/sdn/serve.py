"""`bb sdn serve`: a network with its broker, in one go."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from battlebrokers import signals
from battlebrokers.cli.sdn.app import AllowedHosts, ReactiveLimit, TokenFile, sdn_app, tell_places
from battlebrokers.errors import ExitCode, UsageError
from battlebrokers.output import echo
from battlebrokers.sdn.token import given_token

_LONGEST_PREFIX = 6


@sdn_app.command("serve")
def serve(
    topology: Annotated[
        str, typer.Option("--topology", help="paper, sensors, tree, ring, chain:4x2, …, or a YAML file.")
    ] = "paper",
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="For REST and the page; 0 = any.")] = 8080,
    openflow_port: Annotated[int, typer.Option("--openflow-port", min=0, max=65535, help="For switches.")] = 6653,
    mode: Annotated[
        str, typer.Option("--mode", help="Of resources that say none: reactive, direct, group or tree.")
    ] = "tree",
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Where the lab lives; else /run/battlebrokers-PREFIX.")
    ] = None,
    cables: Annotated[
        str, typer.Option("--cables", help="Between switches: veth (can be captured and cut) or patch (faster).")
    ] = "",
    prefix: Annotated[
        str, typer.Option("--prefix", help="What names of interfaces and namespaces begin with.")
    ] = "bbs",
    reactive_limit: ReactiveLimit = 50_000,
    token_file: TokenFile = None,
    allow_host: AllowedHosts = None,
) -> int:
    """Build a lab and run its controller, until Ctrl-C takes both down. Needs root.

    What an earlier one left behind is taken down first. Resources and subscriptions end with the network.
    Beyond loopback REST asks for a token: the one given, else a random one, printed once.
    """
    if not (prefix.isascii() and prefix.isalnum() and prefix.islower() and len(prefix) <= _LONGEST_PREFIX):
        raise UsageError(f"'{prefix}' is no prefix", hint=f"at most {_LONGEST_PREFIX} small letters and digits")
    from battlebrokers.sdn.core.resources import Mode
    from battlebrokers.sdn.lab.commands import Names
    from battlebrokers.sdn.lab.topology import find_topology

    if mode not in list(Mode):
        raise UsageError(f"there is no mode '{mode}'", hint=f"one of {', '.join(Mode)}")
    wanted = find_topology(topology, cables)
    from battlebrokers.sdn.service import Access, Served
    from battlebrokers.sdn.serving import Serving, serve_lab  # slow to import: a web server and a codec

    token = given_token(token_file)

    def tell(served: Served) -> None:
        echo(f"{wanted.title}: {len(wanted.switches)} switches, {len(wanted.hosts)} hosts")
        tell_places(host, served, token_is_new=token is None)

    place = folder or Path("/run") / f"battlebrokers-{prefix}"
    access = Access(token, tuple(allow_host or ()))
    order = Serving(wanted, place, Names(prefix), Mode(mode), host, openflow_port, port, reactive_limit, access)
    with signals.keeping("the network is taken down, its resources end with it"):
        asyncio.run(serve_lab(order, tell))
    return ExitCode.PASS
