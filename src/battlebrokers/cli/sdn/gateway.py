"""`bb sdn gateway`: ordinary MQTT clients use the network broker."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from battlebrokers import signals
from battlebrokers.cli.sdn.app import TokenFile, sdn_app
from battlebrokers.cli.sdn.asking import URL, Url
from battlebrokers.errors import ExitCode, UsageError
from battlebrokers.output import echo
from battlebrokers.sdn.token import given_token


@sdn_app.command("gateway")
def gateway(
    publish_as: Annotated[str, typer.Option("--publish-as", help="The host of the lab that publishes.")] = "",
    subscribe_as: Annotated[
        str, typer.Option("--subscribe-as", help="The host of the lab that subscribes; not the one that publishes.")
    ] = "",
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="For MQTT clients; 0 = any.")] = 1883,
    udp_port: Annotated[int, typer.Option("--udp-port", min=1, max=65535, help="Of the datagrams.")] = 5005,
    mode: Annotated[str, typer.Option("--mode", help="Of new topics: reactive, direct, group or tree.")] = "tree",
    look_every: Annotated[
        float, typer.Option("--look-every", min=0.05, help="Seconds between looks for topics others created.")
    ] = 1.0,
    lab: Annotated[Path | None, typer.Option("--lab", help="The folder of the lab, if not the usual one.")] = None,
    prefix: Annotated[str, typer.Option("--prefix", help="What the lab's names begin with.")] = "bbl",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log why connections end.")] = False,
    url: Url = URL,
    token_file: TokenFile = None,
) -> int:
    """Let MQTT clients publish and subscribe inside the network. Ends with Ctrl-C; SIGUSR1 tells the counters.

    A topic is the resource of that name. Two hosts are needed, as a host does not publish on what it is subscribed to;
    one is enough for one direction. No TLS and no access control: listen where only friends are.
    """
    from battlebrokers.sdn.core.resources import Mode
    from battlebrokers.sdn.gateway.feet import LabFeet
    from battlebrokers.sdn.gateway.gateway import Gateway
    from battlebrokers.sdn.gateway.settings import Settings
    from battlebrokers.sdn.lab.commands import Names
    from battlebrokers.sdn.lab.laboratory import DEFAULT_FOLDER, Laboratory

    if mode not in list(Mode):
        raise UsageError(f"there is no mode '{mode}'", hint=f"one of {', '.join(Mode)}")
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"'{url}' is no URL of a controller", hint="for example http://127.0.0.1:8080")
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(levelname)s %(message)s")
    feet = LabFeet(Laboratory(lab or DEFAULT_FOLDER, Names(prefix)), publish_as or None, subscribe_as or None, udp_port)
    settings = Settings(url, host, port, mode, look_every, token=given_token(token_file))

    async def serve() -> None:
        door = Gateway(settings, feet)
        await door.start()
        # Not the loop's own handler: that one would take the wakeup descriptor from `signals`.
        loop = asyncio.get_running_loop()
        signal.signal(signal.SIGUSR1, lambda *_: loop.call_soon_threadsafe(lambda: _say(door.summary())))
        whom = f"publishes as {publish_as or 'nobody'}, subscribes as {subscribe_as or 'nobody'}"
        with signals.stopping() as over:
            _say(f"MQTT: tcp://{host}:{door.port}   {whom}")
            await over.wait()
            await door.stop()
        _say(door.summary())

    with signals.keeping("topics and subscriptions of the network stay"):
        asyncio.run(serve())
    return ExitCode.PASS


def _say(words: str) -> None:
    echo(words)
    sys.stdout.flush()
