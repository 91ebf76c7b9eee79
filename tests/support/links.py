"""A listener that remembers, a broker that follows a script, and a real Mosquitto: what link tests are made of."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from battlebrokers.protocols.base import Arrivals, Completion, Endpoint, Failure, Link, LinkOptions
from battlebrokers.protocols.mqtt.connection import Connection
from battlebrokers.protocols.mqtt.decode import decode
from battlebrokers.protocols.mqtt.encode import encode
from battlebrokers.protocols.mqtt.framing import split_frames
from battlebrokers.protocols.mqtt.link import MqttLink
from battlebrokers.protocols.mqtt.packets import ConnAck, Connect, Packet
from battlebrokers.protocols.wheel import wheel_of
from support.ports import free_port

WITHIN_S = 60.0


@dataclass(frozen=True)
class Heard:
    """One arrival, whichever way it was told."""

    flags: int
    topic: bytes
    payload: bytes
    wire_size: int

    @property
    def retain(self) -> bool:
        return bool(self.flags & 1)

    @property
    def qos(self) -> int:
        return self.flags >> 1 & 3

    @property
    def dup(self) -> bool:
        return bool(self.flags & 8)


@dataclass
class Ear:
    """Remembers everything it is told."""

    messages: list[Heard] = field(default_factory=list)
    bulks: list[int] = field(default_factory=list)
    acked: list[int] = field(default_factory=list)
    refused: list[tuple[int, int]] = field(default_factory=list)
    reasons: list[int] = field(default_factory=list)
    again: list[int] = field(default_factory=list)
    writable_calls: int = 0
    closings: list[tuple[str, int]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    fault_kinds: list[Failure] = field(default_factory=list)
    stamps: list[int] = field(default_factory=list)
    on_writable: Callable[[Link], None] | None = None

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def acknowledged(self, link: Link, tokens: Sequence[int], at_ns: int, completion: Completion, reason: int) -> None:
        self.stamps.append(at_ns)
        self.reasons.append(reason)
        if completion is Completion.ACKED:
            self.acked += tokens
        else:
            self.refused += [(token, reason) for token in tokens]

    def resent(self, link: Link, tokens: Sequence[int]) -> None:
        self.again += tokens

    def arrived(self, link: Link, at_ns: int, flags: int, topic: bytes, payload: bytes, wire_size: int) -> None:
        self.stamps.append(at_ns)
        self.messages.append(Heard(flags, topic, payload, wire_size))

    def arrived_many(self, link: Link, at_ns: int, arrivals: Arrivals) -> None:
        self.stamps.append(at_ns)
        self.bulks.append(len(arrivals.flags))
        columns = (
            arrivals.flags,
            arrivals.topic_starts,
            arrivals.topic_sizes,
            arrivals.payload_starts,
            arrivals.payload_sizes,
            arrivals.wire_sizes,
        )
        for flags, topic, topic_size, payload, payload_size, wire in zip(*(c.tolist() for c in columns), strict=True):
            data = arrivals.data
            heard = Heard(flags, data[topic : topic + topic_size], data[payload : payload + payload_size], wire)
            self.messages.append(heard)

    def writable(self, link: Link) -> None:
        self.writable_calls += 1
        if self.on_writable is not None:
            self.on_writable(link)

    def closed(self, link: Link, detail: str, reason: int) -> None:
        self.closings.append((detail, reason))

    def malformed(self, link: Link, detail: str, kind: Failure = Failure.MALFORMED) -> None:
        self.faults.append(detail)
        self.fault_kinds.append(kind)

    @property
    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.messages]


async def until(condition: Callable[[], object], within_s: float = WITHIN_S) -> None:
    """Wait for a condition; fails when it does not come true."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "what the test waits for did not happen"
        await asyncio.sleep(0.002)


class Peer:
    """One connection as the scripted broker sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self.reader = reader
        self.writer = writer
        self.version = version

    async def read(self) -> Packet:
        """The next packet of the client."""
        first = (await self.reader.readexactly(1))[0]
        length = shift = 0
        while True:
            byte = (await self.reader.readexactly(1))[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        packet = decode(first, await self.reader.readexactly(length), self.version)
        if isinstance(packet, Connect):
            self.version = packet.version
        return packet

    async def read_many(self, count: int) -> list[Packet]:
        """The next packets of the client."""
        return [await self.read() for _ in range(count)]

    async def expect(self, packet: Packet) -> None:
        """The next packet must be this one."""
        assert await asyncio.wait_for(self.read(), WITHIN_S) == packet

    async def silence(self, seconds: float = 0.05) -> None:
        """Nothing more must come."""
        with contextlib.suppress(TimeoutError):
            data = await asyncio.wait_for(self.reader.read(1), seconds)
            raise AssertionError(f"expected silence, got {data!r}")

    def send(self, *packets: Packet | bytes) -> None:
        """Write packets, or any bytes, in one piece."""
        self.writer.write(b"".join(p if isinstance(p, bytes) else encode(p, self.version) for p in packets))

    async def ended(self) -> bytes:
        """Wait until the client has closed; what it still said."""
        try:
            return await asyncio.wait_for(self.reader.read(), WITHIN_S)
        except ConnectionResetError:
            return b""

    def close(self) -> None:
        self.writer.close()


class ScriptedBroker:
    """A server whose every word is the test's."""

    def __init__(self, version: int = 4) -> None:
        self.version = version
        self.port = 0
        self._peers: asyncio.Queue[Peer] = asyncio.Queue()
        self._all: list[Peer] = []

    async def accept(self) -> Peer:
        """The next connection, before anything was read."""
        return await asyncio.wait_for(self._peers.get(), WITHIN_S)

    async def welcome(self, answer: ConnAck | None = None, *following: Packet | bytes) -> Peer:
        """The next connection, its CONNECT read and answered."""
        peer = await self.accept()
        peer.hello = await peer.read()  # type: ignore[attr-defined]
        peer.send(answer or ConnAck(), *following)
        return peer

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[ScriptedBroker]:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            peer = Peer(reader, writer, self.version)
            self._all.append(peer)
            await self._peers.put(peer)

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for peer in self._all:
                peer.writer.transport.abort()


@contextlib.contextmanager
def mosquitto(folder: Path, *lines: str, listeners: Sequence[Sequence[str]] = ((),)) -> Iterator[list[int]]:
    """A Mosquitto with one listener for each group of lines; yields their ports."""
    ports = [free_port() for _ in listeners]
    config = ["persistence false", "log_type error", "max_inflight_messages 0", "max_queued_messages 0", *lines]
    if not any(line.startswith("allow_anonymous") for line in lines):
        config.append("allow_anonymous true")
    for port, own in zip(ports, listeners, strict=True):
        config += [f"listener {port} 127.0.0.1", *own]
    path = folder / f"mosquitto-{ports[0]}.conf"
    path.write_text("\n".join(config) + "\n")
    log = folder / f"mosquitto-{ports[0]}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(["mosquitto", "-c", str(path)], stdout=out, stderr=out)
    try:
        for port in ports:
            _wait_for_port(port, process, log)
        yield ports
    finally:
        process.terminate()
        process.wait(60)


def _wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + WITHIN_S
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, "Mosquitto does not listen"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
            return
        time.sleep(0.01)


class Wire(asyncio.Transport):
    """A transport without a socket: keeps what is written, and is full when told so."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.unsent_bytes = 0
        self.aborted = False
        self.closed = False
        self.reading = True

    def write(self, data: object) -> None:
        self.written += data  # type: ignore[arg-type]

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limits = (high, low)

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.closed = True

    def take(self) -> bytes:
        """What was written since the last time."""
        taken = bytes(self.written)
        self.written.clear()
        return taken


@dataclass
class Bench:
    """A link that is connected to nothing: bytes are put in and taken out by hand."""

    version: str = "3.1.1"
    welcome: ConnAck = ConnAck()  # noqa: RUF009 - immutable
    options: dict[str, object] = field(default_factory=dict)
    ear: Ear = field(default_factory=Ear)

    def __post_init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        options = LinkOptions("bench", version=self.version, keep_alive_s=0, **self.options)  # type: ignore[arg-type]
        self.link = MqttLink(Endpoint("tcp", "nowhere", 1883), options, self.ear)
        self.connect(self.welcome)

    def connect(self, welcome: ConnAck) -> None:
        """A new connection, as after `open`."""
        self.wire = Wire()
        self.connection = Connection(self.link, wheel_of(self.loop), self.loop.create_future())
        self.connection.connection_made(self.wire)
        self.receive(encode(welcome, self.link.version))

    def receive(self, *chunks: bytes) -> None:
        for chunk in chunks:
            self.connection.data_received(chunk)

    def frames(self) -> list[bytes]:
        """What was written since the last time, frame by frame."""
        data = self.wire.take()
        return [data[start:end] for start, _, end in split_frames(data).frames]

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.link.abort()
        self.loop.close()
