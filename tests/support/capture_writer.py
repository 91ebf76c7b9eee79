"""Captures written by hand: pcap and pcapng in every variety, and frames with right or wrong headers."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass

ETHERNET, NULL, RAW, LOOP, SLL, SLL2, IPV4, IPV6 = 1, 0, 101, 108, 113, 276, 228, 229
SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class Frame:
    time_ns: int
    data: bytes
    original: int = -1
    interface: int = 0

    @property
    def original_bytes(self) -> int:
        return max(self.original, len(self.data))


def pcap(frames: Iterable[Frame], *, order: str = "<", nano: bool = False, link: int = ETHERNET, snap: int = 262144):
    magic, unit = (0xA1B23C4D, 1) if nano else (0xA1B2C3D4, 1000)
    out = [struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, snap, link)]
    for frame in frames:
        seconds, rest = divmod(frame.time_ns, SECOND_NS)
        out += [struct.pack(f"{order}IIII", seconds, rest // unit, len(frame.data), frame.original_bytes), frame.data]
    return b"".join(out)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def options(order: str, *pairs: tuple[int, bytes]) -> bytes:
    if not pairs:
        return b""
    return b"".join(struct.pack(f"{order}HH", code, len(value)) + padded(value) for code, value in pairs) + bytes(4)


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    length = 12 + len(padded(body))
    return struct.pack(f"{order}II", kind, length) + padded(body) + struct.pack(f"{order}I", length)


def section(order: str = "<", *pairs: tuple[int, bytes]) -> bytes:
    return block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1) + options(order, *pairs), order)


def interface(link: int = ETHERNET, snap: int = 262144, *, resolution: int | None = None, offset_s: int | None = None,
              order: str = "<") -> bytes:  # fmt: skip
    pairs = []
    if resolution is not None:
        pairs.append((9, bytes([resolution])))
    if offset_s is not None:
        pairs.append((14, struct.pack(f"{order}q", offset_s)))
    return block(1, struct.pack(f"{order}HHI", link, 0, snap) + options(order, *pairs), order)


def ticks(time_ns: int, resolution: int = 6, offset_s: int = 0) -> int:
    relative_ns = time_ns - offset_s * SECOND_NS
    if resolution & 0x80:
        return (relative_ns << (resolution & 0x7F)) // SECOND_NS
    return relative_ns * 10**resolution // SECOND_NS


def packet(frame: Frame, *, resolution: int = 6, offset_s: int = 0, order: str = "<", comment: bytes = b"") -> bytes:
    count = ticks(frame.time_ns, resolution, offset_s)
    front = struct.pack(
        f"{order}IIIII", frame.interface, count >> 32, count & 0xFFFFFFFF, len(frame.data), frame.original_bytes
    )
    return block(6, front + padded(frame.data) + options(order, *([(1, comment)] if comment else [])), order)


def old_packet(frame: Frame, *, order: str = "<") -> bytes:
    count = ticks(frame.time_ns)
    front = struct.pack(
        f"{order}HHIIII", frame.interface, 3, count >> 32, count & 0xFFFFFFFF, len(frame.data), frame.original_bytes
    )
    return block(2, front + padded(frame.data), order)


def simple_packet(data: bytes, original: int, order: str = "<") -> bytes:
    return block(3, struct.pack(f"{order}I", original) + padded(data), order)


def statistics(number: int, by_interface: int, by_system: int, order: str = "<") -> bytes:
    counts = options(order, (5, struct.pack(f"{order}Q", by_interface)), (7, struct.pack(f"{order}Q", by_system)))
    return block(5, struct.pack(f"{order}III", number, 0, 0) + counts, order)


def names(order: str = "<") -> bytes:
    record = struct.pack(f"{order}HH", 1, 9) + padded(socket.inet_aton("10.0.0.1") + b"name\0") + bytes(4)
    return block(4, record, order)


def custom(content: bytes, order: str = "<") -> bytes:
    return block(0xBAD, struct.pack(f"{order}I", 32473) + content, order)


def pcapng(frames: Iterable[Frame], *, order: str = "<", link: int = ETHERNET, resolution: int = 6) -> bytes:
    front = section(order) + interface(link, resolution=resolution, order=order)
    return front + b"".join(packet(frame, resolution=resolution, order=order) for frame in frames)


def tcp(source_port: int, port: int, *, seq: int = 1, ack: int = 0, flags: int = 16, window: int = 500,
        payload: bytes = b"", extra: bytes = b"") -> bytes:  # fmt: skip
    extra += bytes(-len(extra) % 4)
    words = (5 + len(extra) // 4) << 12 | flags
    return struct.pack(">HHIIHHHH", source_port, port, seq, ack, words, window, 0, 0) + extra + payload


def udp(source_port: int, port: int, payload: bytes = b"", *, length: int = -1) -> bytes:
    return struct.pack(">HHHH", source_port, port, 8 + len(payload) if length < 0 else length, 0) + payload


def ipv4(content: bytes, *, source: str = "10.0.0.1", destination: str = "10.0.0.2", protocol: int = 6,
         extra: bytes = b"", fragment: int = 0, total: int = -1) -> bytes:  # fmt: skip
    extra += bytes(-len(extra) % 4)
    total = 20 + len(extra) + len(content) if total < 0 else total
    return (
        struct.pack(">BBHHHBBH", 0x45 + len(extra) // 4, 0, total, 1, fragment, 64, protocol, 0)
        + socket.inet_aton(source) + socket.inet_aton(destination) + extra + content
    )  # fmt: skip


def ipv6(content: bytes, *, source: str = "fe80::1", destination: str = "2001:db8::2", first: int = 6,
         length: int = -1) -> bytes:  # fmt: skip
    size = len(content) if length < 0 else length
    addresses = socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, destination)
    return struct.pack(">IHBB", 6 << 28, size, first, 64) + addresses + content


def ethernet(content: bytes, *, kind: int = 0x0800, vlans: Iterable[int] = (), pad: bool = True) -> bytes:
    tags = b"".join(struct.pack(">HH", tag, 7) for tag in vlans)
    frame = bytes(6) + b"\2" * 6 + tags + struct.pack(">H", kind) + content
    return frame + bytes(max(0, 60 - len(frame))) if pad else frame


def cooked(content: bytes, *, kind: int = 0x0800) -> bytes:
    return struct.pack(">HHH8sH", 0, 1, 6, b"\2" * 8, kind) + content


def cooked2(content: bytes, *, kind: int = 0x0800) -> bytes:
    return struct.pack(">HHIHBB8s", kind, 0, 1, 1, 0, 6, b"\2" * 8) + content
