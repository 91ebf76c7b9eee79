"""Listening to a port of this machine with dumpcap, and what we and tshark make of the capture."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from battlebrokers.dissect.boundaries import parts
from battlebrokers.dissect.frames import packets
from battlebrokers.dissect.parts import chunks, walker
from battlebrokers.dissect.segments import ACK, SYN, Segments
from battlebrokers.dissect.stream import Reader, Stream
from support import capture_writer
from support.conversation import Heard, Turn, segments
from support.told import reader
from support.waiting import until

TCP, UDP = 6, 17


def needs(*tools: str, why: str = "") -> pytest.MarkDecorator:
    """Skip, saying what is missing."""
    missing = [tool for tool in tools if found(tool) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} not installed {why}".strip())


def found(tool: str) -> str | None:
    """Where a tool is; system folders that are not on everybody's PATH count too."""
    return shutil.which(tool) or shutil.which(tool, path="/usr/sbin:/sbin:/usr/local/sbin")


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def hears(server: subprocess.Popen[bytes], port: int) -> bool:
    """Whether this server has opened this UDP port."""
    return any(one.laddr.port == port for one in psutil.Process(server.pid).net_connections("udp4"))


def hear(connection: socket.socket, until_seen: bytes) -> bytes:
    """Read until something was said."""
    heard = b""
    while until_seen not in heard:
        data = connection.recv(65536)
        assert data, f"the connection ended before {until_seen!r} was said: {heard[-200:]!r}"
        heard += data
    return heard


@contextlib.contextmanager
def wiretap(path: Path, *ports: int) -> Iterator[None]:
    """Everything on loopback from or to these ports lands in `path`."""
    with Beacon() as beacon:
        filters = " or ".join(f"port {port}" for port in (*ports, beacon.port))
        with capturing(["dumpcap", "-q", "-B", "64", "-i", "lo", "-f", filters, "-w"], path, beacon):
            yield


@contextlib.contextmanager
def capturing(command: list[str], path: Path, beacon: Beacon, *, interfaces: int = 1) -> Iterator[None]:
    """Run a capture program that writes to `path`; nothing said meanwhile on loopback is missing when it ends."""
    with subprocess.Popen([*command, str(path)], stderr=subprocess.DEVNULL) as program:
        try:
            until(lambda: beacon.shines_in(path, interfaces), what=f"the start of {command[0]}")
            beacon.forget()
            yield
            until(lambda: beacon.shines_in(path, interfaces), what=f"the end of what {command[0]} writes")
        finally:
            program.send_signal(signal.SIGINT)
            program.wait(60)


class Beacon:
    """Datagrams to itself on loopback: once one is in a capture, so is all that was said there before it."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        self._sent: list[bytes] = []

    def __enter__(self) -> Beacon:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def shines_in(self, capture: Path, interfaces: int) -> bool:
        """Send one more, and say whether one of them was captured on so many interfaces."""
        self._sent.append(os.urandom(16))
        self._socket.sendto(self._sent[-1], self._socket.getsockname())
        content = capture.read_bytes() if capture.exists() else b""
        return any(content.count(one) >= interfaces for one in self._sent)

    def forget(self) -> None:
        """What comes next asks about what is said from now on."""
        self._sent.clear()


@contextlib.contextmanager
def running(command: list[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A server for the time being."""
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    try:
        yield server
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(20)


def nanoseconds(epoch: str) -> int:
    """tshark's `frame.time_epoch`."""
    seconds, _, fraction = epoch.partition(".")
    return int(seconds) * 10**9 + int(fraction.ljust(9, "0"))


def overheard(capture: Path, port: int, *, window: int = 500, hints: object = None) -> list[Heard]:
    """What the product makes of all conversations with this port, `window` packets at a time."""
    content = capture.read_bytes()

    def read(at: int, size: int) -> bytes:
        return content[at : at + size]

    conversations: dict[tuple[int, int, int], list[dict[str, Any]]] = {}
    uses: dict[tuple[int, int], int] = {}
    for part in parts(read, len(content)) or []:
        for data, at, records in chunks(read, part, walker(part.layout), 1 << 20):
            for row in packets(data, at, records, 0).to_pylist():
                if row["protocol"] not in (TCP, UDP) or port not in (row["source_port"], row["destination_port"]):
                    continue
                other = row["source_port"] if row["destination_port"] == port else row["destination_port"]
                key = (row["protocol"], other)
                if row["protocol"] == TCP and row["flags"] & (SYN | ACK) == SYN:
                    uses[key] = uses.get(key, 0) + 1
                conversations.setdefault((*key, uses.get(key, 0)), []).append(row)
    return [_heard(rows, key[0], key[1], port, reader(content), window, hints) for key, rows in conversations.items()]


def _heard(
    rows: list[dict[str, Any]], protocol: int, client_port: int, port: int, read: Reader,
    window: int, hints: object,
) -> Heard:  # fmt: skip
    def column(name: str, absent: int = 0) -> np.ndarray:
        return np.array([absent if row[name] is None else row[name] for row in rows], dtype=np.int64)

    size = column("payload_bytes")
    sender = (column("source_port") == port).astype(np.int64)
    columns = Segments(
        column("captured_ns"), sender, column("seq"), column("ack"), column("flags"), column("window"),
        column("window_shift", -1), column("mss"), size, size - column("missing_bytes"), column("payload_at"),
    )  # fmt: skip
    result = Heard(Stream("tcp" if protocol == TCP else "udp", client_port, port, read, hints))
    for start in range(0, len(columns), window):
        result.record.push(result.stream, columns.part(start, start + window), last=start + window >= len(columns))
    return result


def tshark(
    capture: Path, fields: list[str], *, decode_as: str = "", only: str = "", passes: int = 2, settings: str = ""
) -> list[dict[str, list[str]]]:
    """One row per frame that tshark shows: all values of each field."""
    command = ["tshark", "-n", "-r", str(capture), "-T", "fields", "-E", "aggregator=|"]
    command += ["-2"] if passes == 2 else []
    command += ["-o", settings] if settings else []
    command += ["-d", decode_as] if decode_as else []
    command += ["-Y", only] if only else []
    command += [word for field in fields for word in ("-e", field)]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    return [
        {field: value.split("|") if value else [] for field, value in zip(fields, line.split("\t"), strict=True)}
        for line in output.splitlines()
    ]


def written(path: Path, turns: list[Turn], port: int, *, cut: int = 1400) -> None:
    """A capture of a conversation made up by hand, over TCP from port 40000."""
    packets, content = segments(turns, cut)
    frames = []
    for place in range(len(packets)):
        start, size, sender = int(packets.place[place]), int(packets.size[place]), int(packets.sender[place])
        ports, hosts = (40_000, port), ("10.0.0.1", "10.0.0.2")
        ports, hosts = (ports[::-1], hosts[::-1]) if sender else (ports, hosts)
        segment = capture_writer.tcp(
            *ports, seq=int(packets.seq[place]), ack=int(packets.ack[place]), flags=ACK,
            payload=content[start : start + size],
        )  # fmt: skip
        frame = capture_writer.ethernet(capture_writer.ipv4(segment, source=hosts[0], destination=hosts[1]))
        frames.append(capture_writer.Frame(10**18 + int(packets.time_ns[place]), frame))
    path.write_bytes(capture_writer.pcap(frames, nano=True))
