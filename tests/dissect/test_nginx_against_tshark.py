"""HTTP spoken by a real nginx: methods, codes, pairs and times are tshark's, for everything nginx does with files.

Deviations, with their reasons (see `test_http_against_tshark` too):

- tshark tells a response at its last frame: times are compared to the end of our response.
- With pipelining tshark 4.0 pairs only the latest request, and takes the answer to a HEAD for one with a body: only
  counts are compared there, and no HEAD is sent.
- nginx answers a POST it refuses before it has heard all of it: tshark gives no time there, ours is negative.
"""

from __future__ import annotations

import http.client
import socket
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.conversation import Heard
from support.ports import free_port
from support.wiretap import Beacon, capturing, found, listens, needs, overheard, running, tshark, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("nginx"),
    pytest.mark.broker,
    needs("tshark", "dumpcap", "nginx", why="(apt install tshark nginx-light)"),
]
LARGE_BYTES = 1 << 20
FIELDS = ["tcp.stream", "http.request.method", "http.response.code", "http.time", "http.request.uri", "http.host"]
CONFIGURATION = """
daemon off; master_process off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off; keepalive_timeout 20s; default_type application/octet-stream; types {{ text/plain txt; }}
  gzip on; gzip_min_length 1; gzip_types text/plain;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port}; root {folder}/files;
    location /told {{ return 200 "told\\n"; }}
    location /moved {{ return 301 /small.bin; }}
    location /proxied/ {{ proxy_pass http://127.0.0.1:{port}/; proxy_buffering off; }}
  }}
}}
"""


@dataclass(frozen=True)
class Ask:
    method: str
    path: str
    code: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def words(self) -> bytes:
        lines = [
            f"{self.method} {self.path} HTTP/1.1",
            "Host: here",
            *(f"{name}: {text}" for name, text in self.headers),
        ]
        lines += [f"Content-Length: {len(self.body)}"] if self.body else []
        return "\r\n".join([*lines, "", ""]).encode() + self.body


FILES = [
    Ask("GET", "/small.bin", 200), Ask("HEAD", "/large.bin", 200), Ask("GET", "/none.bin", 404),
    Ask("GET", "/words.txt", 200, (("Accept-Encoding", "gzip"),)),  # chunked, for its length is not known before
    Ask("GET", "/large.bin", 200), Ask("GET", "/large.bin", 206, (("Range", "bytes=100-4099"),)),
    Ask("GET", "/large.bin", 206, (("Range", "bytes=0-99,5000-5099"),)),
    Ask("GET", "/large.bin", 416, (("Range", f"bytes={LARGE_BYTES}-"),)), Ask("GET", "/empty.bin", 200),
    Ask("GET", "/moved", 301), Ask("GET", "/folder", 301), Ask("HEAD", "/none.bin", 404),
    Ask("OPTIONS", "/small.bin", 405), Ask("GET", "/small.bin", 304), Ask("HEAD", "/small.bin", 304),
]  # fmt: skip
"""One after the other on one connection."""
POSTED = [
    Ask("POST", "/small.bin", 405, body=b"p" * 20_000), FILES[0], Ask("POST", "/told", 200, body=b"q" * 3000),
]  # fmt: skip
PROXIED = [Ask("GET", "/proxied/small.bin", 200), Ask("GET", "/proxied/none.bin", 404)]
PIPELINED = [one for one in FILES if one.method == "GET" and one.code in (200, 206, 301, 404)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("nginx")
    (folder / "files" / "folder").mkdir(parents=True)
    for name, content in {
        "small.bin": b"s" * 700, "large.bin": bytes(range(256)) * (LARGE_BYTES // 256), "empty.bin": b"",
        "words.txt": b"".join(b"line %d of many\n" % n for n in range(5000)),
    }.items():  # fmt: skip
        (folder / "files" / name).write_bytes(content)
    port = free_port()
    (folder / "nginx.conf").write_text(CONFIGURATION.format(folder=folder, port=port))
    # Workers of a daemon started by root run as somebody else; without a master it is one process that may read all.
    program = str(found("nginx"))
    with running([program, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")]):
        until(lambda: listens(port), what="nginx")
        yield port


def ask_one_by_one(port: int, asks: list[Ask]) -> list[tuple[str, str, str]]:
    """Over one kept connection; returns what was asked and answered."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    done, tag = [], ""
    for ask in asks:
        headers = dict(ask.headers) | ({"If-None-Match": tag} if ask.code == 304 else {})
        line.request(ask.method, ask.path, body=ask.body or None, headers={"Host": "here", **headers})
        answer = line.getresponse()
        content = answer.read()
        assert answer.status == ask.code, ask
        if ask.path == "/words.txt":
            assert answer.headers["Transfer-Encoding"] == "chunked"
        if ask.path == "/small.bin" and ask.code == 200:
            tag = answer.headers["ETag"]
            assert content == b"s" * 700
        done.append((ask.method, ask.path, str(ask.code)))
    line.close()
    return done


def ask_at_once(port: int, asks: list[Ask]) -> None:
    """All in one breath, and then no more."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        line.sendall(b"".join(ask.words() for ask in asks[:-1]))
        last = Ask(asks[-1].method, asks[-1].path, asks[-1].code, (("Connection", "close"),))
        line.sendall(last.words())
        while line.recv(65536):
            pass


def spoken(one: Heard) -> list[tuple[str, str, str, float]]:
    """Method, path, code and seconds of every exchange of a conversation."""
    return [
        (
            row.request.found.kind, row.request.found.name, row.response.found.kind,
            (row.response.last_ns - row.request.last_ns) / 1e9,
        )
        for row in one.exchanges
    ]  # fmt: skip


def told_by_tshark(rows: list[dict[str, list[str]]], stream: int) -> list[tuple[str, str, str, float | None]]:
    """The same: its requests and responses of one connection, which were never pipelined, in their order."""
    mine = [row for row in rows if row["tcp.stream"] == [str(stream)]]
    requests = [row for row in mine if row["http.request.method"]]
    answers = [row for row in mine if row["http.response.code"]]
    return [
        (request["http.request.method"][0], request["http.request.uri"][0], answer["http.response.code"][0],
         float(answer["http.time"][0]) if answer["http.time"] else None)
        for request, answer in zip(requests, answers, strict=True)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def conversation(server: int, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, list[tuple[str, str, str]]]:
    capture = tmp_path_factory.mktemp("wire") / "nginx.pcapng"
    # A large body comes in packets of 64 KiB, more at once than dumpcap keeps by itself.
    with Beacon() as beacon:
        filters = f"port {server} or port {beacon.port}"
        tap = ["dumpcap", "-q", "-B", "64", "-i", "lo", "-f", filters, "-w"]
        with capturing(tap, capture, beacon):
            asked = ask_one_by_one(server, FILES)
            ask_at_once(server, PIPELINED)
            ask_one_by_one(server, PROXIED)
            ask_one_by_one(server, POSTED)
    return capture, server, asked


def test_methods_and_codes_are_tsharks(conversation: tuple[Path, int, list[tuple[str, str, str]]]) -> None:
    capture, port, asked = conversation
    rows = tshark(capture, FIELDS, decode_as=f"tcp.port=={port},http", only="http")
    said = overheard(capture, port)
    assert {one.stream.protocol for one in said if one.messages} == {"http"}
    assert sum(one.stream.malformed + one.stream.undecoded_bytes + one.stream.gap_bytes for one in said) == 0
    methods = Counter(method for row in rows for method in row["http.request.method"])
    codes = Counter(code for row in rows for code in row["http.response.code"])
    assert Counter(told.found.kind for one in said for told in one.messages) == methods + codes
    # What is proxied nginx asks itself for.
    expected = len(asked) + len(PIPELINED) + 2 * len(PROXIED) + len(POSTED)
    assert sum(methods.values()) == sum(codes.values()) == expected
    assert len([row for one in said for row in one.exchanges]) == expected
    assert all(row.response is not None for one in said for row in one.exchanges)


def test_pairs_and_times_are_tsharks(conversation: tuple[Path, int, list[tuple[str, str, str]]]) -> None:
    capture, port, asked = conversation
    rows = tshark(capture, FIELDS, decode_as=f"tcp.port=={port},http", only="http")
    said = [one for one in overheard(capture, port) if one.messages]
    first = spoken(said[0])
    assert [row[:3] for row in first] == asked
    streams = sorted({int(row["tcp.stream"][0]) for row in rows})
    assert len(streams) == len(said) == 4 + len(PROXIED)
    for one, stream in zip(said, streams, strict=True):
        ours = spoken(one)
        if len(ours) == len(PIPELINED):
            assert [row[:3] for row in ours] == [(ask.method, ask.path, str(ask.code)) for ask in PIPELINED]
            continue
        theirs = told_by_tshark(rows, stream)
        assert [row[:3] for row in ours] == [row[:3] for row in theirs]
        times = [(mine[3], other[3]) for mine, other in zip(ours, theirs, strict=True)]
        timed = [(mine, other) for mine, other in times if other is not None]
        assert [mine for mine, _ in timed] == pytest.approx([other for _, other in timed], abs=1e-6)
        early = [row[0] for row, (mine, other) in zip(ours, times, strict=True) if other is None and mine < 0]
        assert early == ["POST"] * (len(times) - len(timed))


def test_sizes_are_those_of_the_files(conversation: tuple[Path, int, list[tuple[str, str, str]]]) -> None:
    capture, port, _ = conversation
    said = [one.exchanges for one in overheard(capture, port) if one.messages]
    sizes = {
        (row.request.found.kind, row.request.found.name, row.response.found.kind): row.response.found.payload_bytes
        for row in said[0]
    }
    assert sizes["GET", "/small.bin", "200"] == 700
    assert sizes["GET", "/empty.bin", "200"] == sizes["HEAD", "/large.bin", "200"] == 0
    assert sizes["GET", "/small.bin", "304"] == sizes["HEAD", "/none.bin", "404"] == 0
    large = [row.response.found.payload_bytes for row in said[0] if row.request.found.name == "/large.bin"]
    assert large[:3] == [0, LARGE_BYTES, 4000]
    posted = [row.request.found.payload_bytes for row in said[-1]]
    assert posted == [20_000, 0, 3000]
