"""`bb sdn publish` and `bb sdn listen`: messages by hand, as a host of the lab."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Annotated

import typer

from battlebrokers.cli.sdn.app import TokenFile, sdn_app
from battlebrokers.cli.sdn.asking import URL, Url, asked, resource_path, rest_at
from battlebrokers.errors import ContenderError, EnvironmentNotReady, ExitCode, InputError
from battlebrokers.output import echo
from battlebrokers.visible import visible


@sdn_app.command("publish")
def publish(
    resource: Annotated[str, typer.Argument(help="Its address, such as 1.1.1.1.")],
    text: Annotated[str, typer.Argument(help="The message.")],
    host: Annotated[str, typer.Option("--as", help="The host of the lab that sends it.")] = "",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="The UDP port.")] = 5005,
    url: Url = URL,
    token_file: TokenFile = None,
) -> int:
    """Publish a message, as a host of the lab or from the controller."""
    payload = text.encode()
    if len(payload) > 1472:
        raise InputError(
            f"{len(payload)} bytes do not fit into one packet of 1500",
            hint="at most 1472: the network refuses fragments",
        )
    rest = rest_at(url, token_file)
    if not host:
        message = {"text": text, "port": port}
        echo(asked(rest, "POST", f"{resource_path(resource)}/messages", message)["message"])
        return ExitCode.PASS
    from battlebrokers.sdn.lab.laboratory import Laboratory

    with Laboratory().udp_socket(host) as sender:
        # Messages go on without a controller; where one answers, it knows whether anybody could get this one.
        with suppress(EnvironmentNotReady, ContenderError):
            asked(rest, "GET", resource_path(resource))
        sender.sendto(payload, (resource, port))
    return ExitCode.PASS


@sdn_app.command("listen")
def listen(
    host: Annotated[str, typer.Argument(help="The host of the lab that listens.")],
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="The UDP port.")] = 5005,
    count: Annotated[
        int, typer.Option("--count", "-n", min=0, help="End after so many messages; 0 = with Ctrl-C.")
    ] = 0,
) -> int:
    """Print what a host of the lab receives."""
    from battlebrokers.sdn.lab.laboratory import Laboratory

    with Laboratory().udp_socket(host, port) as receiver:
        number = 0
        while not count or number < count:
            payload, (address, sender_port) = receiver.recvfrom(65536)
            echo(f"{address}:{sender_port}  {visible(payload.decode('utf-8', 'backslashreplace'))}")
            sys.stdout.flush()
            number += 1
    return ExitCode.PASS
