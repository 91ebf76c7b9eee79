"""A server that follows a script over a real socket, and a client of ours connected to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from battlebrokers.protocols.base import Endpoint, LinkOptions
from battlebrokers.protocols.mqtt.link import MqttLink
from battlebrokers.protocols.mqtt.packets import ConnAck
from support.links import Ear, Peer, ScriptedBroker

LEVELS = {"3.1.1": 4, "5": 5}


class Pair:
    """The client's link, what it told, and the server's end of its connection."""

    def __init__(self, link: MqttLink, ear: Ear, peer: Peer) -> None:
        self.link, self.ear, self.peer = link, ear, peer


@pytest.fixture
async def server() -> AsyncIterator[ScriptedBroker]:
    async with ScriptedBroker().serving() as serving:
        yield serving


@pytest.fixture
def make(server: ScriptedBroker) -> Callable[..., MqttLink]:
    """A client that is not connected yet."""

    def made(version: str, ear: Ear | None = None, **options: object) -> MqttLink:
        settings = {"keep_alive_s": 0, "connect_timeout_s": 20.0, "version": version, **options}
        server.version = LEVELS[version]
        return MqttLink(Endpoint("tcp", "127.0.0.1", server.port), LinkOptions("client-1", **settings), ear or Ear())  # type: ignore[arg-type]

    return made


@pytest.fixture
def join(server: ScriptedBroker, make: Callable[..., MqttLink]) -> Callable[..., Awaitable[Pair]]:
    """A client that was welcomed."""

    async def joined(version: str, answer: ConnAck | None = None, **options: object) -> Pair:
        ear = Ear()
        link = make(version, ear, **options)
        opening = asyncio.ensure_future(link.open())
        peer = await server.welcome(answer)
        await opening
        return Pair(link, ear, peer)

    return joined
