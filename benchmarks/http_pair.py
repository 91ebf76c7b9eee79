"""The two sides of `links.http_vs_aiohttp`: our link, and a plain loop of aiohttp, with as many requests in flight."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import aiohttp
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
)
from battlebrokers.protocols.registry import make_link
from benchmarks.rates import rate_after_start
from benchmarks.serving import HOST

DEVICES = 8
WINDOW = 8
_PAYLOAD = bytes(64)
_TOPIC = b"bench/0"


class Refill:
    """A listener that counts, and hands over another message for each that was answered."""

    def __init__(self) -> None:
        self.acked = self.failed = 0
        self.over = False
        self.now_ns = time.monotonic_ns

    def send(self, link: Link, count: int) -> None:
        link.publish(Outgoing(_TOPIC, [_PAYLOAD] * count, 0, retain=False, first_token=self.acked))

    def acknowledged(self, link: Link, tokens: Sequence[int], _at: int, completion: Completion, _reason: int) -> None:
        if completion is Completion.ACKED:
            self.acked += len(tokens)
        else:
            self.failed += len(tokens)
        if not self.over:
            self.send(link, len(tokens))

    def resent(self, link: Link, tokens: Sequence[int]) -> None: ...
    def arrived(self, link: Link, at_ns: int, flags: int, topic: bytes, payload: bytes, wire_size: int) -> None: ...
    def arrived_many(self, link: Link, at_ns: int, arrivals: Arrivals | EqualArrivals) -> None: ...
    def writable(self, link: Link) -> None: ...
    def closed(self, link: Link, detail: str, reason: int) -> None: ...
    def malformed(self, link: Link, detail: str, kind: Failure = Failure.MALFORMED) -> None: ...


def run_ours(port: int, seconds: float) -> float:
    """Messages a second, each answered before its successor is sent."""
    return uvloop.run(_ours(port, seconds))


async def _ours(port: int, seconds: float) -> float:
    refill = Refill()
    endpoint = Endpoint("tcp", HOST, port, "/resources")
    links = [make_link("http", endpoint, LinkOptions(f"d{n}", inflight=WINDOW), refill) for n in range(DEVICES)]
    for link in links:
        await link.open()
        refill.send(link, WINDOW)
    rate = await rate_after_start(lambda: refill.acked, seconds)
    refill.over = True
    for link in links:
        await link.close()
    if refill.failed:
        raise RuntimeError(f"{refill.failed} requests failed")
    return rate


def run_aiohttp(port: int, seconds: float) -> float:
    """The same with aiohttp, on the same event loop."""
    return uvloop.run(_aiohttp(port, seconds))


async def _aiohttp(port: int, seconds: float) -> float:
    done = 0
    over = False
    url = f"http://{HOST}:{port}/resources/{_TOPIC.decode()}"

    async def post(session: aiohttp.ClientSession) -> None:
        nonlocal done
        while not over:
            async with session.post(url, data=_PAYLOAD) as answer:
                await answer.read()
                answer.raise_for_status()
            done += 1

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=DEVICES * WINDOW)) as session:
        posting = [asyncio.create_task(post(session)) for _ in range(DEVICES * WINDOW)]
        rate = await rate_after_start(lambda: done, seconds)
        over = True
        await asyncio.gather(*posting)
    return rate
