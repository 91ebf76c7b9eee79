"""An independent latency probe: one publisher, one subscriber, plain sockets, arrivals stamped by the kernel.

It shares the broker with a run of ours, sends a message every millisecond and shares no code with our engine: what it
sees is what the broker and the kernel took, whatever our engine does. A process of its own
(`python -m benchmarks.probe`), so that our event loop cannot delay it.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

_SO_TIMESTAMPNS = 35
_TOPIC = b"probe"
_STAMP = struct.Struct(">q")
_PAYLOAD_BYTES = 64
_FRAME_BYTES = 2 + 2 + len(_TOPIC) + _PAYLOAD_BYTES
_EVERY_S = 0.001

Delay = tuple[int, int]
"""(wall ns at which it was sent, ns until the kernel had it at the subscriber)"""


class Probe:
    """The handle of a running probe."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("the probe could not connect")

    def finish(self) -> list[Delay]:
        """Stop it; returns the delay of every message that arrived."""
        out, _ = self._process.communicate("stop\n", timeout=30)
        return [(sent_ns, delay_ns) for sent_ns, delay_ns in json.loads(out)]


@contextmanager
def running_probe(host: str, port: int) -> Iterator[Probe]:
    """A probe for as long as the block lasts."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.probe", host, str(port)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield Probe(process)
        finally:
            process.terminate()


def _text(content: bytes) -> bytes:
    return struct.pack(">H", len(content)) + content


def _connected(host: str, port: int, name: bytes) -> socket.socket:
    link = socket.create_connection((host, port))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    body = _text(b"MQTT") + b"\x04\x02\x00\x00" + _text(name)
    link.sendall(bytes((0x10, len(body))) + body)
    if link.recv(4, socket.MSG_WAITALL) != b"\x20\x02\x00\x00":
        raise ConnectionError("refused")
    return link


def _subscribed(host: str, port: int) -> socket.socket:
    link = _connected(host, port, b"probe-subscriber")
    body = b"\x00\x01" + _text(_TOPIC) + b"\x00"
    link.sendall(bytes((0x82, len(body))) + body)
    link.recv(5, socket.MSG_WAITALL)
    link.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    return link


def _arrival_ns(ancillary: list[tuple[int, int, bytes]]) -> int:
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
            second, nanosecond = struct.unpack("qq", content[:16])
            return int(second * 1_000_000_000 + nanosecond)
    raise RuntimeError("the kernel stamps no arrivals here")


def measure(host: str, port: int) -> list[Delay]:
    """Send every millisecond, whether earlier messages have arrived or not, until a line comes in on stdin."""
    subscriber = _subscribed(host, port)
    publisher = _connected(host, port, b"probe-publisher")
    head = bytes((0x30, _FRAME_BYTES - 2)) + _text(_TOPIC)
    filling = bytes(_PAYLOAD_BYTES - _STAMP.size)
    delays: list[Delay] = []
    frame = b""
    print("ready", flush=True)
    due = time.monotonic()
    while True:
        ready, _, _ = select.select([subscriber, sys.stdin], [], [], max(0.0, due - time.monotonic()))
        if sys.stdin in ready:
            return delays
        if subscriber in ready:
            # A frame at a time: the kernel tells the arrival of the last byte read.
            content, ancillary, _, _ = subscriber.recvmsg(_FRAME_BYTES - len(frame), 256)
            if not content:
                raise ConnectionError("the broker has gone")
            frame += content
            if len(frame) == _FRAME_BYTES:
                (sent_ns,) = _STAMP.unpack_from(frame, len(head))
                delays.append((sent_ns, _arrival_ns(ancillary) - sent_ns))
                frame = b""
        if time.monotonic() >= due:
            due += _EVERY_S
            publisher.sendall(head + _STAMP.pack(time.time_ns()) + filling)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.probe")
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    told = parser.parse_args(arguments)
    print(json.dumps(measure(told.host, told.port)))


if __name__ == "__main__":
    main(sys.argv[1:])
