"""Captures written by hand, decoded by Spark: what becomes of messages that services wrap, repeat or keep."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from battlebrokers.analysis.traces import Traces
from battlebrokers.pipeline.captures import Captures, decode
from battlebrokers.pipeline.stages.wires import WireStage
from battlebrokers.pipeline.store import LocalStore
from battlebrokers.report.export import write_wire_csv
from battlebrokers.tables import ALONE, EXCHANGES, FOLLOWED, HOPS, JOURNEYS, MESSAGES, SERVICE_PEERS, STREAMS, Table
from battlebrokers.tables.message_header import HEADER, VERSION
from battlebrokers.tables.run_folder import RunFolder
from support import capture_writer as write
from support.capture_writer import Frame

pytestmark = pytest.mark.spark

NOW_NS = 1_790_000_000 * 1_000_000_000
US = 1_000
SYN, ACK, PUSH = 2, 16, 24
OUTSIDE, GATEWAY, STORE = ("10.0.0.1", 40_000), ("10.0.0.2", 80), ("10.0.0.3", 8080)
NAMES = {"10.0.0.2": "gateway", "10.0.0.3": "store"}

Endpoint = tuple[str, int]


def posts(client: Endpoint, server: Endpoint, bodies: Iterable[bytes], at_ns: int = NOW_NS) -> list[Frame]:
    """One HTTP connection, from its SYN on: each body is posted and answered."""
    frames: list[Frame] = []
    seqs = [1000, 5000]

    def send(side: int, flags: int, payload: bytes = b"") -> None:
        (source, source_port), (destination, port) = (client, server) if side == 0 else (server, client)
        part = write.tcp(source_port, port, seq=seqs[side], ack=seqs[1 - side], flags=flags, payload=payload)
        frame = write.ethernet(write.ipv4(part, source=source, destination=destination))
        frames.append(Frame(at_ns + len(frames) * 10 * US, frame))
        seqs[side] += len(payload) + bool(flags & SYN)

    send(0, SYN)
    send(1, SYN | ACK)
    for body in bodies:
        send(0, PUSH, b"POST /in HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        send(1, PUSH, b"HTTP/1.1 204 No Content\r\n\r\n")
    return frames


def decoded(spark: SparkSession, folder: Path, *connections: list[Frame], **more: Any) -> RunFolder:
    folder.mkdir(exist_ok=True)
    frames = sorted((frame for one in connections for frame in one), key=lambda frame: frame.time_ns)
    (folder / "made-up.pcap").write_bytes(write.pcap(frames, nano=True))
    captures = Captures([str(folder / "made-up.pcap")], names=NAMES, **more)
    decode(spark, captures, LocalStore(folder))
    return RunFolder(folder)


def rows(folder: RunFolder, table: Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(folder.table(table)).to_pylist()
    return found


def wrapped(device: int, seq: int) -> bytes:
    """Our header as a middleware passes it on."""
    ours = HEADER.pack(VERSION << 24 | device, seq, NOW_NS) + b"21.5 degrees"
    return json.dumps({"topic": "town", "data": base64.b64encode(ours).decode()}).encode()


def test_what_was_lost_is_traced_though_a_middleware_wraps_it(spark: SparkSession, tmp_path: Path) -> None:
    arrives, stays = wrapped(7, 1), wrapped(7, 2)
    folder = decoded(
        spark,
        tmp_path / "run",
        posts(OUTSIDE, GATEWAY, [arrives, stays]),
        posts(("10.0.0.2", 50_000), STORE, [arrives], at_ns=NOW_NS + 500 * US),
        beside_run=True,
    )
    folder.table(JOURNEYS).mkdir(parents=True, exist_ok=True)
    journeys = pa.table({"device": pa.array([7], pa.int32()), "seq": pa.array([2], pa.int64()), "outcome": ["lost"]})
    pq.write_table(journeys, folder.table(JOURNEYS) / "lost.parquet")
    lost = Traces(folder).lost()
    assert (lost.total, lost.seen) == (1, 1)
    assert [(trace.title, trace.legs[-1].receiver) for trace in lost.traces] == [("7:2", "gateway")]
    (followed,) = Traces(folder).named("7:1")
    assert [(leg.sender, leg.receiver) for leg in followed.legs] == [("outside", "gateway"), ("gateway", "store")]
    assert {row["matched_by"] for row in rows(folder, HOPS)} == {"header"}


def test_a_constant_payload_takes_no_room_where_messages_are_followed(spark: SparkSession, tmp_path: Path) -> None:
    body = b"the door is open, as it always was"
    connections = [posts((f"10.0.1.{n}", 40_000), GATEWAY, [body] * 400, NOW_NS + n) for n in range(3)]
    folder = decoded(spark, tmp_path / "run", *connections, posts(OUTSIDE, GATEWAY, [wrapped(7, 1)]))
    assert [(row["device"], row["seq"]) for row in rows(folder, HOPS)] == [(7, 1)]
    # The same through the stage itself: how much goes to whoever follows.
    left_out = SimpleNamespace(value=np.empty(0, dtype=np.int64))
    folders = {table.name: str(folder.table(table)) for table in (STREAMS, MESSAGES, EXCHANGES)}
    moved = list(WireStage(folders, left_out, 1)(0, [0]))
    sightings = [pa.ipc.open_stream(value).read_all() for _, value in moved if isinstance(value, bytes)]
    assert sum(table.num_rows for table in sightings) <= 1 + 2 * len(connections) + 2


def test_captures_alone_have_services_and_journeys(spark: SparkSession, tmp_path: Path) -> None:
    goes_on, stays = wrapped(7, 1), wrapped(7, 2)
    connections = (
        posts(OUTSIDE, GATEWAY, [goes_on, stays]),
        posts(("10.0.0.2", 50_000), STORE, [goes_on], at_ns=NOW_NS + 500 * US),
    )
    alone = decoded(spark, tmp_path / "alone", *connections)
    journeys = {row["seq"]: row for row in rows(alone, ALONE[FOLLOWED.name])}
    assert {
        seq: (row["device"], row["legs"], row["first_seen"], row["last_seen"], row["arrived"], row["confidence"])
        for seq, row in journeys.items()
    } == {1: (7, 2, "outside", "store", True, 1.0), 2: (7, 1, "outside", "gateway", False, 1.0)}
    legs = [row for row in rows(alone, HOPS) if row["seq"] == 1]
    assert journeys[1]["first_ns"] == min(row["sent_ns"] for row in legs)
    assert journeys[1]["last_ns"] == max(row["received_ns"] for row in legs)
    services = {(row["service"], row["peer"]): row for row in rows(alone, ALONE[SERVICE_PEERS.name])}
    assert set(services) == {("gateway", "outside"), ("gateway", "store"), ("store", "gateway")}
    asked = services["gateway", "outside"]
    assert (asked["requests"], asked["answered"], asked["failed"], asked["unanswered"]) == (2, 2, 0, 0)
    assert asked["response_p50_ns"] == asked["response_max_ns"] == asked["response_mean_ns"] == 10 * US
    assert (asked["received_messages"], asked["sent_messages"]) == (2, 2)
    assert asked["received_bytes"] == asked["request_bytes"] > len(goes_on) + len(stays)
    assert asked["sent_bytes"] == asked["response_bytes"] > 0
    assert asked["cpu_mean_percent"] is asked["rss_max_bytes"] is None
    calls = services["gateway", "store"]
    assert (calls["requests"], calls["response_p50_ns"], calls["sent_messages"]) == (0, None, 1)
    assert Traces(alone).lost().seen == 1
    written = {path.name for path in write_wire_csv(alone, tmp_path / "csv")}
    assert {"journeys.csv", "services.csv", "hops.csv"} <= written

    used = {"gateway": (12.5, 4096)}
    beside = decoded(spark, tmp_path / "beside", *connections, beside_run=True, used=used)
    assert rows(beside, FOLLOWED) == list(rows(alone, ALONE[FOLLOWED.name]))
    told = {(row["cpu_mean_percent"], row["rss_max_bytes"]) for row in rows(beside, SERVICE_PEERS)}
    assert told == {(12.5, 4096), (None, None)}
    assert not beside.table(JOURNEYS).exists()


def test_captures_decoded_into_a_run_leave_its_journeys_alone(spark: SparkSession, tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.manifest_path.write_text("{}")
    run.table(JOURNEYS).mkdir(parents=True)
    (run.table(JOURNEYS) / "mine.parquet").write_bytes(b"")
    decoded(spark, tmp_path, posts(OUTSIDE, GATEWAY, [wrapped(7, 1)]))
    assert [path.name for path in run.table(JOURNEYS).iterdir()] == ["mine.parquet"]
    assert len(rows(run, FOLLOWED)) == 1
