"""A sink: says yes to every CONNECT and then only reads, so that nothing but the publisher limits the rate.

A process of its own (`python -m benchmarks.sink`); it prints its port, and on each line it is sent, the bytes read.
"""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.rates import Sample

HOST = "127.0.0.1"
_CONNACK = b"\x20\x02\x00\x00"
_READ_BYTES = 1 << 20


class Sink:
    """The handle of a running sink."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        self.port = int(process.stdout.readline())
        self.url = f"mqtt://{HOST}:{self.port}"

    def settle(self) -> None:
        """It never has anything left to do."""

    def read_bytes(self) -> int:
        """How many bytes it has read so far."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("?\n")
        self._process.stdin.flush()
        return int(json.loads(self._process.stdout.readline()))


class Watch(threading.Thread):
    """Samples the messages a sink has read, until stopped."""

    def __init__(self, sink: Sink, frame_bytes: int) -> None:
        super().__init__(daemon=True)
        self._sink = sink
        self._frame_bytes = frame_bytes
        self._over = threading.Event()
        self.samples: list[Sample] = []

    def run(self) -> None:
        before = self._sink.read_bytes()
        while True:
            self.samples.append((time.monotonic(), (self._sink.read_bytes() - before) / self._frame_bytes))
            if self._over.wait(0.05):
                return

    def stop(self) -> list[Sample]:
        self._over.set()
        self.join()
        return self.samples


@contextmanager
def running_sink() -> Iterator[Sink]:
    """A sink for as long as the block lasts."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.sink"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Sink(process)
        finally:
            process.terminate()


def serve() -> None:
    """Read until nobody is left to be told."""
    server = socket.create_server((HOST, 0), backlog=1024)
    server.setblocking(False)
    print(server.getsockname()[1], flush=True)
    poll = select.epoll()
    poll.register(server, select.EPOLLIN)
    poll.register(sys.stdin, select.EPOLLIN)
    peers: dict[int, socket.socket] = {}
    buffer = bytearray(_READ_BYTES)
    total = 0
    while True:
        for number, _ in poll.poll():
            peer = peers.get(number)
            if peer is not None:
                try:
                    count = peer.recv_into(buffer)
                except OSError:
                    count = 0
                total += count
                if not count:
                    poll.unregister(number)
                    peers.pop(number).close()
            elif number == server.fileno():
                peer, _ = server.accept()
                # Sent before CONNECT is read: the client cannot tell, and reading needs no parser.
                peer.send(_CONNACK)
                peers[peer.fileno()] = peer
                poll.register(peer, select.EPOLLIN)
            else:
                if not sys.stdin.readline():
                    return
                print(total, flush=True)


if __name__ == "__main__":
    serve()
