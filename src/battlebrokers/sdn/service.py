"""The whole broker as one process: the controller for switches, HTTP for people. `serving` adds a lab."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import uvicorn
from fastapi import FastAPI

from battlebrokers import signals
from battlebrokers.sdn.controller import OPENFLOW_PORT, Controller
from battlebrokers.sdn.core.rules import REACTIVE_PER_S
from battlebrokers.sdn.refused_port import cannot_listen
from battlebrokers.sdn.rest.admission import Admission
from battlebrokers.sdn.rest.application import application
from battlebrokers.sdn.store import Store
from battlebrokers.sdn.token import new_token

HTTP_PORT: Final = 8080


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask over HTTP, as far as somebody has said so."""

    token: str | None = None
    """When absent there is none on a loopback address, and a random one anywhere else."""
    names: tuple[str, ...] = ()
    """Names besides its own that requests may be for."""


@dataclass(frozen=True, slots=True)
class Served:
    """What a service listens on, and the token it asks for (None: none)."""

    openflow_port: int
    http_port: int
    token: str | None


@dataclass(frozen=True, slots=True)
class Places:
    """Where to listen, and where to remember; port 0 is any free one."""

    host: str = "127.0.0.1"
    openflow_port: int = OPENFLOW_PORT
    http_port: int = HTTP_PORT
    state: Path | None = None
    reactive_per_s: int = REACTIVE_PER_S
    """How many messages of a reactive or direct resource each switch may hand to the controller; 0 is no limit."""
    access: Access = field(default_factory=Access)


class _Server(uvicorn.Server):
    """Says when it is ready, and leaves signals to `battlebrokers.signals`."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        self.ready.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing: `serve` waits for them."""
        yield


async def serve(places: Places, on_ready: Callable[[Served], None]) -> None:
    """Serve until the first signal; `on_ready` gets where it listens."""
    with signals.stopping() as stopping:
        controller = Controller(Store(places.state), places.reactive_per_s)
        openflow_port = await controller.start(places.host, places.openflow_port)
        try:
            with open_door(places.host, places.http_port) as door:
                admission = admission_at(door, places.host, places.access)
                app = application(controller, admission=admission)
                served = Served(openflow_port, door.getsockname()[1], admission.token)
                await answer(app, door, stopping, lambda: on_ready(served))
        finally:
            await controller.stop()


def open_door(host: str, port: int) -> socket.socket:
    """The address for HTTP, ours from now on."""
    door = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((host, port))
    except OSError as fault:
        door.close()
        raise cannot_listen("HTTP", f"{host}:{port}", fault, "--port") from fault
    return door


def admission_at(door: socket.socket, host: str, access: Access) -> Admission:
    """What may pass at a bound address: beyond loopback only who has the token."""
    names = {name.lower().removesuffix(".") for name in (host, *access.names)}
    # The address in use decides, not its spelling: a name may stand for any.
    if ip_address(door.getsockname()[0].partition("%")[0]).is_loopback:
        return Admission(frozenset(names), token=access.token)
    machine = socket.gethostname().lower()
    names |= {machine, machine.partition(".")[0]}
    return Admission(frozenset(names), any_address=True, token=access.token or new_token())


async def answer(app: FastAPI, door: socket.socket, stopping: asyncio.Event, on_ready: Callable[[], None]) -> None:
    """Answer over HTTP until it is to stop."""
    config = uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[door]))
    waits = [asyncio.create_task(server.ready.wait()), asyncio.create_task(stopping.wait())]
    try:
        await asyncio.wait({serving, waits[0]}, return_when=asyncio.FIRST_COMPLETED)
        if not serving.done() and not stopping.is_set():
            on_ready()
        await asyncio.wait({serving, waits[1]}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        server.should_exit = True
        for wait in waits:
            wait.cancel()
        await serving
