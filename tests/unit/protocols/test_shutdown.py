"""A clean disconnect is clean on the wire: the last packet arrives although bytes of the peer were never read."""

from __future__ import annotations

import asyncio
import getpass
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from battlebrokers.errors import LinkError
from battlebrokers.protocols import shutdown
from battlebrokers.protocols.base import Endpoint, LinkOptions, Outgoing, Subscription, TlsFiles, Will
from battlebrokers.protocols.mqtt.link import MqttLink
from support.certificates import Authority
from support.links import Ear, mosquitto, until

WEB = ("protocol websockets",)


@pytest.mark.broker
@pytest.mark.parametrize("transport", ["tcp", "tls", "ws", "wss"])
@pytest.mark.parametrize("version", ["3.1.1", "5"])
async def test_mosquitto_publishes_no_will_of_a_slow_reader_that_disconnects(
    tmp_path: Path, require_broker, transport: str, version: str
) -> None:
    require_broker("mosquitto")
    signer = Authority(tmp_path)
    certificate, key = signer.sign("server", server=True)
    secure = (f"cafile {signer.path}", f"certfile {certificate}", f"keyfile {key}")
    own = (*(WEB if transport in {"ws", "wss"} else ()), *(secure if transport in {"tls", "wss"} else ()))
    with mosquitto(tmp_path, f"user {getpass.getuser()}", listeners=[(), own]) as (plain, port):
        witness = Ear()
        writer = MqttLink(Endpoint("tcp", "127.0.0.1", plain), LinkOptions("writer"), witness)
        await writer.open()
        await writer.subscribe([Subscription("will/#")])
        for turn in range(4):
            options = LinkOptions(
                f"reader-{turn}", version=version, will=Will(f"will/{turn}", b"vanished"), tls=TlsFiles(ca=signer.path)
            )
            reader = MqttLink(Endpoint(transport, "127.0.0.1", port), options, Ear())
            await reader.open()
            await reader.subscribe([Subscription("t")])
            reader.pause_reading()
            for _ in range(30):
                writer.publish(Outgoing(b"t", [bytes(8192)] * 20, 0, False, 0))
                await asyncio.sleep(0.002)
            await reader.close()
        # Who vanishes is told of at once; behind that nothing else can still be on its way.
        vanishing = MqttLink(
            Endpoint("tcp", "127.0.0.1", plain), LinkOptions("vanishing", will=Will("will/vanishing", b"")), Ear()
        )
        await vanishing.open()
        vanishing.abort()
        await until(lambda: witness.messages)
        assert [message.topic for message in witness.messages] == [b"will/vanishing"]
        await writer.close()


class Server:
    """Accepts one connection and leaves all the rest to the test."""

    def __init__(self) -> None:
        self.port = 0
        self.came: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    @asynccontextmanager
    async def serving(self, context: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self.came.put((reader, writer))

        server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context, limit=1 << 16)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()


async def ended(server: Server, last: bytes = b"last") -> tuple[asyncio.Future[None], asyncio.StreamReader,
                                                               asyncio.StreamWriter]:  # fmt: skip
    """A connection on which `last` was written and that is being shut down."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", server.port)
    reader, writer = await server.came.get()
    transport.write(last)
    return asyncio.ensure_future(shutdown.shut_down(transport, "there", "goodbye")), reader, writer


async def test_the_write_side_is_shut_and_the_rest_is_read() -> None:
    async with Server().serving() as server:
        ending, reader, writer = await ended(server)
        assert await reader.read() == b"last"
        writer.write(bytes(1 << 20))
        await writer.drain()
        assert not ending.done()
        writer.close()
        await ending


async def test_who_never_closes_is_left_when_nothing_moves_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutdown, "IDLE_S", 0.05)
    async with Server().serving() as server:
        ending, reader, writer = await ended(server)
        await ending
        assert await reader.read() == b"last"
        writer.close()


@pytest.mark.parametrize("limit", ["LONGEST_S", "MOST_BYTES"])
async def test_who_never_stops_sending_is_cut_and_told(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    # The peer is in this very process: it cannot be idle for so long without our being so, too.
    monkeypatch.setattr(shutdown, "IDLE_S", 1.0)
    monkeypatch.setattr(shutdown, limit, 1.0 if limit == "LONGEST_S" else 100_000)
    async with Server().serving() as server:
        ending, _, writer = await ended(server)
        while not ending.done():
            writer.write(bytes(1000))
            await asyncio.sleep(0.001)
        with pytest.raises(LinkError, match="there may not have got our goodbye: the peer went on sending"):
            await ending
        writer.close()


async def test_who_does_not_read_is_cut_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutdown, "IDLE_S", 0.1)
    async with Server().serving() as server:
        ending, _, writer = await ended(server, bytes(32 << 20))
        with pytest.raises(LinkError, match="the peer did not read it"):
            await ending
        writer.close()
