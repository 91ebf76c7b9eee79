"""A bad network on one machine: two network namespaces with a forwarder between them that delays and reorders frames.

Loss is nftables' at the receiver, behind the tap; the forwarder loses frames before it. Needs root. The three programs
at the end run inside the namespaces (`python lossy_path.py forward|serve|send …`).
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path as FilePath
from random import Random

_PORT = 7777
_SERVER = "10.77.0.2"
_SENT_BYTES = 400_000
_LISTENS, _WAITS_TO_FORGET = "0A", "06"  # as /proc/net/tcp calls these states


@dataclass(slots=True)
class Path:
    """Client and server namespaces, the one between them, and where captures go."""

    client: str
    middle: str
    server: str
    folder: FilePath

    def transfer(self, trouble: str) -> FilePath:
        """Some connections with `loss`, with `delay` and reordering, or with a `slow_reader`; returns the capture."""
        capture = self.folder / f"{trouble}.pcap"
        if trouble == "loss":
            for namespace in (self.client, self.server):
                _nft(namespace, "numgen random mod 100 < 4 drop")
        with contextlib.ExitStack() as stack:
            delays = "0.004" if trouble == "delay" else "0"
            stack.enter_context(_program(self.middle, "forward", "mid0", "mid1", delays))
            tcpdump = [
                "tcpdump",
                "-i",
                "end1",
                "-s",
                "128",
                "-B",
                "16384",
                "--immediate-mode",
                "-U",
                "-w",
                str(capture),
                "--nano",
                "tcp",
            ]
            dump = stack.enter_context(_running(self.server, *tcpdump, stderr=subprocess.PIPE))
            assert dump.stderr is not None
            while b"listening on" not in (line := dump.stderr.readline()):
                assert line, "tcpdump did not start"
            server = stack.enter_context(_program(self.server, "serve", "slow" if trouble == "slow_reader" else "fast"))
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            command = ["ip", "netns", "exec", self.client, sys.executable, __file__, "send"]
            subprocess.run(command, check=True, timeout=60)
            deadline = time.monotonic() + 10
            while not _all_said(server.pid) and time.monotonic() < deadline:
                time.sleep(0.02)
        return capture


def _all_said(server: int) -> bool:
    """Whether every connection in a process's namespace has had its last acknowledgement."""
    table = FilePath(f"/proc/{server}/net/tcp").read_text().splitlines()[1:]
    return {row.split()[3] for row in table} <= {_LISTENS, _WAITS_TO_FORGET}


@contextlib.contextmanager
def lossy_path(folder: FilePath) -> Iterator[Path]:
    """Build it, and take it down again."""
    name = f"bbpath{os.getpid()}"
    path = Path(f"{name}c", f"{name}m", f"{name}s", folder)
    namespaces = (path.client, path.middle, path.server)
    try:
        for namespace in namespaces:
            _ip("netns", "add", namespace)
        for n, namespace in enumerate((path.client, path.server)):
            near, far = f"e{os.getpid()}{n}", f"m{os.getpid()}{n}"
            _ip("link", "add", near, "type", "veth", "peer", "name", far)
            for interface in (near, far):
                _without_offloads(interface)
            _ip("link", "set", near, "netns", namespace, "name", f"end{n}")
            _ip("link", "set", far, "netns", path.middle, "name", f"mid{n}")
            _ip("-n", namespace, "addr", "add", f"10.77.0.{n + 1}/24", "dev", f"end{n}")
            _ip("-n", namespace, "link", "set", f"end{n}", "up")
            _ip("-n", path.middle, "link", "set", f"mid{n}", "up")
        yield path
    finally:
        for namespace in namespaces:
            subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=60)


def _nft(namespace: str, rule: str) -> None:
    for command in (
        "add table ip bad",
        "add chain ip bad in { type filter hook input priority 0; }",
        f"add rule ip bad in tcp dport 1-65535 {rule}",
    ):
        subprocess.run(["ip", "netns", "exec", namespace, "nft", command], check=True, capture_output=True, timeout=60)


def _without_offloads(interface: str) -> None:
    """Frames as on a wire: no large segments, checksums filled in."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in (0x17, 0x1F, 0x24, 0x2C):  # checksums, TCP segmentation, generic segmentation, generic receive
            value = ctypes.create_string_buffer(struct.pack("II", command, 0))
            fcntl.ioctl(control, 0x8946, struct.pack("16sQ16x", interface.encode(), ctypes.addressof(value)))


@contextlib.contextmanager
def _running(namespace: str, *command: str, stderr: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["ip", "netns", "exec", namespace, *command], stdout=subprocess.PIPE, stderr=stderr)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def _program(namespace: str, *words: str) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    return _running(namespace, sys.executable, __file__, *words)


def forward(first: str, second: str, delay_s: float) -> None:
    """Frames from either interface to the other; with a delay some are late, some come out of order, some never."""
    random = Random(7)
    sockets = []
    for interface in (first, second):
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
        raw.bind((interface, 0))
        sockets.append(raw)
    waiting: list[tuple[float, int, int, bytes]] = []
    number = 0
    while True:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 1.0
        ready, _, _ = select.select(sockets, [], [], timeout)
        for raw in ready:
            frame, address = raw.recvfrom(65_535)
            if address[2] == socket.PACKET_OUTGOING:
                continue
            to = 1 - sockets.index(raw)
            late = delay_s
            if delay_s and len(frame) > 100:
                if random.random() < 0.02:
                    continue
                late += random.choice((0.0, 0.0, 0.0, 0.0, 0.001, 0.003))
            number += 1
            heapq.heappush(waiting, (time.monotonic() + late, number, to, frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, to, frame = heapq.heappop(waiting)
            sockets[to].send(frame)


def serve(reading: str) -> None:
    """Read everything of each connection and answer with how much it was."""
    with socket.socket() as listener:
        if reading == "slow":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        listener.bind((_SERVER, _PORT))
        listener.listen()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            connection, _ = listener.accept()
            with connection:
                total = 0
                if reading == "slow":
                    time.sleep(1.5)
                while total < _SENT_BYTES and (data := connection.recv(65_536)):
                    total += len(data)
                    connection.sendall(b"%d\n" % total)


def send() -> None:
    """Three connections one after the other."""
    for _ in range(3):
        with socket.create_connection((_SERVER, _PORT), timeout=60) as connection:
            connection.setblocking(True)
            connection.sendall(os.urandom(_SENT_BYTES))
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65_536):
                pass


if __name__ == "__main__":
    verb, *words = sys.argv[1:]
    if verb == "forward":
        forward(words[0], words[1], float(words[2]))
    elif verb == "serve":
        serve(words[0])
    else:
        send()
