"""What we read from a capture is what tshark reads: every packet, every header field.

Deviations that are allowed, with their reasons:

- tshark lists custom blocks of pcapng files as frames without a time; to us they are none.
- Of a TCP header of which less than 20 bytes were captured tshark reads some fields; we call the packet truncated.
  (The snap lengths used here are long enough for the header, but not for its options.)
- Fragments are none of the packets here, because tshark puts them together.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import threading
from pathlib import Path

import pytest

from battlebrokers.pipeline.sources.capture import CaptureReader
from support import capture_writer as write
from support.capture_writer import Frame
from support.ports import free_port
from support.wiretap import Beacon, capturing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed (apt install tshark)"),
]

NOW_NS = 1_700_000_000_123_456_000
FIELDS = (
    "frame.time_epoch", "frame.len", "ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "ip.proto", "tcp.srcport",
    "tcp.dstport", "udp.srcport", "udp.dstport", "tcp.seq_raw", "tcp.ack_raw", "tcp.flags", "tcp.window_size_value",
    "tcp.options.wscale.shift", "tcp.options.mss_val", "tcp.len", "udp.length", "tcp.stream", "udp.stream",
)  # fmt: skip


def tsharks(path: Path) -> list[dict]:
    command = ["tshark", "-n", "-r", str(path), "-T", "fields", "-E", "occurrence=f"]
    command += [word for field in FIELDS for word in ("-e", field)]
    done = subprocess.run(command, capture_output=True, text=True)
    rows = []
    for line in done.stdout.splitlines():
        told = dict(zip(FIELDS, line.split("\t"), strict=True))
        if not told["frame.time_epoch"]:
            continue

        def number(*names, told=told, base=10):
            return next((int(told[name], base) for name in names if told[name]), None)

        seconds, _, fraction = told["frame.time_epoch"].partition(".")
        flags = number("tcp.flags", base=16)
        streams = (f"{name} {told[f'{name}.stream']}" for name in ("tcp", "udp") if told[f"{name}.stream"])
        datagram = number("udp.length")
        rows.append(
            {
                "captured_ns": int(seconds) * 10**9 + int(fraction.ljust(9, "0")),
                "original_bytes": number("frame.len"),
                "source": told["ip.src"] or told["ipv6.src"] or None,
                "destination": told["ip.dst"] or told["ipv6.dst"] or None,
                "source_port": number("tcp.srcport", "udp.srcport"),
                "destination_port": number("tcp.dstport", "udp.dstport"),
                "seq": number("tcp.seq_raw"),
                "ack": number("tcp.ack_raw"),
                "flags": flags & 0xFF if flags is not None else None,
                "window": number("tcp.window_size_value"),
                "window_shift": number("tcp.options.wscale.shift"),
                "mss": number("tcp.options.mss_val"),
                "payload_bytes": number("tcp.len") if datagram is None else datagram - 8,
                "stream": next(streams, None),
            }
        )
    return rows


def ours(path: Path, part_bytes: int = 1 << 30) -> list[dict]:
    reader = CaptureReader([str(path)], [0], part_bytes)
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def assert_the_same(path: Path, *, at_least: int, damages: int = 0) -> list[dict]:
    told, read = tsharks(path), ours(path)
    assert sum(row["fault"] == "record" for row in read) == damages
    read = [row for row in read if row["fault"] != "record"]
    assert len(read) == len(told) >= at_least
    names: dict[str, int] = {}
    for number, (theirs, mine) in enumerate(zip(told, read, strict=True), start=1):
        for field, value in theirs.items():
            if field == "stream" and value is not None and mine["fault"] is None:
                assert names.setdefault(value, mine["stream"]) == mine["stream"], f"frame {number}: stream"
            elif field in {"payload_bytes", "stream"} and value is None:
                assert mine["source_port"] is None or mine["fault"] is not None, f"frame {number}"
            elif field != "stream":
                assert mine[field] == value, f"frame {number}: {field}"
    assert len(set(names.values())) == len(names)
    return read


SYN = write.tcp(40000, 1883, seq=5, flags=0xC2, extra=b"\x02\x04\x05\xb4\x01\x03\x03\x07", window=64240)
DATA = write.tcp(1883, 40000, seq=0xFFFFFFF0, ack=9, flags=0x18, payload=b"x" * 60)
DATAGRAM = write.udp(40000, 9999, b"a datagram")
EXTENSION = struct.pack(">BB6x", 6, 0)


def contents() -> list[tuple[bytes, int]]:
    """Packets and their ethertype."""
    return [
        (write.ipv4(SYN), 0x0800),
        (write.ipv4(DATA, source="10.0.0.2", destination="10.0.0.1", extra=b"\x94\x04\0\0"), 0x0800),
        (write.ipv4(DATAGRAM, protocol=17), 0x0800),
        (write.ipv4(b"\x08\0\0\0" + bytes(40), protocol=1), 0x0800),
        (write.ipv4(DATA, total=0), 0x0800),
        (write.ipv6(SYN), 0x86DD),
        (write.ipv6(EXTENSION + DATA, first=60), 0x86DD),
        (write.ipv6(DATAGRAM, first=17), 0x86DD),
        (write.ipv6(DATA, source="::ffff:1.2.3.4", destination="2001:db8:0:0:1::"), 0x86DD),
    ]


LINKS = {
    "ethernet": (write.ETHERNET, lambda content, kind: write.ethernet(content, kind=kind, pad=kind != 0x0800)),
    "vlan": (write.ETHERNET, lambda content, kind: write.ethernet(content, kind=kind, vlans=[0x8100])),
    "qinq": (write.ETHERNET, lambda content, kind: write.ethernet(content, kind=kind, vlans=[0x88A8, 0x8100])),
    "cooked": (write.SLL, lambda content, kind: write.cooked(content, kind=kind)),
    "cooked 2": (write.SLL2, lambda content, kind: write.cooked2(content, kind=kind)),
    "raw": (write.RAW, lambda content, kind: content),
    "null": (write.NULL, lambda content, kind: struct.pack("<I", 2 if kind == 0x0800 else 30) + content),
    "loop": (write.LOOP, lambda content, kind: struct.pack(">I", 2 if kind == 0x0800 else 24) + content),
}


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("kind", ["pcap", "pcap big nano", "pcapng", "pcapng big"])
def test_hand_written_captures(tmp_path: Path, link: str, kind: str):
    number, wrap = LINKS[link]
    frames = [Frame(NOW_NS + place * 1000, wrap(*content)) for place, content in enumerate(contents())]
    path = tmp_path / "capture"
    path.write_bytes(
        {
            "pcap": lambda: write.pcap(frames, link=number),
            "pcap big nano": lambda: write.pcap(frames, link=number, order=">", nano=True),
            "pcapng": lambda: write.pcapng(frames, link=number, resolution=9),
            "pcapng big": lambda: write.pcapng(frames, link=number, order=">"),
        }[kind]()
    )
    assert_the_same(path, at_least=len(frames))


@pytest.mark.parametrize("resolution", [3, 6, 9, 0x80 | 10, 0x80 | 30])
def test_sections_interfaces_and_resolutions(tmp_path: Path, resolution: int):
    frame = Frame(NOW_NS, write.ethernet(write.ipv4(DATA)))
    cooked = Frame(NOW_NS + 10**9, write.cooked(write.ipv4(SYN)), interface=1)
    offset_s = 1_000_000_000
    content = (
        write.section("<", (1, b"comment")) + write.interface(1, resolution=resolution) + write.names()
        + write.interface(write.SLL, resolution=resolution, offset_s=offset_s)
        + write.packet(frame, resolution=resolution, comment=b"said here") + write.custom(b"anything")
        + write.packet(cooked, resolution=resolution, offset_s=offset_s) + write.statistics(0, 1, 2)
        + write.section(">") + write.interface(write.RAW, order=">", resolution=resolution)
        + write.packet(Frame(NOW_NS + 2 * 10**9, write.ipv4(DATAGRAM, protocol=17)), order=">", resolution=resolution)
    )  # fmt: skip
    (tmp_path / "capture").write_bytes(content)
    assert_the_same(tmp_path / "capture", at_least=3)


@pytest.mark.parametrize("kind", [write.pcap, write.pcapng])
@pytest.mark.parametrize("cut", [1, 7, 50, 90])
def test_captures_that_were_cut_off(tmp_path: Path, kind, cut: int):
    content = kind([Frame(NOW_NS + n, write.ethernet(write.ipv4(DATA))) for n in range(50)])
    (tmp_path / "capture").write_bytes(content[:-cut])
    assert_the_same(tmp_path / "capture", at_least=48, damages=1)


def talk(family: int, address: str, port: int) -> None:
    """A TCP conversation with large and small segments, then some datagrams, both to this port."""
    with socket.socket(family, socket.SOCK_STREAM) as listening:
        listening.bind((address, port))
        listening.listen()

        def serve() -> None:
            peer, _ = listening.accept()
            with peer:
                while received := peer.recv(65536):
                    peer.sendall(received[:100])

        server = threading.Thread(target=serve)
        server.start()
        with socket.socket(family, socket.SOCK_STREAM) as client:
            client.connect(listening.getsockname())
            for size in (1, 100, 1460, 70_000, 300_000):
                client.sendall(os.urandom(size))
                client.recv(100)
            client.shutdown(socket.SHUT_WR)
            while client.recv(65536):
                pass
        server.join()
    with socket.socket(family, socket.SOCK_DGRAM) as one, socket.socket(family, socket.SOCK_DGRAM) as two:
        one.bind((address, port))
        for size in (0, 1, 1000, 9000):
            two.sendto(bytes(size), one.getsockname())


CAPTURES = {
    "tcpdump": ["tcpdump", "-U", "-B", "65536", "-i", "lo"],
    "tcpdump nano": ["tcpdump", "-U", "-B", "65536", "--nano", "-i", "lo"],
    "tcpdump any": ["tcpdump", "-U", "-B", "65536", "-i", "any"],
    "tcpdump cooked": ["tcpdump", "-U", "-B", "65536", "-i", "any", "-y", "LINUX_SLL"],
    "tcpdump snap": ["tcpdump", "-U", "-B", "65536", "-s", "80", "-i", "lo"],
    "dumpcap": ["dumpcap", "-q", "-B", "64", "-i", "lo"],
    "dumpcap snap": ["dumpcap", "-q", "-B", "64", "-s", "76", "-i", "lo"],
    "dumpcap two": ["dumpcap", "-q", "-B", "64", "-i", "lo", "-i", "any"],
}


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="capturing needs root")
@pytest.mark.parametrize("how", CAPTURES)
def test_captures_of_real_traffic(tmp_path: Path, how: str):
    command = CAPTURES[how]
    program = command[0]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    path = tmp_path / "capture"
    port = free_port()
    with Beacon() as beacon:
        # Others talk on loopback meanwhile, and a lot.
        only = f"port {port} or port {beacon.port}"
        filtered = [*command, only] if program == "tcpdump" else [program, "-f", only, *command[1:]]
        with capturing([*filtered, "-w"], path, beacon, interfaces=command.count("-i")):
            talk(socket.AF_INET, "127.0.0.1", port)
            talk(socket.AF_INET6, "::1", port)
    read = assert_the_same(path, at_least=30)
    assert {row["source"] for row in read} >= {"127.0.0.1", "::1"}
    whole = "snap" not in how
    assert all(row["missing_bytes"] == 0 for row in read) == whole
    content = path.read_bytes()
    if whole:
        zeros = [row for row in read if row["protocol"] == 17 and row["payload_bytes"] == 9000]
        assert zeros
        assert all(content[row["payload_at"] : row["payload_at"] + 9000] == bytes(9000) for row in zeros)
    apart = ours(path, part_bytes=100_000)
    assert apart == ours(path)
