from __future__ import annotations

from battlebrokers.analysis.wire import read_wire
from battlebrokers.report.service_text import service_text, write_service_texts
from support.wires import MS, START_NS, Wires, small_system


def text_of(path, service, wires=None):
    return service_text(read_wire((wires or small_system()).write(path)), service)


def test_every_service_has_its_file(tmp_path):
    folder = small_system().write(tmp_path)
    written = write_service_texts(read_wire(folder), tmp_path)
    assert [path.name for path in written] == ["gateway.txt", "redis.txt", "dispatcher.txt", "web.txt"]
    assert (tmp_path / "services" / "redis.txt").read_text().startswith("redis\n=====\n")


def test_files_of_an_earlier_time_are_gone(tmp_path):
    (tmp_path / "services").mkdir()
    (tmp_path / "services" / "old.txt").write_text("x")
    write_service_texts(read_wire(small_system().write(tmp_path)), tmp_path)
    assert not (tmp_path / "services" / "old.txt").exists()


def test_packets_are_told_per_protocol(tmp_path):
    lines = text_of(tmp_path, "gateway").splitlines()
    at = lines.index("PACKETS PER PROTOCOL")
    assert [" ".join(line.split()) for line in lines[at + 2 : at + 6]] == [
        "mqtt 202 packets in 1 stream, 202 messages",
        "redis 200 packets in 1 stream, 200 messages",
        "http 20 packets in 1 stream, 20 messages",
        "none of these 438 packets: acknowledgements, opening and closing, unread",
    ]


def test_requests_are_split_by_direction_with_their_delays(tmp_path):
    text = text_of(tmp_path, "gateway")
    assert "asked by web, http: 10 requests, 10 answered (0 uncertain), 0 pending, 2 failed" in text
    assert "asks redis, redis: 100 requests, 99 answered (1 uncertain), 1 pending, 0 failed" in text
    (row,) = [line.split() for line in text.splitlines() if line.strip().startswith("GET")]
    assert row[:4] == ["GET", "10", "0", "2"]
    assert row[8:10] == ["1.5", "ms"]


def test_each_stream_tells_pending_malformed_retransmissions_and_round_trips(tmp_path):
    text = text_of(tmp_path, "dispatcher")
    assert "outside (192.0.2.4:40004) -> dispatcher (10.0.0.4:8080), websocket, http" in text
    assert "messages         websocket 102 in 102 packets, http 2 in 2 packets" in text
    assert "server asked     1, answered 0 (0 uncertain), failed 0, pending 1" in text
    assert "malformed        1; 77 B undecoded, 0 B not in the capture" in text
    gateway = text_of(tmp_path / "again", "gateway")
    assert "retransmissions  3 (1 fast, 0 spurious), out of order 0" in gateway
    assert "round trip       handshake 80 µs, client 41 µs, server 39 µs" in gateway


def test_traffic_that_is_neither_request_nor_response_has_its_column(tmp_path):
    text = text_of(tmp_path, "redis")
    (row,) = [line for line in text.splitlines() if line.strip().startswith("redis -> dispatcher")]
    assert row.split()[-3:] == ["0", "0", "100"]


def test_followed_messages_are_summed_up(tmp_path):
    text = text_of(tmp_path, "redis")
    assert "99 messages, kept p50 200 µs, p95 30.2 ms" in text
    assert "1 message came in and never went out" in text


def test_no_name_leaves_the_folder_or_steers_a_terminal(tmp_path):
    wires = Wires()
    for number, name in enumerate(["../../etc/passwd", "a/b", "a\\b", "\x1b[2Jred", "..", "A_b"]):
        wires.stream(number, None, name, "http", client_bytes=100 - number)
        wires.talk(0, "outside", name, "http", "request", 1, 100 - number)
    folder = wires.write(tmp_path / "run")
    written = write_service_texts(read_wire(folder), folder.path)
    assert {path.parent for path in written} == {folder.path / "services"}
    assert [path.name for path in written] == [
        "etc_passwd.txt", "a_b.txt", "a_b-2.txt", "2Jred.txt", "unnamed.txt", "A_b-3.txt",
    ]  # fmt: skip
    assert "\x1b" not in "".join(path.read_text() for path in written)


def test_a_service_with_many_streams_tells_the_busiest(tmp_path):
    wires = Wires()
    for number in range(130):
        wires.stream(number, None, "redis", "redis", client_bytes=number)
    text = text_of(tmp_path, "redis", wires)
    assert "STREAMS (the busiest 100 of 130)" in text
    assert "PACKETS PER PROTOCOL (of the streams below)" in text


def test_kinds_of_messages_are_told_with_their_names(tmp_path):
    wires = Wires()
    wires.stream(1, "gateway", "redis", "redis", last_ns=START_NS + 2_000 * MS)
    wires.said(1, "redis", 6, kind="PUBLISH", name="air", bytes=100)
    wires.said(1, "redis", 2, kind="PUBLISH", name="noise", bytes=100)
    lines = [" ".join(line.split()) for line in text_of(tmp_path, "redis", wires).splitlines()]
    at = lines.index("KINDS OF MESSAGES")
    assert lines[at + 3 : at + 6] == [
        "gateway -> redis, redis PUBLISH 8 4/s 800 B 0 – –",
        "air 6 3/s 600 B 0 – –",
        "noise 2 1/s 200 B 0 – –",
    ]
