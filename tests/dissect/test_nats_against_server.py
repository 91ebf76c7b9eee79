"""NATS spoken by a real server: messages and bytes are those the server counted.

tshark 4.0 knows no NATS, so the server's own statistics (`/varz`) are the witness, and tshark's account of the bytes.
"""

from __future__ import annotations

import json
import socket
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ports import free_port
from support.wiretap import found, hear, listens, needs, overheard, running, tshark, until, wiretap

pytestmark = [
    pytest.mark.slow,
    pytest.mark.broker,
    needs("tshark", "dumpcap", "nats-server", why="(apt install tshark nats-server)"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[int, int]]:
    port, watch = free_port(), free_port()
    command = [found("nats-server") or "nats-server", "-a", "127.0.0.1", "-p", str(port), "-m", str(watch)]
    with running(command):
        until(lambda: listens(port) and listens(watch), what="NATS")
        yield port, watch


class Line:
    def __init__(self, port: int, *, verbose: bool = False) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.hear(b"\r\n")
        options = {"verbose": verbose, "pedantic": False, "headers": True, "no_responders": True}
        self.say(b"CONNECT %b\r\nPING\r\n" % json.dumps(options).encode(), b"PONG\r\n")

    def say(self, text: bytes, until_seen: bytes = b"") -> bytes:
        self._socket.sendall(text)
        return self.hear(until_seen) if until_seen else b""

    def hear(self, until_seen: bytes) -> bytes:
        return hear(self._socket, until_seen)

    def close(self) -> None:
        self._socket.close()


def test_messages_and_pairs_are_the_servers(server: tuple[int, int], tmp_path: Path) -> None:
    port, watch = server
    capture = tmp_path / "nats.pcapng"
    with wiretap(capture, port):
        service, asker, loud = Line(port), Line(port), Line(port, verbose=True)
        service.say(b"SUB svc 1\r\nSUB news.> 2\r\nPING\r\n", b"PONG\r\n")
        asker.say(b"SUB _INBOX.me.* 7\r\nPING\r\n", b"PONG\r\n")
        for number in range(25):
            asker.say(b"PUB svc _INBOX.me.%d 5\r\nhello\r\n" % number)
            service.hear(b"hello\r\n")
            service.say(b"PUB _INBOX.me.%d 6\r\nanswer\r\n" % number)
            asker.hear(b"answer\r\n")
        head = b"NATS/1.0\r\nKind: test\r\n\r\n"
        asker.say(b"HPUB news.x %d %d\r\n%bbody\r\n" % (len(head), len(head) + 4, head))
        service.hear(b"body\r\n")
        asker.say(b"PUB nobody _INBOX.me.none 1\r\nx\r\n", b"503")
        loud.say(b"PUB news.y 200000\r\n" + b"z" * 200_000 + b"\r\n", b"+OK\r\n")
        service.hear(b"z\r\n")
        loud.say(b"SUB a.b.c 1\r\n", b"+OK\r\n")
        counted = json.load(urllib.request.urlopen(f"http://127.0.0.1:{watch}/varz", timeout=60))
        for line in (service, asker, loud):
            line.close()
    said = overheard(capture, port)
    assert [one.stream.protocol for one in said] == ["nats"] * 3
    assert sum(one.stream.malformed + one.stream.undecoded_bytes for one in said) == 0
    rows = [told.found for one in said for told in one.messages]
    kinds = Counter(row.kind for row in rows)
    assert kinds["PUB"] + kinds["HPUB"] == counted["in_msgs"] == 53
    carried = [row for row in rows if row.kind in ("MSG", "HMSG")]
    # The server's note that nobody is there is not counted as a message sent.
    assert len([row for row in carried if not row.failed]) == counted["out_msgs"]
    assert kinds["INFO"] >= 3

    pairs = Counter(
        (row.request.found.kind, row.response.found.kind) for one in said for row in one.exchanges if row.response
    )
    assert pairs == {
        ("PUB", "MSG"): 25, ("MSG", "PUB"): 25, ("PUB", "HMSG"): 1, ("PING", "PONG"): kinds["PING"],
        ("CONNECT", "+OK"): 1, ("SUB", "+OK"): 1, ("PUB", "+OK"): 1,
    }  # fmt: skip
    assert all(row.response is not None for one in said for row in one.exchanges)
    length = sum(
        int(row["tcp.len"][0])
        for row in tshark(capture, ["tcp.len"], only="tcp.len > 0 && !tcp.analysis.retransmission")
    )
    assert sum(row.end - row.start for row in rows) == length
