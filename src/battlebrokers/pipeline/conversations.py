"""Sorted packets in, streams, messages and exchanges out: the body of the one Spark stage that runs Python on captures.

Runs in Spark's Python workers, on packets of whole conversations in capture order; holds one window of one of them.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from socket import AF_INET, AF_INET6, inet_ntop
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from battlebrokers.dissect.registry import Transport, known_ports
from battlebrokers.dissect.segments import ACK, SYN, Numbers, Segments
from battlebrokers.dissect.stream import Reader, Stream
from battlebrokers.dissect.talk import (
    CORRELATION,
    DEVICE,
    FAILED,
    FINGERPRINT,
    KIND,
    NAME,
    PAYLOAD_BYTES,
    PROTOCOL,
    SEQ,
    WIDTH,
)
from battlebrokers.dissect.tcp_analysis import TcpAnalysis
from battlebrokers.dissect.transcript import EXCHANGE_FIELDS, Messages
from battlebrokers.pipeline.sources.files import RandomFile, local_path
from battlebrokers.tables import EXCHANGES, MESSAGES, STREAMS, Table

WANTED = (
    "stream", "captured_ns", "at", "file", "protocol", "low", "source", "destination", "source_port",
    "destination_port", "seq", "ack", "flags", "window", "window_shift", "mss", "payload_at", "payload_bytes",
    "missing_bytes",
)  # fmt: skip
"""The columns of a packet this stage reads.

`low` says that its source is the smaller of the two endpoints, `payload_at` is a place (see FILE_SHIFT).
"""

_TABLES = (STREAMS, MESSAGES, EXCHANGES)
_WINDOW_PACKETS = 32_768
_WINDOW_BYTES = 8 << 20
_BATCH_ROWS = 50_000
_SENDER = pa.array(["client", "server"])
_WORDS = ("source", "destination")
_MAPPED = bytes(10) + b"\xff\xff"
FILE_SHIFT = 48
"""A place is a file's number and, in so many bits below it, an offset in the file."""
_IN_FILE = (1 << FILE_SHIFT) - 1

Row = tuple[Any, ...]
Columns = dict[str, npt.NDArray[Any]]
Words = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""Source and destination of each packet: 16 bytes each, IPv4 as `::ffff:a.b.c.d`."""
Endpoint = tuple[str, int]
"""Address and port."""
_Endpoints = Callable[[int], tuple[Endpoint, Endpoint]]
"""Source and destination of the packet in that row."""


def result_ddl() -> str:
    """One struct column per table for Spark; in each row exactly one of them is not null."""
    columns = [f"{table.name} STRUCT<{table.spark_ddl().replace('` ', '`: ')}>" for table in _TABLES]
    return ", ".join(columns)


def as_structs(told: Iterable[tuple[Table, pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Batches of several tables as batches of the one schema that `result_ddl` tells."""
    schema = pa.schema([pa.field(table.name, pa.struct(list(table.arrow_schema()))) for table in _TABLES])
    for table, batch in told:
        arrays = [pa.nulls(batch.num_rows, field.type) for field in schema]
        arrays[_TABLES.index(table)] = pa.StructArray.from_arrays(batch.columns, fields=list(table.arrow_schema()))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known beside the packets."""

    files: Sequence[str]
    """Where each capture file lies, unpacked."""
    captured_at: Mapping[int, str]
    """File number → the service at whose wire it was captured."""
    names: Mapping[str, str]
    """Address, address:port or *:port → service."""
    hints: object = None

    def service(self, address: str, port: int) -> str | None:
        """Who lives there."""
        names = self.names
        return names.get(f"{address}:{port}") or names.get(address) or names.get(f"*:{port}")


def converse(batches: Iterable[pa.RecordBatch], around: Surroundings) -> Iterator[tuple[Table, pa.RecordBatch]]:
    """All conversations of a partition, from batches with the columns of WANTED; see `converse_columns`."""
    return _converse(map(_of_batch, batches), around)


def converse_columns(
    columns: Iterable[tuple[Columns, Words]], around: Surroundings
) -> Iterator[tuple[Table, pa.RecordBatch]]:
    """All conversations of a partition; rows of one conversation come together and in order.

    It may go on in the next item. Columns are those of WANTED, the addresses as bytes beside them; `at` is not needed.
    """
    return _converse(((rows, partial(_endpoints, rows, words)) for rows, words in columns), around)


def _of_batch(batch: pa.RecordBatch) -> tuple[Columns, _Endpoints]:
    columns = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in WANTED if name not in _WORDS}

    def endpoints(row: int) -> tuple[Endpoint, Endpoint]:
        source, destination = (str(batch.column(name)[row]) for name in _WORDS)
        return (source, int(columns["source_port"][row])), (destination, int(columns["destination_port"][row]))

    return columns, endpoints


def _endpoints(columns: Columns, words: Words, row: int) -> tuple[Endpoint, Endpoint]:
    source, destination = (_text(address[row].tobytes()) for address in words)
    return (source, int(columns["source_port"][row])), (destination, int(columns["destination_port"][row]))


def _text(address: bytes) -> str:
    address = address.ljust(16, b"\x00")  # numpy drops zeros at the end of `S16`
    if address.startswith(_MAPPED):
        return inet_ntop(AF_INET, address[len(_MAPPED) :])
    return inet_ntop(AF_INET6, address)


def _converse(
    items: Iterable[tuple[Columns, _Endpoints]], around: Surroundings
) -> Iterator[tuple[Table, pa.RecordBatch]]:
    sink = _Sink()
    files = _Files(around.files)
    current: _Conversation | None = None
    for columns, endpoints in items:
        stream = columns["stream"]
        starts = [0, *(np.flatnonzero(stream[1:] != stream[:-1]) + 1).tolist()] if len(stream) else []
        for start, end in pairwise([*starts, len(stream)]):
            if current is None or current.stream != stream[start]:
                if current is not None:
                    current.end()
                current = _begin(columns, *endpoints(start), start, around, files.read, sink)
            current.take(_part(columns, start, end))
            yield from sink.full()
    if current is not None:
        current.end()
    yield from sink.rest()


def _begin(
    columns: Columns, source: Endpoint, destination: Endpoint, first: int, around: Surroundings, read: Reader,
    sink: _Sink,
) -> _Conversation:  # fmt: skip
    file = int(columns["file"][first])
    transport: Transport = "tcp" if int(columns["protocol"][first]) == 6 else "udp"
    wire = _Wire(int(columns["stream"][first]), file, transport, around, read, sink)
    low, high = (source, destination) if bool(columns["low"][first]) else (destination, source)
    return _Conversation(wire, low, high)


class _Files:
    """Capture files by number, opened when first needed; a place says which file and where in it."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = files
        self._open: dict[int, Reader] = {}

    def read(self, places: Numbers, sizes: Numbers) -> list[bytes]:
        """The bytes at these places."""
        if not len(places):
            return []
        number, starts = places >> FILE_SHIFT, places & _IN_FILE
        first = int(number[0])
        if np.all(number == first):
            return self._reader(first)(starts, sizes)
        found: list[bytes] = []
        bounds = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(number)]
        for start, end in pairwise(bounds):
            found += self._reader(int(number[start]))(starts[start:end], sizes[start:end])
        return found

    def _reader(self, number: int) -> Reader:
        reader = self._open.get(number)
        if reader is None:
            reader = self._open[number] = _opened(self._files[number])
        return reader


def _opened(address: str) -> Reader:
    path = local_path(address)
    if path is None:
        read = RandomFile(address).read
        return lambda starts, sizes: [
            read(start, size) if size else b"" for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
        ]
    with Path(path).open("rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return lambda starts, sizes: [
        content[start:end] for start, end in zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Wire:
    """What all connections of one pair of endpoints share."""

    stream: int
    file: int
    transport: Transport
    around: Surroundings
    read: Reader
    sink: _Sink


class _Conversation:
    """One pair of endpoints; several connections one after the other if ports were reused."""

    def __init__(self, wire: _Wire, low: Endpoint, high: Endpoint) -> None:
        self.stream = wire.stream
        self._wire = wire
        self._low, self._high = low, high
        self._epoch = 0
        self._connection: _Connection | None = None
        self._window: list[Columns] = []
        self._packets = 0
        self._bytes = 0

    def take(self, rows: Columns) -> None:
        """More of its packets."""
        done, count = 0, len(rows["captured_ns"])
        while done < count:
            end = min(count, done + _WINDOW_PACKETS - self._packets)
            part = _part(rows, done, end)
            self._window.append(part)
            self._packets += end - done
            self._bytes += int(part["payload_bytes"].sum())
            done = end
            if self._packets >= _WINDOW_PACKETS or self._bytes >= _WINDOW_BYTES:
                self._flush()

    def end(self) -> None:
        """That was all."""
        self._flush()
        if self._connection is not None:
            self._connection.end()

    def _flush(self) -> None:
        if not self._window:
            return
        columns = {name: np.concatenate([part[name] for part in self._window]) for name in self._window[0]}
        self._window, self._packets, self._bytes = [], 0, 0
        cuts = self._openings(columns) if self._wire.transport == "tcp" else []
        if self._connection is None and (not cuts or cuts[0] > 0):
            cuts = [0, *cuts]
        count = len(columns["flags"])
        if self._connection is not None:
            self._connection.push(_part(columns, 0, cuts[0] if cuts else count))
        for start, end in pairwise([*cuts, count]):
            if self._connection is not None:
                self._connection.end()
                self._epoch += 1
            self._connection = self._connect(columns, start)
            self._connection.push(_part(columns, start, end))

    def _openings(self, columns: Columns) -> list[int]:
        """Where a SYN begins a new connection: one that is not the last connection's own, sent again."""
        flags, seq, low = columns["flags"], columns["seq"], columns["low"]
        known = self._connection.opened if self._connection is not None else None
        openings = []
        for place in np.flatnonzero((flags & (SYN | ACK)) == SYN).tolist():
            this = (bool(low[place]), int(seq[place]))
            if this != known:
                openings.append(place)
            known = this
        return openings

    def _connect(self, columns: Columns, first: int) -> _Connection:
        flags, low = int(columns["flags"][first]), bool(columns["low"][first])
        client_is_low = self._client_is_low(flags, low)
        client, server = (self._low, self._high) if client_is_low else (self._high, self._low)
        opened = (low, int(columns["seq"][first])) if flags & (SYN | ACK) == SYN else None
        return _Connection(self._wire, self._epoch, client, server, client_is_low, opened)

    def _client_is_low(self, flags: int, low: bool) -> bool:
        """The client sends the SYN and hears the SYN-ACK; else it has the port nobody knows, or the higher one."""
        if flags & SYN:
            return low if not flags & ACK else not low
        low_port, high_port = self._low[1], self._high[1]
        known = known_ports()
        if (low_port in known) != (high_port in known):
            return high_port in known
        return low_port > high_port if low_port != high_port else low


class _Connection:
    """One connection (or all datagrams between two endpoints)."""

    def __init__(
        self, wire: _Wire, epoch: int, client: Endpoint, server: Endpoint, client_is_low: bool,
        opened: tuple[bool, int] | None,
    ) -> None:  # fmt: skip
        self.opened = opened
        """Who sent its SYN (the lower endpoint?) and with which number."""
        self._wire = wire
        self._key = (wire.stream, epoch)
        self._client, self._server = client, server
        self._client_is_low = client_is_low
        self._stream = Stream(wire.transport, client[1], server[1], wire.read, wire.around.hints)
        self._analysis = TcpAnalysis() if wire.transport == "tcp" else None
        self._messages = 0
        self._packets = [0, 0]
        self._first_ns = self._last_ns = 0

    def push(self, rows: Columns) -> None:
        """More packets."""
        window = self._segments(rows)
        if not len(window):
            return
        self._first_ns = self._first_ns or int(window.time_ns[0])
        self._last_ns = int(window.time_ns[-1])
        of_server = int(np.count_nonzero(window.sender))
        self._packets[0] += len(window) - of_server
        self._packets[1] += of_server
        if self._analysis is not None:
            self._analysis.push(window)
        self._stream.push(window, last=False)
        self._tell()

    def end(self) -> None:
        """That was all: tell what waited for more, and the connection itself."""
        self._stream.push(_NO_SEGMENTS, last=True)
        self._tell()
        self._wire.sink.streams.append(self._row())

    def _segments(self, rows: Columns) -> Segments:
        sender = (rows["low"] != self._client_is_low).astype(np.int64)
        wide = {name: rows[name].astype(np.int64) for name in _WIDENED}
        size = wide["payload_bytes"]
        return Segments(
            rows["captured_ns"], sender, wide["seq"], wide["ack"], wide["flags"], wide["window"], wide["window_shift"],
            wide["mss"], size, size - wide["missing_bytes"], rows["payload_at"],
        )  # fmt: skip

    def _tell(self) -> None:
        messages, exchanges = self._stream.take()
        self._messages += sum(map(len, messages))
        self._wire.sink.take(self._key, messages, exchanges)

    def _row(self) -> Row:
        wire, stream, analysis = self._wire, self._stream, self._analysis
        around = wire.around
        if analysis is not None:
            tcp: Row = (analysis.completeness, analysis.initial_rtt_ns, analysis.rtt_ns(0), analysis.rtt_ns(1))
            tcp += tuple(analysis.counts[name] for name in _COUNTS)
        else:
            tcp = (0, None, None, None, *(0 for _ in _COUNTS))
        return (
            *self._key, wire.file, around.captured_at.get(wire.file), wire.transport, stream.protocol,
            stream.recognised_by, *self._client, around.service(*self._client), *self._server,
            around.service(*self._server), self._first_ns, self._last_ns, sum(self._packets), self._packets[0],
            *stream.delivered_bytes, self._messages, stream.malformed, stream.undecoded_bytes, stream.gap_bytes, *tcp,
        )  # fmt: skip


def _part(columns: Columns, start: int, end: int) -> Columns:
    return {name: values[start:end] for name, values in columns.items()}


_WIDENED = ("seq", "ack", "flags", "window", "window_shift", "mss", "payload_bytes", "missing_bytes")
_COUNTS = STREAMS.column_names[STREAMS.column_names.index("retransmissions") :]
_NOBODY: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
_NO_SEGMENTS = Segments(*[_NOBODY] * 11)


class _Sink:
    """Rows on their way out, handed on in batches."""

    def __init__(self) -> None:
        self.streams: list[Row] = []
        self._messages: list[Messages] = []
        self._spoken_in: list[tuple[int, int, int]] = []
        """Stream, epoch and how many of the messages."""
        self._exchanges: list[Any] = []
        self._exchanged_in: list[tuple[int, int, int]] = []
        """The same for exchanges."""
        self._rows = 0

    def take(self, key: tuple[int, int], messages: list[Messages], exchanges: list[Any]) -> None:
        """What was told in a connection."""
        for some in messages:
            self._spoken_in.append((*key, len(some)))
            self._rows += len(some)
        self._messages += messages
        if exchanges:
            self._exchanged_in.append((*key, len(exchanges) // len(EXCHANGE_FIELDS)))
            self._rows += self._exchanged_in[-1][2]
            self._exchanges += exchanges

    def full(self) -> Iterator[tuple[Table, pa.RecordBatch]]:
        """What there is, once it is enough."""
        if self._rows + len(self.streams) >= _BATCH_ROWS:
            yield from self.rest()

    def rest(self) -> Iterator[tuple[Table, pa.RecordBatch]]:
        """What there is."""
        if self.streams:
            yield STREAMS, _batch(STREAMS, list(zip(*self.streams, strict=True)))
        if self._messages:
            yield MESSAGES, _batch(MESSAGES, _message_columns(self._spoken_in, self._messages))
        if self._exchanges:
            yield EXCHANGES, _batch(EXCHANGES, _exchange_columns(self._exchanged_in, self._exchanges))
        self.streams, self._messages, self._spoken_in, self._exchanges, self._exchanged_in = [], [], [], [], []
        self._rows = 0


def _message_columns(where: list[tuple[int, int, int]], messages: list[Messages]) -> list[Any]:
    fields: list[Any] = []
    for some in messages:
        fields += some.fields
    number, sender, size, first_ns, last_ns = (
        np.concatenate([getattr(some, name) for some in messages])
        for name in ("number", "sender", "size", "first_ns", "last_ns")
    )
    told = {place: fields[place::WIDTH] for place in range(PROTOCOL, WIDTH)}
    fingerprint = pa.array(told[FINGERPRINT], pa.uint64()).view(pa.int64())
    return [
        *_repeated(where), number, told[PROTOCOL], told[KIND], _SENDER.take(pa.array(sender)), told[NAME],
        told[CORRELATION], told[FAILED], size, told[PAYLOAD_BYTES], first_ns, last_ns, told[DEVICE], told[SEQ],
        fingerprint,
    ]  # fmt: skip


def _exchange_columns(where: list[tuple[int, int, int]], exchanges: list[Any]) -> list[Any]:
    width = len(EXCHANGE_FIELDS)
    told = {name: exchanges[place::width] for place, name in enumerate(EXCHANGE_FIELDS)}
    told["sender"] = _SENDER.take(pa.array(told["sender"]))
    return [*_repeated(where), *told.values()]


def _repeated(where: list[tuple[int, int, int]]) -> tuple[Numbers, Numbers]:
    """Stream and epoch of each row."""
    stream, epoch, count = zip(*where, strict=True)
    return np.repeat(np.array(stream, dtype=np.int64), count), np.repeat(np.array(epoch, dtype=np.int32), count)


def _batch(table: Table, columns: Sequence[Any]) -> pa.RecordBatch:
    schema = table.arrow_schema()
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, type=field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
