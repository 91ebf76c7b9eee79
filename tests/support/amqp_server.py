"""An AMQP 0-9-1 server whose every word is the test's; it only lets clients in by itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from pamqp import base, body, commands, frame, header

WITHIN_S = 60.0
USUAL = {
    "Channel.Open": commands.Channel.OpenOk,
    "Basic.Qos": commands.Basic.QosOk,
    "Confirm.Select": commands.Confirm.SelectOk,
    "Queue.Bind": commands.Queue.BindOk,
    "Queue.Unbind": commands.Queue.UnbindOk,
    "Connection.Close": commands.Connection.CloseOk,
    "Channel.Close": commands.Channel.CloseOk,
}


class Peer:
    """One connection as the server sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def read(self) -> tuple[int, object]:
        """The channel and the next frame of the client."""
        head = await self.reader.readexactly(7)
        size = int.from_bytes(head[3:7], "big")
        return frame.unmarshal(head + await self.reader.readexactly(size + 1))[1:]

    async def until(self, name: str) -> base.Frame:
        """Answer as usual until a method of that name comes."""
        while True:
            channel, got = await asyncio.wait_for(self.read(), WITHIN_S)
            if getattr(got, "name", "") == name:
                return got  # type: ignore[return-value]
            self.usual(channel, got)

    async def content(self) -> bytes:
        """The next message the client publishes."""
        await self.until("Basic.Publish")
        _, head = await self.read()
        assert isinstance(head, header.ContentHeader)
        whole = b""
        while len(whole) < head.body_size:
            _, part = await self.read()
            assert isinstance(part, body.ContentBody)
            whole += part.value
        return whole

    def usual(self, channel: int, got: object) -> None:
        """What a broker says to requests that are fine."""
        match got:
            case commands.Queue.Declare():
                self.send(channel, commands.Queue.DeclareOk(got.queue or "made-up", 0, 0))
            case commands.Basic.Consume():
                self.send(channel, commands.Basic.ConsumeOk(got.consumer_tag))
            case base.Frame() if got.name in USUAL:
                self.send(channel, USUAL[got.name]())

    def send(self, channel: int, *frames: object) -> None:
        self.writer.write(b"".join(frame.marshal(each, channel) for each in frames))  # type: ignore[arg-type]

    def deliver(self, tag: int, key: str, payload: bytes, *, consumer: str = "1", mode: int = 2) -> bytes:
        """A message for the client, as bytes."""
        parts = [
            commands.Basic.Deliver(consumer, tag, False, "amq.topic", key),
            header.ContentHeader(0, len(payload), commands.Basic.Properties(delivery_mode=mode)),
        ]
        parts += [body.ContentBody(payload[at : at + 4000]) for at in range(0, len(payload), 4000)]
        return b"".join(frame.marshal(part, 1) for part in parts)  # type: ignore[arg-type]

    def cut(self) -> None:
        """Vanish."""
        self.writer.transport.abort()


class AmqpServer:
    """Listens, and gives the test each client."""

    def __init__(self) -> None:
        self.port = 0
        self._peers: asyncio.Queue[Peer] = asyncio.Queue()
        self._all: list[Peer] = []

    async def accept(self) -> Peer:
        """The next connection, nothing said."""
        return await asyncio.wait_for(self._peers.get(), WITHIN_S)

    async def welcome(self, *, heartbeat: int = 0, frame_max: int = 8192) -> Peer:
        """The next connection, let in, its channels open."""
        peer = await self.accept()
        assert await peer.reader.readexactly(8) == b"AMQP\x00\x00\x09\x01"
        peer.send(0, commands.Connection.Start(0, 9, {}, "PLAIN", "en_US"))
        self.introduction = await peer.until("Connection.StartOk")
        peer.send(0, commands.Connection.Tune(0, frame_max, heartbeat))
        await peer.until("Connection.Open")
        peer.send(0, commands.Connection.OpenOk())
        return peer

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[AmqpServer]:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            peer = Peer(reader, writer)
            self._all.append(peer)
            await self._peers.put(peer)

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for peer in self._all:
                peer.cut()
