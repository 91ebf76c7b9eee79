"""Redis spoken by a real server: commands are those the server counted, replies those tshark saw.

Deviations: tshark tells every value inside another one and pairs nothing, so only values that are never nested here
(errors, simple strings) are compared; commands are compared with the server's own `INFO commandstats`.
"""

from __future__ import annotations

import re
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ports import free_port
from support.wiretap import hear, listens, needs, overheard, running, tshark, until, wiretap

pytestmark = [
    pytest.mark.slow,
    pytest.mark.broker,
    needs("tshark", "dumpcap", "redis-server", why="(apt install tshark redis-server)"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir"]
    with running([*command, str(tmp_path_factory.mktemp("redis"))]):
        until(lambda: listens(port), what="Redis")
        yield port


class Line:
    """A connection that writes commands and waits until something is quiet."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def say(self, *commands: str, until_seen: bytes) -> bytes:
        """Send all at once, read until the answer is there."""
        self._socket.sendall(b"".join(encoded(command) for command in commands))
        return self.hear(until_seen)

    def hear(self, until_seen: bytes) -> bytes:
        return hear(self._socket, until_seen)

    def close(self) -> None:
        self._socket.close()


def encoded(command: str) -> bytes:
    words = command.encode().split()
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def talk(port: int) -> str:
    """Plain, pipelined, transactions, publish and subscribe in both versions, errors, a monitor."""
    monitor = Line(port)
    monitor.say("MONITOR", until_seen=b"+OK\r\n")
    line = Line(port)
    for number in range(20):
        line.say(f"SET key:{number} {'v' * (number * 300 + 1)}", until_seen=b"+OK\r\n")
    line.say(*(f"GET key:{number}" for number in range(20)), "GET none", "ECHO done1", until_seen=b"done1\r\n")
    line.say("MULTI", "INCR n", "LPUSH q a b c", "EXEC", "ECHO done2", until_seen=b"done2\r\n")
    line.say("INCR key:1", "NOSUCH thing", "ECHO done3", until_seen=b"done3\r\n")
    line.say("CLIENT REPLY SKIP", "SET quiet 1", "ECHO done4", until_seen=b"done4\r\n")
    line.say("LRANGE q 0 -1", "BRPOP q 1", "XADD s * f v", "XREAD STREAMS s 0", "ECHO done5", until_seen=b"done5\r\n")
    for version in ("2", "3"):
        reader = Line(port)
        reader.say(f"HELLO {version}", "SUBSCRIBE a b", "PSUBSCRIBE x*", until_seen=b"psubscribe\r\n$2\r\nx*\r\n:3\r\n")
        for number in range(10):
            line.say(f"PUBLISH a first{number}", f"PUBLISH xy second{number}", until_seen=b":1\r\n:1\r\n")
            reader.hear(b"second%d\r\n" % number)
        reader.say("UNSUBSCRIBE", "PUNSUBSCRIBE", "PING last", until_seen=b"last\r\n")
        reader.close()
    monitor.hear(b'"PUNSUBSCRIBE"')
    statistics = line.say("INFO commandstats", "ECHO done6", until_seen=b"done6\r\n").decode()
    line.close()
    monitor.close()
    return statistics


def test_commands_are_the_servers_and_replies_tsharks(server: int, tmp_path: Path) -> None:
    capture = tmp_path / "redis.pcapng"
    with wiretap(capture, server):
        statistics = talk(server)
    said = overheard(capture, server)
    assert {one.stream.protocol for one in said if one.messages} == {"redis"}
    assert sum(one.stream.malformed + one.stream.undecoded_bytes for one in said) == 0

    counted = Counter()
    for name, calls in re.findall(r"cmdstat_([a-z]+)(?:\|[a-z]+)?:calls=(\d+)", statistics):
        counted[name.upper()] += int(calls)
    rejected = {"NOSUCH": 1, "INFO": 1}  # not known to the server; under way when it counted
    asked = Counter(told.found.kind for one in said for told in one.messages if told.found.sender == 0)
    assert asked - Counter(rejected) - Counter({"ECHO": 1}) == counted

    rows = tshark(
        capture, ["resp.error", "resp.string", "resp.array.length"], decode_as=f"tcp.port=={server},resp", only="resp"
    )
    replies = [told.found for one in said for told in one.messages if told.found.sender == 1]
    assert sum(len(row["resp.error"]) for row in rows) == sum(row.kind == "ERROR" for row in replies) == 2
    simple = [row for row in replies if row.kind in ("OK", "QUEUED", "MONITOR", "PONG")]
    assert sum(len(row["resp.string"]) for row in rows) == len(simple)

    pushes = Counter(row.kind for row in replies if "message" in row.kind)
    assert pushes == {"message": 20, "pmessage": 20}
    exchanges = [row for one in said for row in one.exchanges]
    assert [row.request.found.kind for row in exchanges if row.response is None] == []
    unasked = Counter({"CLIENT": 1, "SET": 1})  # CLIENT REPLY SKIP silences itself and the next one
    assert Counter(row.request.found.kind for row in exchanges) == asked - unasked
    answers = {(row.request.found.kind, row.response.found.kind) for row in exchanges}
    assert {
        ("EXEC", "ARRAY"),
        ("GET", "NIL"),
        ("GET", "BULK"),
        ("INCR", "ERROR"),
        ("SUBSCRIBE", "subscribe"),
    } <= answers
    assert all(row.response.first_ns >= row.request.last_ns for row in exchanges)
