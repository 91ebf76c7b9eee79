"""Frames become rows of packets: every link layer, both IPs, TCP and UDP, whole, cut off or wrong."""

from __future__ import annotations

import random
import struct
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.dissect.boundaries import parts
from battlebrokers.dissect.frames import frames_of, packets
from battlebrokers.dissect.headers import FAULTS, unread_of
from battlebrokers.dissect.parts import chunks, walker
from battlebrokers.tables.packets import PACKETS
from support import capture_writer as write
from support.capture_writer import Frame
from support.examples import examples

NOW_NS = 1_700_000_000_000_001_000


def rows_of(content: bytes, file: int = 0, chunk_bytes: int = 1 << 20) -> list[dict]:
    def read(at: int, size: int) -> bytes:
        return content[at : at + size]

    (part,) = parts(read, len(content), 1 << 40)
    rows = []
    for data, at, records in chunks(read, part, walker(part.layout), chunk_bytes):
        batch = packets(data, at, records, file)
        batch.validate(full=True)
        assert batch.schema == PACKETS.arrow_schema()
        rows += batch.to_pylist()
    return rows


def row_of(frame: bytes, link: int = write.ETHERNET, original: int = -1, file: int = 0) -> dict:
    (row,) = rows_of(write.pcap([Frame(NOW_NS, frame, original)], link=link), file)
    return row


SEGMENT = write.tcp(40000, 1883, seq=0xFFFFFFF0, ack=7, flags=0x18, window=501, payload=b"hello")
PACKET4 = write.ipv4(SEGMENT)
PACKET6 = write.ipv6(SEGMENT)


@pytest.mark.parametrize(
    ("link", "frame", "version"),
    [
        (write.ETHERNET, write.ethernet(PACKET4), 4),
        (write.ETHERNET, write.ethernet(PACKET6, kind=0x86DD), 6),
        (write.ETHERNET, write.ethernet(PACKET4, vlans=[0x8100]), 4),
        (write.ETHERNET, write.ethernet(PACKET6, kind=0x86DD, vlans=[0x88A8, 0x8100]), 6),
        (write.SLL, write.cooked(PACKET4), 4),
        (write.SLL, write.cooked(PACKET6, kind=0x86DD), 6),
        (write.SLL2, write.cooked2(PACKET4), 4),
        (write.SLL2, write.cooked2(PACKET6, kind=0x86DD), 6),
        (write.RAW, PACKET4, 4),
        (write.RAW, PACKET6, 6),
        (12, PACKET4, 4),
        (14, PACKET6, 6),
        (write.IPV4, PACKET4, 4),
        (write.IPV6, PACKET6, 6),
        (write.NULL, struct.pack("<I", 2) + PACKET4, 4),
        (write.NULL, struct.pack(">I", 30) + PACKET6, 6),
        (write.LOOP, struct.pack(">I", 2) + PACKET4, 4),
        (write.LOOP, struct.pack(">I", 24) + PACKET6, 6),
    ],
)
def test_every_link_layer_leads_to_the_segment(link, frame, version):
    row = row_of(frame, link)
    header = frame.index(SEGMENT)
    assert row.pop("stream") is not None
    assert row == {
        "file": 0, "at": 24, "captured_ns": NOW_NS, "interface": 0, "protocol": 6,
        "source": "10.0.0.1" if version == 4 else "fe80::1",
        "destination": "10.0.0.2" if version == 4 else "2001:db8::2",
        "source_port": 40000, "destination_port": 1883, "seq": 0xFFFFFFF0, "ack": 7, "flags": 0x18, "window": 501,
        "window_shift": None, "mss": None, "payload_at": 40 + header + 20, "payload_bytes": 5, "missing_bytes": 0,
        "original_bytes": len(frame), "fault": None,
    }  # fmt: skip


def test_padding_is_no_payload():
    row = row_of(write.ethernet(write.ipv4(write.tcp(1, 2))))
    assert row["original_bytes"] == 60
    assert row["payload_bytes"] == 0


def test_a_total_length_of_zero_means_the_rest_of_the_frame():
    assert row_of(write.ethernet(write.ipv4(SEGMENT + b"!" * 99, total=0)))["payload_bytes"] == 104
    assert row_of(write.ethernet(write.ipv6(SEGMENT + b"!" * 99, length=0), kind=0x86DD))["payload_bytes"] == 104


def test_options_of_ip_and_tcp_are_passed_over_and_those_of_a_syn_are_read():
    extra = b"\x02\x04\x05\xb4" + b"\x01" + b"\x03\x03\x07" + b"\x04\x02" + b"\x08\x0a" + bytes(8)
    syn = write.tcp(1, 2, flags=2, extra=extra, payload=b"early")
    row = row_of(write.ethernet(write.ipv4(syn, extra=b"\x07\x04\0\0")))
    assert (row["mss"], row["window_shift"], row["payload_bytes"], row["flags"]) == (1460, 7, 5, 2)
    later = row_of(write.ethernet(write.ipv4(write.tcp(1, 2, flags=16, extra=extra))))
    assert (later["mss"], later["window_shift"]) == (None, None)
    assert row_of(write.ethernet(write.ipv4(write.tcp(1, 2, flags=2, extra=b"\x03\x03\xff"))))["window_shift"] == 14


@pytest.mark.parametrize("extra", [b"\x03\x00\x07\x00", b"\x03\x28\x07\x00", b"\x02\x01\0\0", b"\x01\x01\x01\x03"])
def test_nonsense_in_options_is_ignored(extra):
    row = row_of(write.ethernet(write.ipv4(write.tcp(1, 2, flags=2, extra=extra))))
    assert (row["mss"], row["window_shift"], row["fault"]) == (None, None, None)


def test_extension_headers_are_passed_over():
    inner = write.udp(5, 6, b"data")
    hops, destination = struct.pack(">BB6x", 43, 0), struct.pack(">BB14x", 44, 1)
    routing, atomic = struct.pack(">BB6x", 60, 0), struct.pack(">BBHI", 51, 0, 0, 9)
    authentication = struct.pack(">BB10x", 17, 1)
    content = hops + routing + destination + atomic + authentication + inner
    row = row_of(write.ethernet(write.ipv6(content, first=0), kind=0x86DD))
    assert (row["protocol"], row["destination_port"], row["payload_bytes"], row["fault"]) == (17, 6, 4, None)


def test_fragments_are_counted_not_read():
    first = row_of(write.ethernet(write.ipv4(SEGMENT, fragment=0x2000)))
    later = row_of(write.ethernet(write.ipv4(b"rest", fragment=0x0010)))
    six = row_of(write.ethernet(write.ipv6(struct.pack(">BBHI", 6, 0, 1, 9) + SEGMENT, first=44), kind=0x86DD))
    for row in (first, later, six):
        assert row["fault"] == "fragment"
        assert row["protocol"] == 6
        assert row["source"] is not None
        assert row["stream"] is None
        assert row["source_port"] is None
    assert row_of(write.ethernet(write.ipv4(SEGMENT, fragment=0x4000)))["fault"] is None


def test_a_snap_length_cuts_payload_options_or_headers():
    frame = write.ethernet(write.ipv4(write.tcp(1, 2, flags=2, extra=b"\x03\x03\x07\0", payload=b"x" * 100)))
    cut = {size: row_of(frame[:size], original=len(frame)) for size in range(len(frame) + 1)}
    assert [cut[size]["original_bytes"] for size in (0, 50)] == [len(frame)] * 2
    for size in range(54):
        assert cut[size]["fault"] == "truncated"
        assert cut[size]["stream"] is None
    for size in range(54, 58):
        assert (cut[size]["fault"], cut[size]["payload_bytes"], cut[size]["missing_bytes"]) == ("truncated", 100, 100)
        assert cut[size]["stream"] is not None
    for size in range(58, len(frame) + 1):
        assert (cut[size]["fault"], cut[size]["window_shift"]) == (None, 7)
        assert (cut[size]["payload_bytes"], cut[size]["missing_bytes"]) == (100, len(frame) - size)


@pytest.mark.parametrize(
    ("frame", "fault"),
    [
        (b"short", "link"),
        (write.ethernet(b"\0\0", vlans=[0x8100] * 9), "link"),
        (write.ethernet(b"\x45\0", pad=False), "ip"),
        (write.ethernet(b"\x55" + PACKET4[1:]), "ip"),
        (write.ethernet(b"\x44" + PACKET4[1:]), "ip"),
        (write.ethernet(write.ipv4(SEGMENT, total=19)), "ip"),
        (write.ethernet(PACKET4, kind=0x86DD), "ip"),
        (write.ethernet(write.ipv6(b"", first=0), kind=0x86DD), "ip"),
        (write.ethernet(write.ipv6(struct.pack(">BB6x", 6, 200) + SEGMENT, first=60), kind=0x86DD), "ip"),
        (write.ethernet(write.ipv6(struct.pack(">BB6x", 60, 0) * 40, first=60), kind=0x86DD), "ip"),
        (write.ethernet(write.ipv4(SEGMENT[:19])), "tcp"),
        (write.ethernet(write.ipv4(SEGMENT[:12] + b"\x40" + SEGMENT[13:])), "tcp"),
        (write.ethernet(write.ipv4(SEGMENT[:12] + b"\xf0" + SEGMENT[13:])), "tcp"),
        (write.ethernet(write.ipv4(b"1234567", protocol=17)), "udp"),
        (write.ethernet(write.ipv4(write.udp(1, 2, b"abc", length=7), protocol=17)), "udp"),
        (write.ethernet(write.ipv4(write.udp(1, 2, b"abc", length=99), protocol=17)), "udp"),
    ],
)  # fmt: skip
def test_wrong_headers_are_named(frame, fault):
    assert row_of(frame)["fault"] == fault


def test_what_is_no_ip_is_no_fault_but_an_unknown_link_layer_is():
    row = row_of(write.ethernet(bytes(28), kind=0x0806))
    assert (row["fault"], row["protocol"], row["stream"], row["payload_bytes"]) == (None, None, None, 0)
    assert row_of(b"something", link=147)["fault"] == "link"
    ping = row_of(write.ethernet(write.ipv4(b"\x08" + bytes(63), protocol=1)))
    assert (ping["fault"], ping["protocol"], ping["stream"], ping["payload_bytes"]) == (None, 1, None, 64)


def test_both_directions_are_one_stream_and_everything_else_is_another():
    def stream(source, source_port, destination, port, *, file=0, protocol=6):
        content = write.tcp(source_port, port) if protocol == 6 else write.udp(source_port, port)
        wrap, kind = (write.ipv6, 0x86DD) if ":" in source else (write.ipv4, 0x0800)
        name = "first" if ":" in source else "protocol"
        packet = wrap(content, source=source, destination=destination, **{name: protocol})
        return row_of(write.ethernet(packet, kind=kind), file=file)["stream"]

    there = stream("10.0.0.1", 5, "10.0.0.2", 6)
    assert there == stream("10.0.0.2", 6, "10.0.0.1", 5)
    others = {
        stream("10.0.0.1", 6, "10.0.0.2", 5),
        stream("10.0.0.1", 5, "10.0.0.3", 6),
        stream("10.0.0.1", 5, "10.0.0.2", 6, file=1),
        stream("10.0.0.1", 5, "10.0.0.2", 6, protocol=17),
        stream("::a00:1", 5, "::a00:2", 6),
        stream("::1", 5, "::1", 6),
        there,
    }
    assert len(others) == 7


def test_many_streams_have_different_names():
    frames = [
        Frame(NOW_NS, write.ethernet(write.ipv4(write.tcp(port, 80), source=f"10.0.{host}.1")))
        for port in range(1, 100)
        for host in range(1, 100)
    ]
    assert len({row["stream"] for row in rows_of(write.pcap(frames))}) == 99 * 99


def test_damage_is_a_row_in_its_place():
    frames = [Frame(NOW_NS, write.ethernet(PACKET4)) for _ in range(9)]
    content = bytearray(write.pcap(frames))
    size = len(frames[0].data) + 16
    content[24 + 3 * size : 24 + 4 * size] = bytes(size)
    rows = rows_of(bytes(content))
    assert [row["fault"] for row in rows] == [None] * 3 + ["record"] + [None] * 5
    assert (rows[3]["at"], rows[3]["original_bytes"], rows[3]["stream"]) == (24 + 3 * size, size, None)
    assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)


@examples(150)
@given(st.data())
def test_mutated_frames_never_raise_and_never_point_outside(data):
    source = random.Random(data.draw(st.integers(0, 1 << 30)))
    link = data.draw(st.sampled_from([0, 1, 101, 108, 113, 228, 229, 276, 5]))
    wrap = {1: write.ethernet, 113: write.cooked, 276: write.cooked2}.get(link, lambda content, **_: content)
    syn = write.tcp(1, 2, flags=2, extra=b"\x02\x04\x05\xb4\x03\x03\x07\0", payload=b"x" * 30)
    frames = []
    for _ in range(40):
        packet, kind = source.choice(
            [(write.ipv4(syn), 0x800), (write.ipv4(write.udp(3, 4, b"abc"), protocol=17), 0x800),
             (write.ipv6(struct.pack(">BB6x", 6, 0) + syn, first=0), 0x86DD)]
        )  # fmt: skip
        frame = bytearray(wrap(packet, kind=kind))
        for _ in range(source.randint(0, 6)):
            frame[source.randrange(len(frame))] = source.choice([0, 1, 0xFF, source.randrange(256)])
        original = len(frame)
        frames.append(Frame(NOW_NS, bytes(frame[: source.randint(0, original)]), original))
    content = write.pcap(frames, link=link)
    rows = rows_of(content)
    assert len(rows) == 40
    for row in rows:
        assert 0 <= row["missing_bytes"] <= row["payload_bytes"] <= row["original_bytes"]
        if row["payload_bytes"] > row["missing_bytes"]:
            assert 24 < row["payload_at"] <= len(content) - (row["payload_bytes"] - row["missing_bytes"])


def test_workers_do_not_import_pandas():
    code = (
        "import sys; sys.path[:0] = ['tests']; from support import capture_writer as w;"
        "from battlebrokers.dissect.boundaries import parts; from battlebrokers.dissect.frames import packets;"
        "from battlebrokers.dissect.parts import chunks, walker;"
        "c = w.pcap([w.Frame(1 << 60, w.ethernet(w.ipv4(w.tcp(1, 2))))]); r = lambda a, s: c[a : a + s];"
        "(p,) = parts(r, len(c)); rows = [packets(d, a, k, 0) for d, a, k in chunks(r, p, walker(p.layout))];"
        "assert rows[0].num_rows == 1; assert 'pandas' not in sys.modules; assert 'pyspark' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_packets_that_belong_to_no_stream_are_counted_by_what_is_wrong():
    whole = write.ethernet(write.ipv4(write.tcp(1, 2), protocol=6))
    content = write.pcap([Frame(NOW_NS, data, -1) for data in (whole, b"short", b"short", whole[:30])])

    def read(at: int, size: int) -> bytes:
        return content[at : at + size]

    (part,) = parts(read, len(content), 1 << 40)
    ((data, at, records),) = chunks(read, part, walker(part.layout))
    found = unread_of(frames_of(data, at, records, 0).headers)
    assert found["link"] == 2
    assert found.keys() <= set(FAULTS) - {"truncated", "record"}
    assert found.total() == sum(bool(row["fault"]) and row["fault"] != "truncated" for row in rows_of(content))
