"""The command group `bb sdn`; the modules beside this one add their commands to it."""

from __future__ import annotations

import typer

sdn_app = typer.Typer(
    help="A broker that is the network itself: topics are addresses, switches make the copies.", no_args_is_help=True
)
