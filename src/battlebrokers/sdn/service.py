"""The whole broker as one process: the controller for switches, HTTP for people. Run by `bb sdn controller`."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvicorn

from battlebrokers.errors import EnvironmentNotReady
from battlebrokers.sdn.controller import OPENFLOW_PORT, Controller
from battlebrokers.sdn.rest.application import application
from battlebrokers.sdn.store import Store

HTTP_PORT: Final = 8080


@dataclass(frozen=True, slots=True)
class Places:
    """Where to listen, and where to remember; port 0 is any free one."""

    host: str = "127.0.0.1"
    openflow_port: int = OPENFLOW_PORT
    http_port: int = HTTP_PORT
    state: Path | None = None


class _Server(uvicorn.Server):
    """Says when it is ready, and leaves signals to us."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        self.ready.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing: `serve` does it."""
        yield


async def serve(places: Places, on_ready: Callable[[int, int], None]) -> None:
    """Serve until SIGINT or SIGTERM; `on_ready` gets the ports for switches and for HTTP."""
    controller = Controller(Store(places.state))
    openflow_port = await controller.start(places.host, places.openflow_port)
    try:
        config = uvicorn.Config(
            application(controller), host=places.host, port=places.http_port, log_level="warning", lifespan="off",
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        server = _Server(config)
        try:
            door = config.bind_socket()
        except SystemExit as fault:
            raise EnvironmentNotReady(
                f"cannot listen for HTTP on {places.host}:{places.http_port}",
                hint="another program has the port: choose another one with --port",
            ) from fault
        with door:
            serving = asyncio.create_task(server.serve(sockets=[door]))
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, server.handle_exit, number, None)
            await asyncio.wait({serving, asyncio.create_task(server.ready.wait())}, return_when="FIRST_COMPLETED")
            on_ready(openflow_port, door.getsockname()[1])
            await serving
    finally:
        await controller.stop()
