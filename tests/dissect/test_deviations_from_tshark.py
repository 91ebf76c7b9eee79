"""Where we and tshark 4.0 differ on purpose: both judgements of conversations written by hand, side by side.

The comparisons with real servers keep out of these ways; docs/explanation/beside-wireshark.md lists them.
"""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

from battlebrokers.dissect import tcp_state
from battlebrokers.dissect.segments import ACK, FIN, PSH, SYN
from battlebrokers.dissect.tcp_analysis import TcpAnalysis
from battlebrokers.pipeline.sources.capture import CaptureReader
from support import capture_writer as write
from support.capture_files import Packet, segments_of, write_capture
from support.capture_writer import Frame
from support.conversation import CLIENT, SERVER, Heard, Turn
from support.wiretap import found, needs, overheard, tshark, written


def is_tshark_4_0() -> bool:
    if found("tshark") is None:
        return False
    told = subprocess.run(["tshark", "--version"], capture_output=True, text=True, check=False).stdout
    return "TShark (Wireshark) 4.0." in told


pytestmark = [
    pytest.mark.slow,
    needs("tshark", why="(apt install tshark)"),
    pytest.mark.skipif(not is_tshark_4_0(), reason="this is how tshark 4.0 differs, and there is another one here"),
]
NOW_NS = 1_700_000_000 * 10**9


def both(
    folder: Path, turns: list[Turn], port: int, protocol: str, fields: list[str], passes: int = 2
) -> tuple[Heard, list[dict[str, list[str]]]]:
    """What we and what tshark makes of it."""
    capture = folder / "made-up.pcap"
    written(capture, turns, port, cut=60_000)
    (heard,) = overheard(capture, port)
    return heard, tshark(capture, fields, decode_as=f"tcp.port=={port},{protocol}", passes=passes)


GET = b"GET /%b HTTP/1.1\r\nHost: here\r\n\r\n"
HEAD = b"HEAD / HTTP/1.1\r\nHost: here\r\n\r\n"
FRONT = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"


def test_pipelined_requests_each_have_their_answer_here_and_only_the_latest_one_has_in_tshark(tmp_path: Path) -> None:
    turns: list[Turn] = [(CLIENT, GET % name) for name in (b"a", b"b", b"c")]
    turns += [(SERVER, FRONT + b"hello")] * 3
    heard, rows = both(tmp_path, turns, 80, "http", ["http.response.code", "http.request_in"])
    assert [row.request.found.name for row in heard.exchanges if row.response] == ["/a", "/b", "/c"]
    assert [row.answered_ns - row.request.last_ns for row in heard.exchanges] == [3000] * 3
    assert [row["http.request_in"] for row in rows if row["http.response.code"]] == [["3"], [], []]


def test_the_answer_to_a_pipelined_head_has_no_body_here_and_swallows_the_next_answer_in_tshark(tmp_path: Path) -> None:
    turns: list[Turn] = [(CLIENT, HEAD), (CLIENT, GET % b""), (SERVER, FRONT), (SERVER, FRONT + b"hello")]
    heard, rows = both(tmp_path, turns, 80, "http", ["http.response.code"])
    assert heard.pairs == [("HEAD", "200"), ("GET", "200")]
    assert [row.response.found.payload_bytes for row in heard.exchanges if row.response] == [0, 5]
    assert sum(len(row["http.response.code"]) for row in rows) == 1


def test_fragments_of_websocket_are_one_message_here_and_frames_in_tshark(tmp_path: Path) -> None:
    ask = GET[:-2].replace(b"/%b", b"/") + (
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    agree = (
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
    )
    frames = b"\x01\x03one" + b"\x00\x03two" + b"\x80\x05three"
    heard, rows = both(
        tmp_path, [(CLIENT, ask), (SERVER, agree), (SERVER, frames)], 80, "http", ["websocket.opcode"]
    )  # fmt: skip
    assert [told.found.payload_bytes for told in heard.messages if told.found.kind == "TEXT"] == [11]
    assert [code for row in rows for code in row["websocket.opcode"]] == ["1", "0", "0"]


def amqp(method: object, body: bytes | None = None) -> bytes:
    """A method on channel 1, and its content."""
    frame = pytest.importorskip("pika.frame", reason="pika is not installed")
    spec = pytest.importorskip("pika.spec", reason="pika is not installed")
    said = frame.Method(1, method).marshal()
    if body is not None:
        said += frame.Header(1, len(body), spec.BasicProperties()).marshal() + frame.Body(1, body).marshal()
    return bytes(said)


def acknowledged(heard: Heard) -> list[bytes]:
    """Where what was acknowledged begins, in the order of the requests."""
    rows = [row.request.found for row in heard.exchanges if row.response and row.response.found.kind == "Basic.Ack"]
    return [row.kind.encode() + b" %d" % row.start for row in rows]


def test_confirms_count_from_confirm_select_here_and_from_the_channels_opening_in_tshark(tmp_path: Path) -> None:
    spec = pytest.importorskip("pika.spec", reason="pika is not installed")
    publish = amqp(spec.Basic.Publish(exchange="e", routing_key="k"), b"body")
    before = b"AMQP\0\0\x09\x01" + amqp(spec.Channel.Open())
    turns: list[Turn] = [
        (CLIENT, before), (SERVER, amqp(spec.Channel.OpenOk())), (CLIENT, publish),
        (CLIENT, amqp(spec.Confirm.Select())), (SERVER, amqp(spec.Confirm.SelectOk())), (CLIENT, publish),
        (SERVER, amqp(spec.Basic.Ack(1))),
    ]  # fmt: skip
    heard, rows = both(tmp_path, turns, 5672, "amqp", ["amqp.message_in"], passes=1)
    second = len(before + publish + amqp(spec.Confirm.Select()))
    assert acknowledged(heard) == [b"Basic.Publish %d" % second]
    assert [place for row in rows for place in row["amqp.message_in"]] == ["3"]  # the first one


def test_what_needs_no_acknowledgement_has_none_here_and_that_of_later_ones_in_tshark(tmp_path: Path) -> None:
    spec = pytest.importorskip("pika.spec", reason="pika is not installed")
    opened = amqp(spec.Channel.OpenOk())
    got = [
        amqp(spec.Basic.GetOk(delivery_tag=tag, exchange="e", routing_key="k", message_count=1), b"x") for tag in (1, 2)
    ]
    turns: list[Turn] = [
        (CLIENT, b"AMQP\0\0\x09\x01" + amqp(spec.Channel.Open())), (SERVER, opened),
        (CLIENT, amqp(spec.Basic.Get(queue="q", no_ack=True))), (SERVER, got[0]),
        (CLIENT, amqp(spec.Basic.Get(queue="q"))), (SERVER, got[1]),
        (CLIENT, amqp(spec.Basic.Ack(2, multiple=True))),
    ]  # fmt: skip
    heard, rows = both(tmp_path, turns, 5672, "amqp", ["amqp.message_in"], passes=1)
    assert acknowledged(heard) == [b"Basic.GetOk %d" % len(opened + got[0])]
    assert [place for row in rows for place in row["amqp.message_in"]] == ["4", "6"]


def test_what_snappy_packed_stays_packed_here_and_is_opened_by_tshark(tmp_path: Path) -> None:
    bson = pytest.importorskip("bson", reason="pymongo is not installed")
    body = struct.pack("<IB", 0, 0) + bson.encode({"ping": 1, "$db": "shop"})
    assert len(body) <= 60
    snappy = bytes((len(body), (len(body) - 1) << 2)) + body  # a single literal
    packed = struct.pack("<iiB", 2013, len(body), 1) + snappy
    asked = struct.pack("<iiii", 16 + len(packed), 7, 0, 2012) + packed
    heard, rows = both(tmp_path, [(CLIENT, asked)], 27017, "mongo", ["mongo.opcode", "mongo.element.name"])
    assert heard.kinds == ["OP_COMPRESSED"]
    assert [row["mongo.element.name"] for row in rows if row["mongo.opcode"]] == [["ping", "$db"]]


def faults(path: Path) -> list[str | None]:
    reader = CaptureReader([str(path)], [0], 1 << 30)
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    return [row["fault"] for row in rows]


def test_a_tcp_header_cut_by_the_snap_length_is_truncated_here_and_read_in_part_by_tshark(tmp_path: Path) -> None:
    whole = write.ethernet(write.ipv4(write.tcp(1883, 40_000, seq=1, ack=2, flags=ACK, payload=b"x" * 60)))
    path = tmp_path / "capture"
    path.write_bytes(write.pcap([Frame(NOW_NS, whole[: 14 + 20 + 10], len(whole))]))
    assert faults(path) == ["truncated"]
    assert tshark(path, ["tcp.srcport"]) == [{"tcp.srcport": ["1883"]}]


def test_custom_blocks_are_no_packets_here_and_frames_without_a_time_in_tshark(tmp_path: Path) -> None:
    frame = Frame(NOW_NS, write.ethernet(write.ipv4(write.udp(40_000, 9999, b"a datagram"), protocol=17)))
    path = tmp_path / "capture"
    path.write_bytes(write.section("<") + write.interface(1) + write.custom(b"anything") + write.packet(frame))
    assert faults(path) == [None]
    assert [len(row["frame.time_epoch"]) for row in tshark(path, ["frame.time_epoch"])] == [0, 1]


def test_fragments_are_counted_here_and_put_together_by_tshark(tmp_path: Path) -> None:
    datagram = write.udp(40_000, 9999, b"d" * 40)
    parts = [
        write.ipv4(datagram[:24], protocol=17, fragment=0x2000),
        write.ipv4(datagram[24:], protocol=17, fragment=3),
    ]
    path = tmp_path / "capture"
    path.write_bytes(write.pcap([Frame(NOW_NS + place, write.ethernet(part)) for place, part in enumerate(parts)]))
    assert faults(path) == ["fragment", "fragment"]
    assert [row["udp.length"] for row in tshark(path, ["udp.length"])] == [[], ["48"]]


def test_a_fin_behind_ten_thousand_unacknowledged_segments_counts_here_and_not_in_tshark(tmp_path: Path) -> None:
    def connection(count: int) -> list[Packet]:
        packets = [
            Packet(NOW_NS, 0, 100, 0, SYN, 64_000, 0, 7), Packet(NOW_NS + 1000, 1, 900, 101, SYN | ACK, 64_000, 0, 7),
        ]  # fmt: skip
        for place in range(count):
            packets.append(Packet(NOW_NS + 2000 + place, 0, 101 + place * 10, 901, ACK | PSH, 64_000, 10))
        end = 101 + count * 10
        packets.append(Packet(NOW_NS + 10**9, 0, end, 901, ACK | FIN, 64_000, 0))
        return [*packets, Packet(NOW_NS + 10**9 + 1000, 1, 901, end + 1, ACK, 64_000, 0)]

    for count, theirs in ((9_999, []), (10_000, ["1"])):
        packets, path = connection(count), tmp_path / f"{count}.pcap"
        write_capture(path, ((1024, packet) for packet in packets))
        (last,) = TcpAnalysis().push(segments_of(packets))[-1:]
        assert not last & tcp_state.ACKED_UNSEEN
        assert tshark(path, ["tcp.analysis.ack_lost_segment"])[-1]["tcp.analysis.ack_lost_segment"] == theirs
