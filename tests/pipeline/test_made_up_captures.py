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
from battlebrokers.tables import EXCHANGES, HOPS, JOURNEYS, MESSAGES, STREAMS, Table
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


def decoded(spark: SparkSession, folder: Path, *connections: list[Frame]) -> RunFolder:
    folder.mkdir(exist_ok=True)
    frames = sorted((frame for one in connections for frame in one), key=lambda frame: frame.time_ns)
    (folder / "made-up.pcap").write_bytes(write.pcap(frames, nano=True))
    decode(spark, Captures([str(folder / "made-up.pcap")], names=NAMES), LocalStore(folder))
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
