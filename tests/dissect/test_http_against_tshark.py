"""HTTP and WebSocket spoken by real servers: methods, codes, pairs, times and frames are tshark's.

Deviations, with their reasons:

- tshark tells a response at its last frame and measures from there: times are compared to the end of our response.
- A response that lasts until the end of the connection ends for tshark with the FIN, for us with its last byte.
- With pipelining tshark 4.0 pairs only the latest request, and takes the answer to a HEAD for one with a body: only
  counts are compared there, and no HEAD is sent.
- tshark counts WebSocket frames, we messages: nothing is sent in fragments here.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from support.ports import free_port
from support.wiretap import needs, overheard, tshark, until, wiretap

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("http"),
    pytest.mark.broker,
    needs("tshark", "dumpcap", why="(apt install tshark)"),
]
OPCODES = {"1": "TEXT", "2": "BINARY", "8": "CLOSE", "9": "PING", "10": "PONG"}


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        body = b"x" * int(self.path.rpartition("/")[2] or 0)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.startswith("/chunked"):
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for start in range(0, len(body), 700):
                part = body[start : start + 700]
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")
            return
        self.send_response(404 if self.path.startswith("/none") else 204 if self.path.startswith("/empty") else 200)
        if self.path.startswith("/close"):
            self.send_header("Connection", "close")
            self.close_connection = True
        elif not self.path.startswith("/empty"):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD" and not self.path.startswith("/empty"):
            self.wfile.write(body)

    do_GET = do_POST = do_HEAD = do_PUT = do_DELETE = answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Be quiet."""


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made.server_address[1]
    made.shutdown()
    thread.join(60)


def say(port: int, *groups: bytes) -> None:
    """One connection; each group is sent at once and its answers awaited by silence."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        for group in groups:
            line.sendall(group)
            line.settimeout(0.4)
            try:
                while line.recv(65536):
                    pass
            except TimeoutError:
                continue


def request(method: bytes, path: bytes, body: bytes = b"") -> bytes:
    length = b"Content-Length: %d\r\n" % len(body) if body else b""
    return method + b" " + path + b" HTTP/1.1\r\nHost: here\r\n" + length + b"\r\n" + body


def test_methods_codes_pairs_and_times_are_tsharks(server: int, tmp_path: Path) -> None:
    capture = tmp_path / "http.pcapng"
    one_by_one = [
        request(b"GET", b"/a/100"), request(b"HEAD", b"/a/5000"), request(b"POST", b"/b/10", b"p" * 5000),
        request(b"GET", b"/chunked/3000"), request(b"DELETE", b"/empty/0"), request(b"GET", b"/none/20"),
        request(b"PUT", b"/a/200000", b"q" * 100_000), request(b"GET", b"/close/700"),
    ]  # fmt: skip
    with wiretap(capture, server):
        say(server, *one_by_one)
        say(server, b"".join(one_by_one[2:6]), b"".join(one_by_one[2:4] + one_by_one[:1]))
    fields = ["tcp.stream", "http.request.method", "http.response.code", "http.time", "http.response_for.uri"]
    rows = tshark(capture, fields, decode_as=f"tcp.port=={server},http", only="http")
    said = overheard(capture, server)
    assert [one.stream.protocol for one in said] == ["http", "http"]
    found = [told.found for one in said for told in one.messages]
    methods = Counter(method for row in rows for method in row["http.request.method"])
    codes = Counter(code for row in rows for code in row["http.response.code"])
    assert Counter(row.kind for row in found) == methods + codes
    assert sum(methods.values()) == sum(codes.values()) == 15
    assert sum(one.stream.malformed + one.stream.undecoded_bytes for one in said) == 0
    exchanges = [row for one in said for row in one.exchanges]
    assert all(row.response is not None for row in exchanges)
    assert len(exchanges) == 15

    first = [row for row in rows if row["tcp.stream"] == ["0"] and row["http.response.code"]]
    theirs = [
        (row["http.response_for.uri"][0].partition("here")[2], row["http.response.code"][0], float(row["http.time"][0]))
        for row in first
    ]
    ours = [
        (row.request.found.name, row.response.found.kind, (row.response.last_ns - row.request.last_ns) / 1e9)
        for row in said[0].exchanges
    ]
    assert [row[:2] for row in ours] == [row[:2] for row in theirs]
    assert [row[2] for row in ours[:-1]] == pytest.approx([row[2] for row in theirs[:-1]], abs=1e-6)
    assert ours[-1][2] <= theirs[-1][2]


@pytest.mark.parametrize("compression", [None, "deflate"])
def test_websocket_frames_are_tsharks(tmp_path: Path, compression: str | None) -> None:
    websockets = pytest.importorskip("websockets", reason="websockets is not installed")
    port = free_port()
    capture = tmp_path / "websocket.pcapng"
    ready, done = threading.Event(), threading.Event()

    async def echo(connection) -> None:
        async for message in connection:
            await connection.send(message)
        await connection.wait_closed()

    async def serve() -> None:
        async with websockets.serve(echo, "127.0.0.1", port, compression=compression, ping_interval=None):
            ready.set()
            await asyncio.to_thread(done.wait)

    async def ask() -> None:
        uri = f"ws://127.0.0.1:{port}/echo"
        async with websockets.connect(uri, compression=compression, ping_interval=None) as line:
            for number in range(20):
                await line.send(f"text number {number} " + "again and again " * number)
                await line.recv()
                await line.send(bytes(range(256)) * number)
                await line.recv()
            await (await line.ping())

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    until(ready.is_set, what="the server")
    try:
        with wiretap(capture, port):
            asyncio.run(ask())
    finally:
        done.set()
        thread.join(60)
    rows = tshark(
        capture, ["websocket.opcode", "websocket.payload.text"], decode_as=f"tcp.port=={port},http", only="websocket"
    )
    (one,) = overheard(capture, port)
    assert one.stream.protocol == "websocket"
    messages = [told.found for told in one.messages if told.found.protocol == "websocket"]
    assert Counter(row.kind for row in messages) == Counter(
        OPCODES[code] for row in rows for code in row["websocket.opcode"]
    )
    assert one.stream.malformed == one.stream.undecoded_bytes == 0
    texts = Counter(len(text) for row in rows for text in row["websocket.payload.text"])
    assert Counter(row.payload_bytes for row in messages if row.kind == "TEXT") == texts
    pairs = [(row.request.found.kind, row.response.found.kind) for row in one.exchanges]
    assert pairs == [("GET", "101"), ("PING", "PONG")]
    sent = Counter(row.fingerprint for row in messages if row.sender == 0 and row.kind in ("TEXT", "BINARY"))
    assert sent == Counter(row.fingerprint for row in messages if row.sender == 1 and row.kind in ("TEXT", "BINARY"))
