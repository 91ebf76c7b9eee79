"""Packets of whole conversations in, streams, messages and exchanges out; no Spark needed for that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from battlebrokers.dissect import registry
from battlebrokers.dissect.segments import ACK, FIN, PSH, RST, SYN
from battlebrokers.dissect.talk import CLIENT, Talk
from battlebrokers.pipeline import conversations
from battlebrokers.pipeline.captures import calls_of
from battlebrokers.pipeline.conversations import WANTED, Columns, Surroundings, Words, converse_columns
from battlebrokers.tables import EXCHANGES, MESSAGES, STREAMS, Table

PORT = 7007
WORDS = ("source", "destination")
NARROW = {"flags": "u1", "window": "u2", "seq": "u4", "ack": "u4", "source_port": "u2", "destination_port": "u2"}
Told = dict[str, list[dict[str, Any]]]


class Lines:
    """`Q n` is answered by `A n`, a line each."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk

    def feed(self, sender: int, data: bytes, at: int) -> int:
        used = 0
        while (end := data.find(b"\n", used)) >= 0:
            kind, _, name = data[used:end].decode("latin-1").partition(" ")
            number = self._talk.add(sender, at + used, at + end + 1, kind, name, payload=name.encode())
            if sender == CLIENT:
                self._talk.ask(name, number)
            else:
                self._talk.answer(name, number)
            used = end + 1
        return used

    def gap(self, sender: int, missing_bytes: int) -> None:
        pass

    def resync(self, sender: int, data: bytes) -> int:
        return 0 if data[:2] in (b"Q ", b"A ") else -1


@pytest.fixture(autouse=True)
def lines() -> Iterator[None]:
    registry.dissectors()
    registry.dissector("lines", ports=[PORT], recognise=lambda client, _: float(client.startswith(b"Q ")))(Lines)
    registry.known_ports.cache_clear()
    yield
    registry._KNOWN.pop("lines")
    registry.known_ports.cache_clear()


class Capture:
    """Packets between a client (10.0.0.9) and a server (10.0.0.1), and the file their payloads lie in."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._content = bytearray(b"front matter")
        self._rows: list[dict[str, Any]] = []
        self._next = {True: 1000, False: 9000}
        self.now_ns = 1_000_000

    def packet(
        self, by_client: bool, payload: bytes = b"", flags: int = ACK, *, port: int = 50000, missing: int = 0
    ) -> None:
        client, server = ("10.0.0.9", port), ("10.0.0.1", PORT)
        source, destination = (client, server) if by_client else (server, client)
        self.now_ns += 1000
        self._rows.append(
            {
                "stream": port, "captured_ns": self.now_ns, "file": 0, "protocol": 6,
                "low": source < destination, "source": source[0], "destination": destination[0],
                "source_port": source[1], "destination_port": destination[1], "seq": self._next[by_client],
                "ack": self._next[not by_client], "flags": flags, "window": 65535, "window_shift": -1, "mss": 0,
                "payload_at": len(self._content), "payload_bytes": len(payload), "missing_bytes": missing,
            }
        )  # fmt: skip
        self._content += payload[: len(payload) - missing]
        self._next[by_client] += len(payload) + bool(flags & (SYN | FIN))

    def connect(self, port: int = 50000, isn: int = 1000) -> None:
        self._next = {True: isn, False: isn + 8000}
        self.packet(True, flags=SYN, port=port)
        self.packet(False, flags=SYN | ACK, port=port)
        self.packet(True, port=port)

    def talk(self, count: int, port: int = 50000) -> None:
        for n in range(count):
            self.packet(True, b"Q %d\n" % n, ACK | PSH, port=port)
            self.packet(False, b"A %d\n" % n, ACK | PSH, port=port)

    def told(self, batch_rows: int = 1000, names: dict[str, str] | None = None) -> Told:
        return listed(converse_columns(self.parts(batch_rows), self.around(names)))

    def parts(self, rows: int = 1000, *, packed: bool = False, as_matrix: bool = False) -> list[tuple[Columns, Words]]:
        """Columns of so many packets at a time; `packed` ones are views of a narrow structured array."""
        whole = self.table()
        columns = {name: whole[name].to_numpy() for name in WANTED}
        if packed:
            record = np.zeros(len(whole), dtype=[(name, NARROW.get(name, "i8")) for name in WANTED])
            for name in WANTED:
                record[name] = columns[name]
            columns = {name: record[name] for name in WANTED}
        words = [np.array([octets(address) for address in whole[name].to_pylist()], dtype="V16") for name in WORDS]
        if as_matrix:
            words = [column.view(np.uint8).reshape(-1, 16) for column in words]
        return [
            ({name: column[at : at + rows] for name, column in columns.items()},
             (words[0][at : at + rows], words[1][at : at + rows]))
            for at in range(0, len(whole), rows)
        ]  # fmt: skip

    def table(self) -> pa.Table:
        return pa.Table.from_pylist(sorted(self._rows, key=lambda row: (row["stream"], row["captured_ns"])))

    def around(self, names: dict[str, str] | None = None) -> Surroundings:
        place = self._path / "capture"
        place.write_bytes(self._content)
        return Surroundings([str(place)], {0: "wire"}, names or {})


def octets(address: str) -> bytes:
    plain = ip_address(address)
    return plain.packed if isinstance(plain, IPv6Address) else bytes(10) + b"\xff\xff" + plain.packed


def listed(told: Iterable[tuple[Table, pa.RecordBatch]]) -> Told:
    """The rows of each table."""
    found: Told = {table.name: [] for table in (STREAMS, MESSAGES, EXCHANGES)}
    for table, batch in told:
        assert batch.schema == table.arrow_schema()
        found[table.name] += batch.to_pylist()
    return found


@pytest.fixture
def capture(tmp_path: Path) -> Capture:
    return Capture(tmp_path)


def test_a_conversation_becomes_a_stream_with_messages_and_exchanges(capture: Capture) -> None:
    capture.connect()
    capture.talk(3)
    capture.packet(True, flags=FIN | ACK)
    told = capture.told(names={"10.0.0.1:7007": "oracle"})
    (stream,) = told["streams"]
    assert (stream["client"], stream["client_port"], stream["server"], stream["server_port"]) == (
        "10.0.0.9", 50000, "10.0.0.1", PORT,
    )  # fmt: skip
    assert (stream["service"], stream["client_service"], stream["server_service"]) == ("wire", None, "oracle")
    assert (stream["protocol"], stream["recognised_by"], stream["messages"]) == ("lines", "content", 6)
    assert (stream["packets"], stream["client_packets"], stream["completeness"]) == (10, 6, 31)
    assert (stream["client_bytes"], stream["server_bytes"], stream["undecoded_bytes"]) == (12, 12, 0)
    assert [(row["kind"], row["name"], row["sender"]) for row in told["messages"]][:2] == [
        ("Q", "0", "client"), ("A", "0", "server"),
    ]  # fmt: skip
    assert [(row["name"], row["outcome"], row["answered_ns"] - row["asked_ns"]) for row in told["exchanges"]] == [
        (str(n), "answered", 1000) for n in range(3)
    ]


@pytest.mark.parametrize("batch_rows", [1, 2, 7])
def test_batches_may_cut_conversations_anywhere(capture: Capture, batch_rows: int) -> None:
    for port in (50000, 50001, 50002):
        capture.connect(port)
        capture.talk(5, port)
    assert capture.told(batch_rows) == capture.told()


@pytest.mark.parametrize("as_matrix", [True, False])
def test_integers_may_be_of_any_width(capture: Capture, as_matrix: bool) -> None:
    for port in (50000, 50001):
        capture.connect(port)
        capture.talk(5, port)
    parts = capture.parts(7, packed=True, as_matrix=as_matrix)
    assert listed(converse_columns(parts, capture.around())) == capture.told()


@pytest.mark.parametrize("address", ["10.0.0.0", "fe80::1", "2001:db8::"])
def test_addresses_are_told_as_text(capture: Capture, address: str) -> None:
    capture.connect()
    whole = capture.table()
    columns = {name: whole[name].to_numpy() for name in WANTED}
    words = tuple(np.array([octets(address)] * len(whole), dtype=kind) for kind in ("S16", "V16"))
    (stream,) = listed(converse_columns([(columns, words)], capture.around()))["streams"]
    assert (stream["client"], stream["server"]) == (address, address)


def test_a_service_is_known_by_an_ipv6_address_with_and_without_its_port() -> None:
    names = {"[2001:db8::5]:6379": "redis", "2001:db8::6": "gateway", "*:1883": "broker"}
    around = Surroundings([], {}, names)
    assert around.service("2001:db8::5", 6379) == "redis"
    assert around.service("2001:db8::5", 6380) is None
    assert around.service("2001:db8::6", 50_000) == "gateway"
    assert around.service("::1", 1883) == "broker"


def test_windows_may_cut_conversations_anywhere(capture: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    capture.connect()
    capture.talk(20)
    whole = capture.told()
    monkeypatch.setattr(conversations, "_WINDOW_PACKETS", 3)
    cut = capture.told()
    assert sorted(row["name"] for row in cut["exchanges"]) == sorted(row["name"] for row in whole["exchanges"])
    times = {(row["kind"], row["name"]): (row["first_ns"], row["last_ns"]) for row in whole["messages"]}
    assert {(row["kind"], row["name"]): (row["first_ns"], row["last_ns"]) for row in cut["messages"]} == times
    assert cut["streams"] == whole["streams"]


def test_a_reused_port_is_another_connection(capture: Capture) -> None:
    capture.connect(isn=1000)
    capture.talk(1)
    capture.packet(True, flags=RST)
    capture.connect(isn=70000)
    capture.talk(2)
    told = capture.told()
    assert [(row["epoch"], row["messages"]) for row in told["streams"]] == [(0, 2), (1, 4)]
    assert {row["epoch"] for row in told["exchanges"]} == {0, 1}


@pytest.mark.parametrize("window", [1, 3, 1000])
@pytest.mark.parametrize("ending", [FIN | ACK, RST])
def test_a_reused_port_is_another_connection_even_with_the_same_number(
    capture: Capture, monkeypatch: pytest.MonkeyPatch, ending: int, window: int
) -> None:
    monkeypatch.setattr(conversations, "_WINDOW_PACKETS", window)
    for count in (1, 2, 3):
        capture.connect(isn=1000)
        capture.packet(True, b"Q 9\n", ACK | PSH)
        capture.talk(count)
        capture.packet(count == 2, flags=ending)
    told = capture.told()
    assert [(row["epoch"], row["messages"]) for row in told["streams"]] == [(0, 3), (1, 5), (2, 7)]


def test_a_repeated_syn_is_the_same_connection(capture: Capture) -> None:
    capture.packet(True, flags=SYN)
    capture.connect()
    capture.talk(1)
    (stream,) = capture.told()["streams"]
    assert (stream["epoch"], stream["messages"]) == (0, 2)


def test_without_a_handshake_the_known_port_is_the_server(capture: Capture) -> None:
    capture.packet(False, b"A 7\n")
    capture.talk(1)
    (stream,) = capture.told()["streams"]
    assert (stream["server_port"], stream["messages"]) == (PORT, 3)


def test_unanswered_requests_are_rows_too(capture: Capture) -> None:
    capture.connect()
    capture.packet(True, b"Q 1\n")
    (exchange,) = capture.told()["exchanges"]
    assert (exchange["outcome"], exchange["response"], exchange["answered_ns"]) == ("unanswered", None, None)


def test_what_the_snap_length_cut_off_is_a_gap(capture: Capture) -> None:
    capture.connect()
    capture.talk(1)
    capture.packet(True, b"Q 1234567890\n", missing=8)
    capture.packet(False)
    capture.talk(1)
    told = capture.told()
    assert told["streams"][0]["gap_bytes"] == 8
    assert len(told["messages"]) == 4


def test_bytes_of_no_known_protocol_are_counted(capture: Capture) -> None:
    registry._KNOWN["lines"] = registry.Dissector("lines", Lines, lambda *_: 0.0, frozenset(), "tcp")
    capture.connect()
    capture.packet(True, b"\x00\x01 unheard of \xff" * 4)
    (stream,) = capture.told()["streams"]
    assert (stream["protocol"], stream["undecoded_bytes"]) == (None, 60)


HOME = "127.0.0.1"
SECOND = 1_000_000_000


def held(service: str, port: int, peer_port: int, first_s: float, last_s: float) -> dict[str, Any]:
    """A row of `sockets`."""
    ends = {"address": HOME, "port": port, "peer_address": HOME, "peer_port": peer_port}
    return {"service": service, **ends, "first_ns": int(first_s * SECOND), "last_ns": int(last_s * SECOND)}


@pytest.mark.parametrize(
    ("seen_s", "ended", "caller"),
    [
        ((1, 9), False, "web"),
        ((1, 9), True, "web"),
        ((0.2, 0.3), False, "web"),  # silent ever since, and still there
        ((0.2, 0.3), True, None),  # gone before anybody was seen to hold it: that was somebody else
        ((13, 20), True, "mail"),  # the port's next owner
        ((30, 31), False, None),
    ],
)
def test_who_holds_a_connection_names_its_end(seen_s: tuple[float, float], ended: bool, caller: str | None) -> None:
    rows = [held("mail", 40_000, 6379, 14, 18), held("web", 40_000, 6379, 2, 2), held("web", 40_000, 6379, 2, 8)]
    around = Surroundings([], {}, {f"{HOME}:6379": "redis"}, calls=calls_of(rows))
    seen_ns = (int(seen_s[0] * SECOND), int(seen_s[1] * SECOND))
    client, server = (HOME, 40_000), (HOME, 6379)
    assert around.speaker(client, server, seen_ns, ended=ended) == caller
    assert around.speaker(server, client, seen_ns, ended=ended) == "redis"
    assert around.speaker(client, (HOME, 1883), seen_ns, ended=ended) is None


def test_streams_say_who_called(capture: Capture) -> None:
    capture.connect()
    capture.talk(1)
    row = held("web", 50_000, PORT, 0, 1) | {"address": "10.0.0.9", "peer_address": "10.0.0.1"}
    around = replace(capture.around({"10.0.0.1:7007": "oracle"}), calls=calls_of([row]))
    (stream,) = listed(converse_columns(capture.parts(), around))["streams"]
    assert (stream["client_service"], stream["server_service"]) == ("web", "oracle")
