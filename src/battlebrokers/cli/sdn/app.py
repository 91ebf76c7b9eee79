"""The command group `bb sdn`; the modules beside this one add their commands to it."""

from __future__ import annotations

from typing import Annotated

import typer

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
