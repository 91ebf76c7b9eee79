"""What one MQTT message costs our engine, without broker or recording: nanoseconds and bytes.

Run `python benchmarks/micro_mqtt.py [--connections N]`. Best of several rounds, so read it as a floor.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import numpy as np
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
)
from battlebrokers.protocols.mqtt.connection import Connection
from battlebrokers.protocols.mqtt.link import MqttLink
from battlebrokers.protocols.mqtt.packets import ConnAck
from battlebrokers.protocols.mqtt.publishing import joined_frames, matrix_frames
from battlebrokers.protocols.mqtt.receiving import PUBACK, acknowledgements
from battlebrokers.protocols.wheel import wheel_of


class Ear:
    """A listener that does nothing."""

    now_ns = staticmethod(time.monotonic_ns)

    def acknowledged(
        self, link: Link, tokens: Sequence[int], at_ns: int, completion: Completion, reason: int
    ) -> None: ...
    def resent(self, link: Link, tokens: Sequence[int]) -> None: ...
    def arrived(self, link: Link, at_ns: int, flags: int, topic: bytes, payload: bytes, wire_size: int) -> None: ...
    def arrived_many(self, link: Link, at_ns: int, arrivals: Arrivals | EqualArrivals) -> None: ...
    def writable(self, link: Link) -> None: ...
    def closed(self, link: Link, detail: str, reason: int) -> None: ...
    def malformed(self, link: Link, detail: str, kind: Failure = Failure.MALFORMED) -> None: ...


class Nowhere(asyncio.Transport):
    """A transport that swallows everything at once."""

    def write(self, data: object) -> None: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None: ...


def best_ns(action: Callable[[], object], messages: int, rounds: int = 7, seconds: float = 0.15) -> float:
    """Nanoseconds of our CPU time a message in the best round (other processes may be busy)."""
    started = time.thread_time_ns()
    action()
    repeats = max(1, int(seconds * 1e9 / max(1000, time.thread_time_ns() - started)))
    best = float("inf")
    for _ in range(rounds):
        started = time.thread_time_ns()
        for _ in range(repeats):
            action()
        best = min(best, (time.thread_time_ns() - started) / repeats / messages)
    return best


def opened(version: str = "3.1.1") -> tuple[MqttLink, Connection]:
    """A link that believes to be connected."""
    loop = asyncio.get_running_loop()
    link = MqttLink(Endpoint("tcp", "nowhere", 1883), LinkOptions("bench", version=version, keep_alive_s=0), Ear())
    connection = Connection(link, wheel_of(loop), loop.create_future())
    connection.connection_made(Nowhere())
    connection.welcome = None
    link.welcomed(connection, ConnAck(), 0)
    return link, connection


def show(name: str, version: str, ns: float) -> None:
    print(f"{name:<44} MQTT {version:<6} {ns:9.0f} ns/message")


TOPIC = b"bench/device/0042"
RNG = np.random.default_rng(1)
PAYLOADS = RNG.integers(0, 256, (100, 64), np.uint8)
SEVERAL = [RNG.bytes(int(size)) for size in RNG.integers(40, 120, 100)]
ACKS = acknowledgements(PUBACK, np.arange(1, 65_536))


def publish_and_ack(link: MqttLink, connection: Connection, outgoing: Outgoing) -> None:
    first, count = link.session.next_id, outgoing.count
    if first + count > 65_535:
        link.session.next_id = first = 1
    link.publish(outgoing)
    connection.data_received(ACKS[first * 4 - 4 : (first + count) * 4 - 4])


def publishing(version: str) -> None:
    link, connection = opened(version)
    batch, one = Outgoing(TOPIC, PAYLOADS, 0, False, 0), Outgoing(TOPIC, PAYLOADS[:1], 0, False, 0)
    listed = Outgoing(TOPIC, SEVERAL, 0, False, 0)
    show("publish QoS 0, 100 x 64 B", version, best_ns(partial(link.publish, batch), 100))
    show("publish QoS 0, single 64 B", version, best_ns(partial(link.publish, one), 1))
    show("publish QoS 0, list of 100 sizes", version, best_ns(partial(link.publish, listed), 100))
    for count in (100, 1):
        outgoing = Outgoing(TOPIC, PAYLOADS[:count], 1, False, 0)
        run = partial(publish_and_ack, link, connection, outgoing)
        show(f"publish QoS 1 and PUBACK, batch of {count}", version, best_ns(run, count))


def receiving(version: str, qos: int) -> None:
    _, connection = opened(version)
    properties = b"\x00" if version == "5" else b""
    first_byte = 0x30 | qos << 1
    bulk = np.tile(PAYLOADS, (6, 1))
    mixed = joined_frames(TOPIC, first_byte, properties, SEVERAL * 6, 1)
    chunks = {
        "600 equal frames": (600, [matrix_frames(TOPIC, first_byte, properties, bulk, 1).tobytes()]),
        "600 mixed frames": (600, [mixed]),
        "600 mixed frames in 2 chunks": (600, [mixed[:20_011], mixed[20_011:]]),
        "6 mixed frames": (6, [joined_frames(TOPIC, first_byte, properties, SEVERAL[:6], 1)]),
        "single frame": (1, [joined_frames(TOPIC, first_byte, properties, [PAYLOADS[0].tobytes()], 1)]),
    }
    for name, (count, parts) in chunks.items():

        def run(parts: list[bytes] = parts) -> None:
            for part in parts:
                connection.data_received(part)

        show(f"receive QoS {qos}, {name}", version, best_ns(run, count))


async def engine() -> None:
    """Costs without a socket."""
    for version in ("3.1.1", "5"):
        publishing(version)
        receiving(version, 0)
        receiving(version, 1)


def sink(pipe: Pipe) -> None:
    """A server that welcomes everybody, then only reads."""

    class Host(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert hasattr(transport, "write")
            transport.write(b"\x20\x02\x00\x00")

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(Host, "127.0.0.1", 0, backlog=4096)
        pipe.send(server.sockets[0].getsockname()[1])
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)

    uvloop.run(serve())


async def idle(port: int, connections: int) -> None:
    """What holding an idle connection costs."""
    endpoint, ear = Endpoint("tcp", "127.0.0.1", port), Ear()
    warm = [MqttLink(endpoint, LinkOptions(f"warm-{n}"), ear) for n in range(20)]
    await asyncio.gather(*(link.open() for link in warm))
    gc.collect()
    process = psutil.Process()
    before = process.memory_info().rss
    started = time.perf_counter()
    links = [MqttLink(endpoint, LinkOptions(f"device-{n:05}"), ear) for n in range(connections)]
    for begin in range(0, connections, 100):
        await asyncio.gather(*(link.open() for link in links[begin : begin + 100]))
    took = time.perf_counter() - started
    gc.collect()
    each = (process.memory_info().rss - before) / connections
    print(f"{f'{connections} idle connections':<57}{each:9.0f} bytes each, opened at {connections / took:.0f}/s")
    for link in links + warm:
        link.abort()


async def socket_write(port: int) -> None:
    """What one small message into a real socket costs."""
    link = MqttLink(Endpoint("tcp", "127.0.0.1", port), LinkOptions("one", keep_alive_s=0), Ear())
    await link.open()
    outgoing = Outgoing(TOPIC, PAYLOADS[:1], 0, False, 0)
    left, right = socket.socketpair()
    data = bytes(83)
    raw = best_ns(lambda: (left.send(data), right.recv(1000)), 1)
    left.close()
    right.close()

    def publish() -> None:
        if link.room(0):
            link.publish(outgoing)

    print(f"{'publish QoS 0, single, into a TCP socket':<57}{best_ns(publish, 1, 3):9.0f} ns/message")
    print(f"{'(a bare send and recv on a socket pair here)':<57}{raw:9.0f} ns")
    link.abort()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--only", choices=("engine", "sockets"))
    options = parser.parse_args()
    print(f"load average {Path('/proc/loadavg').read_text().split()[0]}; CPU time of this process, best round")
    if options.only != "engine":
        ours, theirs = multiprocessing.Pipe()
        server = multiprocessing.get_context("spawn").Process(target=sink, args=(theirs,), daemon=True)
        server.start()
        port = ours.recv()
        uvloop.run(idle(port, options.connections))
        uvloop.run(socket_write(port))
        ours.send(None)
        server.join()
    if options.only != "sockets":
        uvloop.run(engine())


if __name__ == "__main__":
    main()
