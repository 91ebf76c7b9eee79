"""A publish/subscribe server over WebSocket for tests, made with the `websockets` package, and how it is spoken to.

A process of its own (`python -m support.websocket_hub`) that prints its port. It keeps nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from battlebrokers.contenders.dialogue import scripts_of
from battlebrokers.contenders.reader import parse_contender
from battlebrokers.protocols.script import Script
from battlebrokers.scenario.topics import filter_matches

FILE = """\
name: hub
about: Topics over WebSocket.
run: {external: true}
ports: {ws: 80}
endpoints: {websocket: "ws://${host}:${port.ws}/"}
speak:
  websocket:
    ids: $.id
    publish:
      send: {do: publish, id: "${id}", topic: "${topic}", payload: "${payload}"}
      answer: &done {$.done: "*"}
      is: &yes {$.done: true}
    subscribe:
      wildcards: true
      steps: {send: {do: subscribe, id: "${id}", filter: "${filter}"}, answer: *done, is: *yes}
      undo: {send: {do: unsubscribe, id: "${id}", filter: "${filter}"}, answer: *done, is: *yes}
    notification: {when: {$.event: message}, payload: $.payload, topic: $.topic}
"""


@cache
def hub_script() -> Script:
    """How the hub is spoken to."""
    return scripts_of(parse_contender(FILE, "hub.yaml"))["websocket"]


class Hub:
    """Who wants to hear what."""

    def __init__(self) -> None:
        self._filters: dict[ServerConnection, set[str]] = {}
        self._outboxes: dict[ServerConnection, asyncio.Queue[str]] = {}

    async def connected(self, socket: ServerConnection) -> None:
        outbox: asyncio.Queue[str] = asyncio.Queue()
        self._filters[socket], self._outboxes[socket] = set(), outbox
        writing = asyncio.create_task(self._write(socket, outbox))
        try:
            async for text in socket:
                request = json.loads(text)
                done = self._act(socket, request)
                outbox.put_nowait(json.dumps({"id": request["id"], "done": done}))
        except ConnectionClosed:
            return
        finally:
            del self._filters[socket], self._outboxes[socket]
            writing.cancel()

    @staticmethod
    async def _write(socket: ServerConnection, outbox: asyncio.Queue[str]) -> None:
        # A reader that pauses must not keep the others waiting.
        while True:
            await socket.send(await outbox.get())

    def _act(self, socket: ServerConnection, request: dict[str, Any]) -> bool:
        match request["do"]:
            case "subscribe":
                self._filters[socket].add(request["filter"])
            case "unsubscribe":
                self._filters[socket].discard(request["filter"])
            case "publish":
                told = {"event": "message", "topic": request["topic"], "payload": request["payload"]}
                for other, filters in self._filters.items():
                    if any(filter_matches(each, request["topic"]) for each in filters):
                        self._outboxes[other].put_nowait(json.dumps(told))
            case _:
                return False
        return True


async def _serve() -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with serve(Hub().connected, "127.0.0.1", 0, max_size=None, compression=None) as server:
        print(next(iter(server.sockets)).getsockname()[1], flush=True)
        await ended.wait()


@contextmanager
def websocket_hub() -> Iterator[int]:
    """Its port."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-m", "support.websocket_hub"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, "the hub did not start"
            yield int(line)
        finally:
            process.terminate()


if __name__ == "__main__":
    asyncio.run(_serve())
