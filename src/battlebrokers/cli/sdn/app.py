"""The command group `bb sdn`; the modules beside this one add their commands to it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from battlebrokers.output import echo
from battlebrokers.sdn.token import TOKEN_VARIABLE

if TYPE_CHECKING:
    from battlebrokers.sdn.service import Served

sdn_app = typer.Typer(
    help="A broker that is the network itself: topics are addresses, switches make the copies.", no_args_is_help=True
)

ReactiveLimit = Annotated[
    int,
    typer.Option(
        "--reactive-limit", min=0, max=10_000_000,
        help="Messages a second of one reactive or direct resource that each switch may hand to the controller; "
        "0 = no limit.",
    ),
]  # fmt: skip

TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file", envvar="BB_SDN_TOKEN_FILE",
        help=f"A file with the token of the controller's REST; else {TOKEN_VARIABLE} holds it.",
    ),
]  # fmt: skip
AllowedHosts = Annotated[
    list[str] | None,
    typer.Option("--allow-host", help="Another name requests may be for, such as that of a proxy; may be repeated."),
]


def tell_places(host: str, served: Served, *, token_is_new: bool) -> None:
    """Print where a service listens, and a token nobody has given it."""
    place = f"http://[{host}]:{served.http_port}" if ":" in host else f"http://{host}:{served.http_port}"
    echo(f"switches: tcp:{host}:{served.openflow_port}   page: {place}/   REST: {place}/docs")
    if served.token is not None and token_is_new:
        echo(f"token: {served.token}   (page: {place}/#token={served.token}; bb sdn: {TOKEN_VARIABLE})")
    elif served.token is not None:
        echo("token: as given")
    sys.stdout.flush()
