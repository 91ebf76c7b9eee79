"""Which connections a process opened, seen on real sockets of processes of our own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from battlebrokers.record import sockets as sockets_module
from battlebrokers.record.sockets import SocketWatch, calls
from battlebrokers.tables import SOCKETS
from support.waiting import until

CALL = """
import socket, sys
held = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print(held.getsockname()[1], flush=True)
sys.stdin.read()
"""


@contextmanager
def listening(family: socket.AddressFamily = socket.AF_INET, host: str = "127.0.0.1") -> Iterator[socket.socket]:
    with socket.socket(family) as server:
        if family == socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        server.bind((host, 0))
        server.listen()
        yield server


@contextmanager
def caller(port: int) -> Iterator[tuple[int, int]]:
    """The process id and the port of somebody who holds a connection."""
    process = subprocess.Popen(
        [sys.executable, "-c", CALL, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield process.pid, int(process.stdout.readline())
        process.stdin.close()


def test_who_calls_is_told_and_who_is_called_is_not() -> None:
    with listening() as server, caller(port := server.getsockname()[1]) as (pid, own_port):
        accepted, _ = server.accept()
        with accepted:
            assert set(calls("web", [pid])) == {("web", "127.0.0.1", own_port, "127.0.0.1", port)}
            mine = {(own, peer) for _, _, own, _, peer in calls("queue", [os.getpid()])}
            assert (port, own_port) not in mine
    assert list(calls("web", [pid])) == []


def test_ipv4_on_a_socket_for_both_is_ipv4() -> None:
    try:
        stack = ExitStack()
        server = stack.enter_context(listening(socket.AF_INET6, "::"))
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error.strerror}")
    port = server.getsockname()[1]
    with stack, socket.socket(socket.AF_INET6) as client:
        client.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        client.connect(("::ffff:127.0.0.1", port))
        found = [one for one in calls("web", [os.getpid()]) if one[-1] == port]
        assert found == [("web", "127.0.0.1", client.getsockname()[1], "127.0.0.1", port)]


def test_sockets_are_written_when_they_are_seen_and_again_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets_module, "_EVERY_S", 0.01)
    clock = iter(range(1_000_000))
    with listening() as server, caller(port := server.getsockname()[1]) as (pid, own_port):
        watch = SocketWatch(tmp_path, lambda: next(clock), lambda: {"web": [pid], "gone": [2**22 + 1]})
        watch.start()
        folder = tmp_path / SOCKETS.folder
        until(lambda: list(folder.glob("*.parquet")), seconds=20)
        watch.stop()
    first, last = (pq.ParquetFile(file).read().to_pylist() for file in sorted(folder.glob("*.parquet")))
    for rows in (first, last):
        assert [{**row, "first_ns": 0, "last_ns": 0} for row in rows] == [
            {"service": "web", "address": "127.0.0.1", "port": own_port, "peer_address": "127.0.0.1", "peer_port": port,
             "first_ns": 0, "last_ns": 0}
        ]  # fmt: skip
    assert first[0]["first_ns"] == last[0]["first_ns"] == 0
    assert last[0]["last_ns"] > first[0]["last_ns"]


def test_processes_that_cannot_be_looked_at_have_no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_pid: int) -> psutil.Process:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil, "Process", refused)
    assert list(calls("web", [1])) == []
