"""How a contract server runs: a process of its own that prints its ports as one line of JSON when it is ready.

Used by the contract servers; `process.py` is the other side. Ends properly on SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import socket
from collections.abc import Awaitable, Callable

from aiohttp import web

Companion = Callable[[int], Awaitable[Callable[[], Awaitable[None]]]]
"""Starts another listener on a port; returns how to stop it."""


def ports_from_command_line(*names: str) -> dict[str, int]:
    """A port for each name: the one given, or a free one."""
    parser = argparse.ArgumentParser()
    for name in names:
        parser.add_argument(f"--{name}", type=int, default=0)
    given = vars(parser.parse_args())
    # All probes stay open until every port is chosen, so that no two are the same.
    with contextlib.ExitStack() as probes:
        return {name: given[name] or free_port(name, probes) for name in names}


def free_port(name: str, probes: contextlib.ExitStack) -> int:
    kind = socket.SOCK_DGRAM if name == "coap" else socket.SOCK_STREAM
    probe = probes.enter_context(socket.socket(type=kind))
    probe.bind(("127.0.0.1", 0))
    return int(probe.getsockname()[1])


def serve(application: web.Application, ports: dict[str, int], **companions: Companion) -> None:
    """Run until SIGTERM or SIGINT; `companions` are listeners besides HTTP, by the name of their port."""
    asyncio.run(_serve(application, ports, companions))


async def _serve(application: web.Application, ports: dict[str, int], companions: dict[str, Companion]) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", ports["http"]).start()
    stops = [await start(ports[name]) for name, start in companions.items()]
    print(json.dumps(ports), flush=True)
    await ended.wait()
    for stop in stops:
        await stop()
    await runner.cleanup()
