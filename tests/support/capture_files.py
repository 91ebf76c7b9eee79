"""Capture files written and read by hand, as small as tests need them: TCP over IPv4 over Ethernet."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from battlebrokers.dissect.segments import SYN, Segments

_NANOSECONDS = 0xA1B23C4D
_MICROSECONDS = 0xA1B2C3D4
_ETHERNET = 1
HEADERS_BYTES = 14 + 20


@dataclass(frozen=True, slots=True)
class Packet:
    """One TCP packet between two ports; what it carries is only counted."""

    time_ns: int
    sender: int
    """0 for the client, 1 for the server."""
    seq: int
    ack: int
    flags: int
    window: int
    size: int
    shift: int = -1


def segments_of(packets: list[Packet]) -> Segments:
    """The product's columns."""

    def column(name: str) -> np.ndarray:
        return np.array([getattr(packet, name) for packet in packets], dtype=np.int64)

    zeros = np.zeros(len(packets), dtype=np.int64)
    size = column("size")
    return Segments(
        column("time_ns"), column("sender"), column("seq"), column("ack"), column("flags"), column("window"),
        column("shift"), zeros, size, zeros, zeros,
    )  # fmt: skip


def write_capture(path: Path, packets: Iterable[tuple[int, Packet]]) -> None:
    """Packets of several connections, each with its client's port; headers only, as a short snap length leaves them."""
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", _NANOSECONDS, 2, 4, 0, 0, 65_535, _ETHERNET))
        for client_port, packet in packets:
            frame = _frame(client_port, packet)
            seconds, nanoseconds = divmod(packet.time_ns, 10**9)
            file.write(struct.pack("<IIII", seconds, nanoseconds, len(frame), len(frame) + packet.size))
            file.write(frame)


def _frame(client_port: int, packet: Packet) -> bytes:
    options = bytes((3, 3, packet.shift, 0)) if packet.flags & SYN and packet.shift >= 0 else b""
    ports, addresses = (client_port, 80), (b"\x0a\x00\x00\x01", b"\x0a\x00\x00\x02")
    if packet.sender:
        ports, addresses = ports[::-1], addresses[::-1]
    tcp = struct.pack(
        ">HHIIBBHHH", *ports, packet.seq, packet.ack, (20 + len(options)) << 2, packet.flags, packet.window, 0, 0
    )
    total = 20 + len(tcp) + len(options) + packet.size
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, total, 0, 0, 64, 6, 0, *addresses)
    return b"\x02" * 12 + b"\x08\x00" + ip + tcp + options


def read_capture(path: Path) -> dict[tuple[int, int], tuple[list[int], list[Packet]]]:
    """Frame numbers (from 1) and packets per connection, by ports; whoever sent first is the client."""
    data = path.read_bytes()
    magic = struct.unpack_from("<I", data)[0]
    unit_ns = {_NANOSECONDS: 1, _MICROSECONDS: 1000}[magic]
    at, number = 24, 0
    result: dict[tuple[int, int], tuple[list[int], list[Packet]]] = {}
    while at + 16 <= len(data):
        seconds, fraction, captured, _ = struct.unpack_from("<IIII", data, at)
        frame, at, number = data[at + 16 : at + 16 + captured], at + 16 + captured, number + 1
        if frame[12:14] != b"\x08\x00" or frame[23] != 6:
            continue
        tcp_at = 14 + (frame[14] & 15) * 4
        total = int.from_bytes(frame[16:18], "big")
        source, destination, seq, ack, offset, flags, window = struct.unpack_from(">HHIIBBH", frame, tcp_at)
        header_bytes = (offset >> 4) * 4
        key = (source, destination)
        if key not in result and key[::-1] in result:
            key = key[::-1]
        frames, packets = result.setdefault(key, ([], []))
        shift = _shift(frame[tcp_at + 20 : tcp_at + header_bytes]) if flags & SYN else -1
        size = total - (tcp_at - 14) - header_bytes
        frames.append(number)
        time_ns = seconds * 10**9 + fraction * unit_ns
        packets.append(Packet(time_ns, int(key[0] != source), seq, ack, flags, window, size, shift))
    return result


def _shift(options: bytes) -> int:
    while options and options[0]:
        if options[0] == 1:
            options = options[1:]
        elif options[0] == 3:
            return options[2]
        else:
            options = options[options[1] :]
    return -1
