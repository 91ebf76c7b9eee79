"""The two sides of `links.websocket_*`: our link, and a plain loop of aiohttp, with as many requests in flight.

Both send the same JSON, wait for the answer to each request, and read the notification that comes with it. Also the
process that holds many connections (`python -m benchmarks.websocket_pair PORT COUNT SECONDS`).
"""

# ruff: noqa: ARG002 - a listener is told more than a counter needs
from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import time
from collections.abc import Sequence

import aiohttp
import psutil
import uvloop

from battlebrokers.protocols.base import (
    Arrivals,
    Completion,
    Endpoint,
    EqualArrivals,
    Failure,
    Link,
    LinkOptions,
    Outgoing,
    Subscription,
)
from battlebrokers.protocols.registry import make_link
from battlebrokers.protocols.script import Listening, Notification, Say, Script
from benchmarks.rates import rate_after_start
from benchmarks.serving import HOST

DEVICES = 8
WINDOW = 8
_PAYLOAD = bytes(64)
_TOPIC = b"bench/0"
_CONNECTING_AT_ONCE = 100

DIALECT = Script(
    "websocket",
    ids="$.requestId",
    publish=Say(
        "send",
        json={"action": "publish", "requestId": "${id}", "topic": "${topic}", "payload": "${payload}"},
        answer={},
        success={"$.status": "success"},
    ),
    listening=Listening(wildcards=True),
    notification=Notification(when={"$.action": "notify"}, payload="$.payload", encoding="base64", topic="$.topic"),
)


class Refill:
    """A listener that counts, and hands over another message for each that was answered."""

    def __init__(self) -> None:
        self.acked = self.failed = self.received = self.dropped = 0
        self.again = True
        self.now_ns = time.monotonic_ns

    def send(self, link: Link, count: int) -> None:
        link.publish(Outgoing(_TOPIC, [_PAYLOAD] * count, 0, retain=False, first_token=self.acked))

    def acknowledged(self, link: Link, tokens: Sequence[int], at_ns: int, completion: Completion, reason: int) -> None:
        if completion is Completion.ACKED:
            self.acked += len(tokens)
        else:
            self.failed += len(tokens)
        if self.again:
            self.send(link, len(tokens))

    def resent(self, link: Link, tokens: Sequence[int]) -> None: ...

    def arrived(self, link: Link, at_ns: int, flags: int, topic: bytes, payload: bytes, wire_size: int) -> None:
        self.received += payload == _PAYLOAD

    def arrived_many(self, link: Link, at_ns: int, arrivals: Arrivals | EqualArrivals) -> None: ...
    def writable(self, link: Link) -> None: ...

    def closed(self, link: Link, detail: str, reason: int) -> None:
        self.dropped += 1

    def malformed(self, link: Link, detail: str, kind: Failure = Failure.MALFORMED) -> None:
        self.failed += 1


async def _opened(port: int, name: str, refill: Refill) -> Link:
    options = LinkOptions(name, inflight=WINDOW, script=DIALECT)
    link = make_link("websocket", Endpoint("ws", HOST, port, "/"), options, refill)
    await link.open()
    await link.subscribe([Subscription("bench/#")])
    return link


def run_ours(port: int, seconds: float) -> float:
    """Messages a second that were answered and came back."""
    return uvloop.run(_ours(port, seconds))


async def _ours(port: int, seconds: float) -> float:
    refill = Refill()
    links = [await _opened(port, f"d{n}", refill) for n in range(DEVICES)]
    for link in links:
        refill.send(link, WINDOW)
    rate = await rate_after_start(lambda: min(refill.acked, refill.received), seconds)
    refill.again = False
    for link in links:
        await link.close()
    if refill.dropped:
        raise RuntimeError(f"{refill.dropped} connections were dropped")
    return rate


def run_aiohttp(port: int, seconds: float) -> float:
    """The same with aiohttp, on the same event loop."""
    return uvloop.run(_aiohttp(port, seconds))


async def _aiohttp(port: int, seconds: float) -> float:
    acked = received = number = 0

    def request() -> str:
        nonlocal number
        number += 1
        payload = base64.b64encode(_PAYLOAD).decode()
        return json.dumps(
            {"action": "publish", "requestId": str(number), "topic": "bench/0", "payload": payload},
            separators=(",", ":"),
        )

    async def talk(link: aiohttp.ClientWebSocketResponse) -> None:
        nonlocal acked, received
        for _ in range(WINDOW):
            await link.send_str(request())
        async for message in link:
            document = json.loads(message.data)
            if "requestId" in document:
                acked += document["status"] == "success"
                await link.send_str(request())
            elif document["action"] == "notify":
                received += base64.b64decode(document["payload"]) == _PAYLOAD

    async with aiohttp.ClientSession() as session:
        links = [await session.ws_connect(f"http://{HOST}:{port}/") for _ in range(DEVICES)]
        talking = [asyncio.create_task(talk(link)) for link in links]
        rate = await rate_after_start(lambda: min(acked, received), seconds)
        for task in talking:
            task.cancel()
        await asyncio.gather(*talking, return_exceptions=True)
    return rate


def held(port: int, count: int, seconds: float) -> dict[str, int]:
    """What a process of its own tells that held so many connections for so long and was served on each."""
    command = [sys.executable, "-m", "benchmarks.websocket_pair", str(port), str(count), str(seconds)]
    told: dict[str, int] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return told


async def _hold(port: int, count: int, seconds: float) -> dict[str, int]:
    refill = Refill()
    refill.again = False
    links: list[Link] = []
    for first in range(0, count, _CONNECTING_AT_ONCE):
        names = range(first, min(first + _CONNECTING_AT_ONCE, count))
        links += await asyncio.gather(*(_opened(port, f"c{n}", refill) for n in names))
    rounds = 0
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        rounds += 1
        for place, link in enumerate(links):
            refill.send(link, 1)
            if place % _CONNECTING_AT_ONCE == 0:
                await asyncio.sleep(0)
        while link_is_waiting(links) and time.monotonic() < until_s + 30:  # noqa: ASYNC110 - many links, one look
            await asyncio.sleep(0.01)
    dropped = refill.dropped
    memory_bytes = psutil.Process().memory_info().rss
    for link in links:
        link.abort()
    return {
        "held": len(links),
        "dropped": dropped,
        "expected": rounds * count,
        "answered": refill.acked,
        "received": refill.received,
        "memory_bytes": memory_bytes,
    }


def link_is_waiting(links: Sequence[Link]) -> bool:
    """Whether any message is still unanswered."""
    return any(link.unacknowledged for link in links)


if __name__ == "__main__":
    print(json.dumps(uvloop.run(_hold(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))))
