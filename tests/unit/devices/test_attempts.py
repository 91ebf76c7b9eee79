"""Clients of servers that answer wrongly when they connect: every link's attempt is recorded with its kind."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from battlebrokers.clock import Anchor
from battlebrokers.devices.node import Node
from battlebrokers.devices.stopwatch import Stopwatch
from battlebrokers.protocols import shutdown
from battlebrokers.protocols.base import Endpoint, Failure, LinkOptions, TlsFiles
from battlebrokers.protocols.registry import make_link
from battlebrokers.record.recorder import Recorder
from battlebrokers.scenario.plan import ConnectionPlan
from battlebrokers.tables import OPERATIONS
from support.certificates import Authority
from support.ports import free_port
from support.websocket_hub import hub_script

TRANSPORTS = {"mqtt": ("tcp", "tls"), "http": ("tcp", "tls"), "websocket": ("ws", "wss"), "amqp": ("tcp", "tls")}
Greet = Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]


@asynccontextmanager
async def server(greet: Greet, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    writers: list[asyncio.StreamWriter] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        greet(reader, writer)

    serving = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context)
    yield serving.sockets[0].getsockname()[1]
    serving.close()
    for writer in writers:
        writer.transport.abort()


async def attempted(
    protocol: str, transport: str, port: int, folder: Path, ca: Path | None = None
) -> dict[str, object]:
    """What a node records of one connect."""
    node = node_of(protocol, transport, port, folder, 0.5, ca)
    assert not await node.connect()
    (row,) = recorded(node, folder)
    return row


def node_of(
    protocol: str, transport: str, port: int, folder: Path, timeout_s: float, ca: Path | None = None
) -> Node:  # fmt: skip
    watch = Stopwatch(Anchor.take(), Recorder(folder, "worker-0"))
    script = hub_script() if protocol == "websocket" else None
    options = LinkOptions("c", connect_timeout_s=timeout_s, tls=TlsFiles(ca=ca) if ca else None, script=script)
    link = make_link(protocol, Endpoint(transport, "127.0.0.1", port, "/"), options, watch)
    plan = ConnectionPlan(protocol, "", transport, "c", None, None, True, 0, 60, 65_535, 65_535, False, None, None)
    return Node(0, link, watch, plan, seed=1, away=None)


def recorded(node: Node, folder: Path) -> list[dict[str, object]]:
    node.stopwatch.recorder.finish(node.stopwatch.now_ns())
    rows: list[dict[str, object]] = pq.read_table(folder / OPERATIONS.folder).to_pylist()
    return rows


@pytest.mark.parametrize("protocol", [name for name in TRANSPORTS if name != "http"])
async def test_silence_is_a_timeout_whatever_the_words(tmp_path: Path, protocol: str) -> None:
    async with server(lambda *_: None) as port:
        row = await attempted(protocol, TRANSPORTS[protocol][0], port, tmp_path)
    assert (row["outcome"], row["reason"]) == ("timeout", Failure.TIMEOUT)


@pytest.mark.parametrize("protocol", [name for name in TRANSPORTS if name != "http"])
async def test_a_server_that_closes_at_once_is_no_timeout(tmp_path: Path, protocol: str) -> None:
    async with server(lambda _, writer: writer.close()) as port:
        row = await attempted(protocol, TRANSPORTS[protocol][0], port, tmp_path)
    assert (row["outcome"], row["reason"]) == ("error", Failure.CLOSED)


@pytest.mark.parametrize("protocol", TRANSPORTS)
async def test_nobody_listening_is_closed(tmp_path: Path, protocol: str) -> None:
    row = await attempted(protocol, TRANSPORTS[protocol][0], free_port(), tmp_path)
    assert (row["outcome"], row["reason"]) == ("error", Failure.CLOSED)


@pytest.mark.parametrize("protocol", [name for name in TRANSPORTS if name != "http"])
async def test_nonsense_is_malformed(tmp_path: Path, protocol: str) -> None:
    async with server(lambda _, writer: writer.write(b"\xff\x00\x00\x00\x00\x00\x00\x00\r\n\r\n")) as port:
        row = await attempted(protocol, TRANSPORTS[protocol][0], port, tmp_path)
    assert (row["outcome"], row["reason"]) == ("error", Failure.MALFORMED)


@pytest.mark.parametrize("trusted", [True, False], ids=["not TLS at all", "an authority nobody trusts"])
@pytest.mark.parametrize("protocol", TRANSPORTS)
async def test_tls_that_cannot_be_made_is_told_as_such(tmp_path: Path, protocol: str, trusted: bool) -> None:
    authority = Authority(tmp_path)
    context = None
    if not trusted:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*Authority(tmp_path, "other").sign("server", server=True))
    async with server(lambda _, writer: writer.write(b"I speak no TLS\r\n"), context) as port:
        row = await attempted(protocol, TRANSPORTS[protocol][1], port, tmp_path / "run", authority.path)
    assert (row["outcome"], row["reason"]) == ("error", Failure.TLS)


@pytest.mark.parametrize("clean", [True, False])
async def test_a_disconnect_that_had_to_be_cut_is_not_recorded_as_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: bool
) -> None:
    monkeypatch.setattr(shutdown, "MOST_BYTES", 1 << 20 if clean else 1000)
    written: list[asyncio.StreamWriter] = []

    def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x20\x02\x00\x00")
        written.append(writer)

    async with server(greet) as port:
        node = node_of("mqtt", "tcp", port, tmp_path, 60.0)
        assert await node.connect()
        node.link.pause_reading()
        written[0].write(b"\xd0\x00" * 1000)
        await written[0].drain()
        if clean:
            written[0].close()
        await node.stop()
    last = recorded(node, tmp_path)[-1]
    assert last["kind"] == "disconnect"
    assert (last["outcome"], last["reason"]) == (("ok", None) if clean else ("timeout", Failure.TIMEOUT))
