"""A peer's server as a process of its own: it prints its port and serves until its input ends.

Used by `http_server` and `websocket_server`, which only say how one connection is answered.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvloop

HOST = "127.0.0.1"
_BACKLOG = 4096


def serve(connection: Callable[[], asyncio.Protocol]) -> None:
    """Serve every connection with one of these, until the input ends."""
    uvloop.run(_serve(connection))


@contextmanager
def running_server(module: str) -> Iterator[int]:
    """The port of a module that serves, for as long as the block lasts."""
    with subprocess.Popen(
        [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


async def _serve(connection: Callable[[], asyncio.Protocol]) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(connection, HOST, 0, backlog=_BACKLOG)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
