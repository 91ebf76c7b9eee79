"""A small system seen on its wires, made up: outside → gateway → redis → dispatcher → outside, and a web page beside.

Devices publish over MQTT to `gateway`, which publishes to `redis`, which pushes to `dispatcher`, which sends over a
WebSocket to clients outside; `web` asks `gateway` over HTTP. All figures follow from the constants here.
"""

from __future__ import annotations

import pickle
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from battlebrokers import tables
from battlebrokers.pipeline.stages.examples import ExampleSum
from battlebrokers.pipeline.stages.kinds import KindSum
from battlebrokers.pipeline.stages.passages import PassageSum
from battlebrokers.pipeline.stages.peers import numbers, peers_of
from battlebrokers.tables.base import Table
from battlebrokers.tables.run_folder import RunFolder
from support.parquet_files import parquet_of

START_S = 1_790_000_006
START_NS = START_S * 1_000_000_000
US, MS = 1_000, 1_000_000

_ZERO: dict[str, dict[str, Any]] = {
    table.name: {c.name: None if c.nullable else {"string": "", "bool": True}.get(c.kind, 0) for c in table.columns}
    for table in tables.ALL_TABLES
}
_ADDRESS = {"gateway": "10.0.0.2", "redis": "10.0.0.3", "dispatcher": "10.0.0.4", "web": "10.0.0.5"}
_PORT = {"gateway": 1883, "redis": 6379, "dispatcher": 8080}


class Wires:
    """Rows in the making; `write` puts them on disk as the pipeline would."""

    def __init__(self, rows: dict[str, list[dict[str, Any]]] | None = None) -> None:
        self.rows = rows or {}

    def add(self, table: Table, **values: Any) -> None:
        self.rows.setdefault(table.name, []).append(_ZERO[table.name] | values)

    def stream(self, number: int, client: str | None, server: str | None, protocol: str | None, **values: Any) -> None:
        base = {
            "stream": number, "transport": "tcp", "protocol": protocol, "recognised_by": "content",
            "client": _ADDRESS.get(client or "", f"192.0.2.{number % 250}"), "client_port": 40_000 + number,
            "client_service": client, "server": _ADDRESS.get(server or "", "198.51.100.7"),
            "server_port": _PORT.get(server or "", 9), "server_service": server,
            "first_ns": START_NS, "last_ns": START_NS + 10_000 * MS, "packets": 10, "completeness": 31,
        }  # fmt: skip
        self.add(tables.STREAMS, **(base | values))

    def said(self, stream: int, protocol: str, count: int, epoch: int = 0, from_ms: int = 0, **values: Any) -> None:
        """One message every millisecond, each in a packet of its own."""
        for number in range(count):
            at_ns = START_NS + (from_ms + number) * MS
            base = {"number": number, "protocol": protocol, "sender": "client", "first_ns": at_ns, "last_ns": at_ns}
            self.add(tables.MESSAGES, stream=stream, epoch=epoch, **(base | values))
            self.add(tables.PACKETS, stream=stream, captured_ns=at_ns, payload_bytes=50, original_bytes=116)

    def asked(self, stream: int, protocol: str, outcome: str, count: int, asker: str = "client", **values: Any) -> None:
        for number in range(count):
            self.add(
                tables.EXCHANGES, stream=stream, protocol=protocol, request=number, asker=asker, outcome=outcome,
                **({"kind": "X", "rule": "id"} | values),
            )  # fmt: skip

    def response(
        self, asker: str, answerer: str, protocol: str, kind: str, n: int, points_us: list[float], **values: Any
    ) -> None:
        names = ("min_ns", "p25_ns", "p50_ns", "p75_ns", "p95_ns", "p99_ns", "max_ns")
        points = {name: round(point * US) for name, point in zip(names, points_us, strict=False)}
        base = {
            "asker": asker, "answerer": answerer, "protocol": protocol, "kind": kind, "n": n, "answered": n,
            "mean_ns": float(points.get("p50_ns", 0)) if points else None, "request_bytes": 100 * n,
            "response_bytes": 40 * n, **points,
        }  # fmt: skip
        self.add(tables.RESPONSES, **(base | values))

    def talk(self, second: int, sender: str, receiver: str, protocol: str, part: str, messages: int, size: int) -> None:
        self.add(
            tables.TRAFFIC, second=START_S + second, sender=sender, receiver=receiver, protocol=protocol, part=part,
            messages=messages, bytes=size,
        )  # fmt: skip

    def leg(
        self, trace: int, leg: int, sender: str, receiver: str, sent_us: float, received_us: float, **values: Any
    ) -> None:
        base = {
            "trace": trace, "device": trace % 7, "seq": trace, "leg": leg, "parent": leg - 1 if leg > 1 else None,
            "sender": sender, "receiver": receiver, "protocol": "mqtt", "kind": "PUBLISH", "name": "city/air",
            "sent_ns": START_NS + round(sent_us * US), "received_ns": START_NS + round(received_us * US),
            "matched_by": "header", "confidence": 1.0,
        }  # fmt: skip
        self.add(tables.HOPS, **(base | values))

    def write(self, path: Path) -> RunFolder:
        folder = RunFolder(path)
        for table, files in _files_of(pickle.dumps(self.rows)).items():
            target = folder.table(table)
            target.mkdir(parents=True, exist_ok=True)
            for number, content in enumerate(files):
                (target / f"part-{number:05}.parquet").write_bytes(content)
        folder.decoded_summary_path.write_text("{}")
        return folder

    def files(self) -> dict[Table, tuple[bytes, bytes]]:
        """Two files for each table, as several Spark tasks would write."""
        sums = self._sums()
        made: dict[Table, tuple[bytes, bytes]] = {}
        for table in (*tables.DECODED, *tables.WIRE):
            rows = sums.get(table.name) or self._rows(table)
            half = rows.num_rows // 2
            made[table] = parquet_of(rows.slice(0, half)), parquet_of(rows.slice(half))
        return made

    def _rows(self, table: Table) -> pa.Table:
        return pa.Table.from_pylist(self.rows.get(table.name, []), schema=table.arrow_schema())

    def _sums(self) -> dict[str, pa.Table]:
        """What follows from the messages, exchanges and legs, as the pipeline adds it up."""
        messages, exchanges = (
            self._rows(table).combine_chunks().to_batches() for table in (tables.MESSAGES, tables.EXCHANGES)
        )
        peers = peers_of(self._rows(tables.STREAMS).to_batches(), np.empty(0, dtype=np.int64))
        other = {"client": "server", "server": "client"}
        asked = {(row["stream"], row["asker"], row["kind"]) for row in self.rows.get("exchanges", [])}
        answers = {(row["stream"], other[row["asker"]], row["answer"]) for row in self.rows.get("exchanges", [])}
        kinds, passages, examples = KindSum(), PassageSum(), ExampleSum()
        for batch in exchanges:
            rows = peers.rows(numbers(batch["stream"]), numbers(batch["epoch"]))
            kinds.add_exchanges(batch, rows, np.array([who == "client" for who in batch["asker"].to_pylist()]), peers)
        for batch in messages:
            said = [(row["stream"], row["sender"], row["kind"]) for row in batch.to_pylist()]
            part = np.array([1 if key in asked else 2 if key in answers else 0 for key in said], dtype=np.int64)
            rows = peers.rows(numbers(batch["stream"]), numbers(batch["epoch"]))
            kinds.add_messages(batch, rows, np.array([key[1] == "client" for key in said]), part, peers)
        legs = self._rows(tables.HOPS)
        if legs.num_rows:
            kinds.add_followed(legs)
            legs = legs.sort_by([("trace", "ascending"), ("leg", "ascending")])
            passages.add(legs)
            examples.add(legs)
        senders = passages.senders()
        found = {"kinds": kinds.table(), "passages": passages.table()}
        return found | {"examples": examples.table(senders), "endings": examples.endings(senders)}


@lru_cache(4)
def _files_of(pickled_rows: bytes) -> dict[Table, tuple[bytes, bytes]]:
    """Most tests look at the very same system: adding it up and writing it once is enough."""
    return Wires(rows=pickle.loads(pickled_rows)).files()


def small_system(messages: int = 100, seconds: int = 10) -> Wires:
    """The system of this module's docstring; `redis` keeps every 20th message 30 ms longer."""
    w = Wires()
    each = messages // seconds
    w.stream(1, None, "gateway", "mqtt", packets=420, client_packets=210, client_bytes=9_000, server_bytes=900,
             messages=2 * messages + 2, initial_rtt_ns=80 * US, client_rtt_ns=41 * US, server_rtt_ns=39 * US,
             retransmissions=3, fast_retransmissions=1, service="gateway")  # fmt: skip
    w.said(1, "mqtt", 2 * messages + 2)
    w.asked(1, "mqtt", "answered", messages, kind="PUBLISH")
    w.asked(1, "mqtt", "answered", 1, kind="CONNECT")
    w.stream(2, "gateway", "redis", "redis", packets=400, client_packets=200, client_bytes=12_000, server_bytes=400,
             messages=2 * messages, initial_rtt_ns=50 * US, client_rtt_ns=20 * US, service="redis")  # fmt: skip
    w.said(2, "redis", 2 * messages)
    w.asked(2, "redis", "answered", messages - 2, rule="order")
    w.asked(2, "redis", "answered", 1, rule="order", certain=False)
    w.asked(2, "redis", "unanswered", 1, rule="order")
    w.stream(3, "dispatcher", "redis", "redis", packets=250, client_packets=90, client_bytes=60, server_bytes=11_000,
             messages=messages + 2, zero_windows=2, service="redis")  # fmt: skip
    w.said(3, "redis", messages + 2)
    w.asked(3, "redis", "answered", 1)
    w.stream(4, None, "dispatcher", "websocket", packets=260, client_packets=120, client_bytes=700, server_bytes=10_500,
             messages=messages + 4, malformed=1, undecoded_bytes=77, service="dispatcher")  # fmt: skip
    w.said(4, "http", 2)
    w.said(4, "websocket", messages + 2, from_ms=2)
    w.asked(4, "http", "answered", 1)
    w.asked(4, "websocket", "unanswered", 1, asker="server")
    w.stream(5, "web", "gateway", "http", packets=40, client_packets=20, client_bytes=2_000, server_bytes=7_000,
             messages=20, server_port=80, service="gateway")  # fmt: skip
    w.said(5, "http", 20)
    w.asked(5, "http", "answered", 8)
    w.asked(5, "http", "failed", 2)
    w.stream(6, None, None, None, packets=2, client_packets=1, client_bytes=12, server_bytes=0, transport="udp")
    w.response("outside", "gateway", "mqtt", "PUBLISH", messages, [120, 180, 240, 330, 800, 2_000, 31_000])
    w.response("outside", "gateway", "mqtt", "CONNECT", 1, [500, 500, 500, 500, 500, 500, 500])
    w.response("gateway", "redis", "redis", "PUBLISH", messages, [40, 60, 80, 110, 300, 900, 4_000],
               answered=messages - 1, unanswered=1, uncertain=1)  # fmt: skip
    w.response("dispatcher", "redis", "redis", "SUBSCRIBE", 1, [90] * 7)
    w.response("outside", "dispatcher", "http", "GET", 1, [700] * 7)
    w.response("dispatcher", "outside", "websocket", "ping", 1, [], answered=0, unanswered=1)
    w.response("web", "gateway", "http", "GET", 10, [900, 1_200, 1_500, 2_500, 8_000, 12_000, 12_000], failed=2)
    for second in range(seconds):
        w.talk(second, "outside", "gateway", "mqtt", "request", each, 90 * each)
        w.talk(second, "gateway", "outside", "mqtt", "response", each, 9 * each)
        w.talk(second, "gateway", "redis", "redis", "request", each, 120 * each)
        w.talk(second, "redis", "gateway", "redis", "response", each, 4 * each)
        w.talk(second, "redis", "dispatcher", "redis", "other", each, 110 * each)
        w.talk(second, "dispatcher", "outside", "websocket", "other", each, 105 * each)
        w.talk(second, "web", "gateway", "http", "request", 1, 200)
        w.talk(second, "gateway", "web", "http", "response", 1, 700)
    w.talk(0, "dispatcher", "redis", "redis", "request", 1, 60)
    w.talk(0, "outside", "dispatcher", "http", "request", 1, 300)
    w.talk(0, "dispatcher", "outside", "http", "response", 1, 129)
    w.talk(5, "dispatcher", "outside", "websocket", "request", 1, 2)
    for number in range(messages):
        _journey(w, number, number * seconds * 1e6 / messages, 30_000 if number % 20 == 19 else 0)
    return w


def _journey(w: Wires, number: int, at_us: float, stuck_us: float) -> None:
    """100 µs on each wire; 400 µs in the gateway, 200 µs in redis (plus what it is stuck), 300 µs in the dispatcher."""
    at = at_us
    w.leg(number, 1, "outside", "gateway", at, at + 100)
    at += 500
    w.leg(number, 2, "gateway", "redis", at, at + 100, protocol="redis", kind="PUBLISH", name="air", inside_ns=400 * US)
    if number == 0:
        return  # lost in redis
    at += 300 + stuck_us
    w.leg(number, 3, "redis", "dispatcher", at, at + 100, protocol="redis", kind="message", name="air",
          inside_ns=round(200 + stuck_us) * US)  # fmt: skip
    at += 400
    w.leg(number, 4, "dispatcher", "outside", at, at + 100, protocol="websocket", kind="text", name="",
          inside_ns=300 * US, matched_by="fingerprint", confidence=0.95)  # fmt: skip
