"""A publish/subscribe server over HTTP for tests, made with aiohttp, and how it is spoken to in each of the three ways.

A process of its own (`python -m support.http_hub`) that prints its port. It keeps nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import aiohttp
from aiohttp import web

from battlebrokers.contenders.dialogue import scripts_of
from battlebrokers.contenders.reader import parse_contender
from battlebrokers.protocols.script import Script

WAYS = {
    "stream": 'fetch: {get: "/stream/${client_id}?topic=${topic}"}',
    "poll": """steps: {post: "/queues/${client_id}?topic=${topic}"}
      fetch: {get: "/queues/${client_id}"}
      undo: {delete: "/queues/${client_id}?topic=${topic}"}""",
    "callback": """steps: {post: "/calls/${client_id}?topic=${topic}", json: {call: "${callback}"}}
      undo: {delete: "/calls/${client_id}?topic=${topic}"}""",
}
FILE = """\
name: hub
about: Topics over HTTP.
run: {external: true}
ports: {http: 80}
endpoints: {http: "http://${host}:${port.http}"}
speak:
  http:
    publish: {post: /topics, json: {topic: "${topic}", payload: "${payload}"}}
    subscribe:
      way: WAY
      HOW
    notification: {each: $.items, payload: $.payload, topic: $.topic}
"""
LARGEST_BYTES = 16 << 20
POLL_S = 1.0


@cache
def http_script(way: str) -> Script:
    """How the hub is spoken to."""
    text = FILE.replace("WAY", way).replace("HOW", WAYS[way])
    return scripts_of(parse_contender(text, "hub.yaml"))["http"]


class Hub:
    """Who wants to hear what: a queue for each subscription, or one for all of a client that polls."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._queues: dict[tuple[str, str], asyncio.Queue[dict[str, str]]] = {}
        self._calling: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._polled: dict[str, asyncio.Queue[dict[str, str]]] = {}

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/topics", self.publish),
            web.get("/stream/{client}", self.stream),
            web.post("/queues/{client}", self.queue),
            web.get("/queues/{client}", self.poll),
            web.delete("/queues/{client}", self.leave),
            web.post("/calls/{client}", self.call),
            web.delete("/calls/{client}", self.leave),
        ]

    async def publish(self, request: web.Request) -> web.Response:
        item = await request.json()
        for (_, topic), queue in self._queues.items():
            if topic == item["topic"]:
                queue.put_nowait(item)
        return web.Response(status=204)

    async def stream(self, request: web.Request) -> web.StreamResponse:
        queue = self._queues[_place(request)] = asyncio.Queue()
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        try:
            while True:
                await response.write(_items([await queue.get()]))
        finally:
            if self._queues.get(_place(request)) is queue:
                del self._queues[_place(request)]

    async def queue(self, request: web.Request) -> web.Response:
        client = request.match_info["client"]
        if not any(other == client for other, _ in self._queues):
            self._polled[client] = asyncio.Queue()
        self._queues[_place(request)] = self._polled[client]
        return web.Response(status=201)

    async def poll(self, request: web.Request) -> web.Response:
        queue = self._polled[request.match_info["client"]]
        items = []
        with contextlib.suppress(TimeoutError):
            items.append(await asyncio.wait_for(queue.get(), POLL_S))
        while not queue.empty():
            items.append(queue.get_nowait())
        return web.Response(body=_items(items), content_type="application/json")

    async def call(self, request: web.Request) -> web.Response:
        await self.leave(request)
        queue = self._queues[_place(request)] = asyncio.Queue()
        url = (await request.json())["call"]
        self._calling[_place(request)] = asyncio.create_task(self._call(url, queue))
        return web.Response(status=201)

    async def _call(self, url: str, queue: asyncio.Queue[dict[str, str]]) -> None:
        while True:
            item = await queue.get()
            with contextlib.suppress(aiohttp.ClientError):
                async with self._session.post(url, data=_items([item])) as answer:
                    await answer.read()

    async def leave(self, request: web.Request) -> web.Response:
        self._queues.pop(_place(request), None)
        calling = self._calling.pop(_place(request), None)
        if calling is not None:
            calling.cancel()
        return web.Response(status=204)


def _place(request: web.Request) -> tuple[str, str]:
    return request.match_info["client"], request.query["topic"]


def _items(items: list[dict[str, str]]) -> bytes:
    return json.dumps({"items": items}).encode() + b"\n"


async def _serve() -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout()) as session:
        app = web.Application(client_max_size=LARGEST_BYTES)
        app.add_routes(Hub(session).routes())
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(runner.addresses[0][1], flush=True)
        await ended.wait()
        await runner.cleanup()


@contextmanager
def http_hub() -> Iterator[int]:
    """Its port."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-m", "support.http_hub"]
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
