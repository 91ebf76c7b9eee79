"""A capture of any size, written packet by packet: MQTT between devices, a broker and clients, beside HTTP and Redis.

Every connection has its handshake, every data packet its acknowledgement; a few packets are lost and sent again. The
same size gives the same bytes.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_GLOBAL = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1)
_RECORD = struct.Struct("<IIII")
_ETHERNET = bytes.fromhex("0242ac110002 0242ac110003 0800".replace(" ", ""))
_IP = struct.Struct(">BBHHHBBH4s4s")
_TCP = struct.Struct(">HHIIBBHHH")
_SYN, _ACK, _PSH = 2, 16, 8
_FLUSH_BYTES = 4 << 20

BROKER, WEB, STORE = b"\x0a\x00\x00\x01", b"\x0a\x00\x00\x02", b"\x0a\x00\x00\x03"


@dataclass(slots=True)
class _Connection:
    """Two endpoints with their next sequence numbers: 0 is the client, 1 the server."""

    ends: tuple[tuple[bytes, int], tuple[bytes, int]]
    seq: list[int]

    def packet(self, sender: int, flags: int, payload: bytes) -> bytes:
        (source, source_port), (destination, port) = self.ends[sender], self.ends[1 - sender]
        ip = _IP.pack(0x45, 0, 40 + len(payload), 0, 0x4000, 64, 6, 0, source, destination)
        ack = 0 if flags == _SYN else self.seq[1 - sender]
        tcp = _TCP.pack(source_port, port, self.seq[sender], ack, 0x50, flags, 64240, 0, 0)
        self.seq[sender] = (self.seq[sender] + len(payload) + (flags & _SYN) // _SYN) & 0xFFFFFFFF
        return _ETHERNET + ip + tcp + payload


def write_capture(path: Path, at_least_bytes: int) -> int:
    """Write it; returns how many packets it has."""
    chance = random.Random(7)
    now_ns = 1_700_000_000_000_000_000
    packets = 0
    with path.open("wb") as file:
        pending = bytearray(_GLOBAL)
        for frame, pause_ns in _frames(chance):
            now_ns += pause_ns
            pending += _RECORD.pack(now_ns // 1_000_000_000, now_ns % 1_000_000_000, len(frame), len(frame)) + frame
            packets += 1
            if len(pending) >= _FLUSH_BYTES:
                file.write(pending)
                pending.clear()
                if file.tell() >= at_least_bytes:
                    break
    return packets


def _frames(chance: random.Random) -> Iterator[tuple[bytes, int]]:
    devices = [_open(chance, n, BROKER, 1883) for n in range(100)]
    clients = [_open(chance, 1000 + n, BROKER, 1883) for n in range(20)]
    webs = [_open(chance, 2000 + n, WEB, 80) for n in range(10)]
    stores = [_open(chance, 3000 + n, STORE, 6379) for n in range(10)]
    for connection in (*devices, *clients, *webs, *stores):
        for sender, flags in ((0, _SYN), (1, _SYN | _ACK), (0, _ACK)):
            yield connection.packet(sender, flags, b""), 20_000
    for connection in (*devices, *clients):
        hello = b"\x00\x04MQTT\x04\x02\x00\x3c\x00\x04" + b"c%03d" % chance.randrange(1000)
        yield from _said(connection, 0, bytes((0x10, len(hello))) + hello)
        yield from _said(connection, 1, b"\x20\x02\x00\x00")
    number = 0
    while True:
        number += 1
        yield from _publish(chance, devices, clients, number)
        if not number % 8:
            yield from _request(chance.choice(webs), chance.choice(stores), chance, number)


def _open(chance: random.Random, number: int, server: bytes, port: int) -> _Connection:
    client = (bytes((10, 1, number >> 8, number & 255)), 40000 + number % 20000)
    return _Connection((client, (server, port)), [chance.getrandbits(32), chance.getrandbits(32)])


def _said(connection: _Connection, sender: int, data: bytes) -> Iterator[tuple[bytes, int]]:
    """Data and its acknowledgement."""
    yield connection.packet(sender, _ACK | _PSH, data), 3_000
    yield connection.packet(1 - sender, _ACK, b""), 1_000


def _publish(
    chance: random.Random, devices: list[_Connection], clients: list[_Connection], number: int
) -> Iterator[tuple[bytes, int]]:
    device = chance.choice(devices)
    topic = b"city/sensor/%04d/state" % (number % 2000)
    payload = b"\xb1" + struct.pack(">I", number % 100)[1:] + struct.pack(">IQ", number, number)
    payload += b"%08d" % number * chance.choice((4, 16, 40))
    confirmed = number % 2
    packet_id = struct.pack(">H", number % 65535 + 1) if confirmed else b""
    body = struct.pack(">H", len(topic)) + topic + packet_id + payload
    message = bytes((0x30 | confirmed << 1,)) + _length(len(body)) + body
    first = device.packet(0, _ACK | _PSH, message)
    yield first, 4_000
    if not number % 2000:
        yield first, 250_000_000
    yield device.packet(1, _ACK | (_PSH if confirmed else 0), b"\x40\x02" + packet_id if confirmed else b""), 2_000
    plain = struct.pack(">H", len(topic)) + topic + payload
    yield from _said(clients[number % len(clients)], 1, b"\x30" + _length(len(plain)) + plain)


def _request(web: _Connection, store: _Connection, chance: random.Random, number: int) -> Iterator[tuple[bytes, int]]:
    yield from _said(web, 0, b"GET /api/devices/%d HTTP/1.1\r\nHost: web\r\nAccept: */*\r\n\r\n" % number)
    key = b"device:%d" % number
    yield from _said(store, 0, b"*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n" % (len(key), key))
    value = b"%08d" % number * chance.choice((2, 20))
    yield from _said(store, 1, b"$%d\r\n%s\r\n" % (len(value), value))
    yield from _said(web, 1, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(value), value))


def _length(size: int) -> bytes:
    encoded = bytearray()
    while True:
        size, seven = size >> 7, size & 127
        encoded.append(seven | (128 if size else 0))
        if not size:
            return bytes(encoded)
