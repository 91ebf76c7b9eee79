"""Sorted packets in, streams, messages and exchanges out: the body of the one Spark stage that runs Python on captures.

Runs in Spark's Python workers, on packets of whole conversations in capture order; holds one window of one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from socket import AF_INET, AF_INET6, inet_ntop
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from battlebrokers.dissect.registry import Transport, known_ports
from battlebrokers.dissect.segments import ACK, FIN, RST, SYN, Segments, joined
from battlebrokers.dissect.stream import Reader, Stream
from battlebrokers.dissect.tcp_analysis import TcpAnalysis
from battlebrokers.pipeline.conversation_tables import Batch, ConversationTables, Row
from battlebrokers.pipeline.payloads import FILE_SHIFT, Payloads
from battlebrokers.tables import STREAMS
from battlebrokers.tables.endpoints import ANYWHERE, endpoint

__all__ = ["FILE_SHIFT", "WANTED", "Columns", "Surroundings", "Words", "converse_columns"]

WANTED = (
    "stream", "captured_ns", "file", "protocol", "low", "source_port", "destination_port", "seq", "ack", "flags",
    "window", "window_shift", "mss", "payload_at", "payload_bytes", "missing_bytes",
)  # fmt: skip
"""The columns of a packet this stage reads, beside its addresses.

`low` says that its source is the smaller of the two endpoints, `payload_at` is a place (see FILE_SHIFT).
"""

_WINDOW_PACKETS = 32_768
_WINDOW_BYTES = 8 << 20
_MAPPED = bytes(10) + b"\xff\xff"

Columns = dict[str, npt.NDArray[Any]]
Words = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""Source and destination of each packet: 16 bytes each, IPv4 as `::ffff:a.b.c.d`."""
Endpoint = tuple[str, int]
"""Address and port."""
Call = tuple[Endpoint, Endpoint]
"""Who called, and who was called."""
_LOOK_SLACK_NS = 100_000_000
"""To look at all sockets of a process takes a moment."""


class Caller(NamedTuple):
    """The service that held a connection, and when it was seen to."""

    service: str
    first_ns: int
    last_ns: int


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known beside the packets."""

    files: Sequence[str]
    """Where each capture file lies, unpacked."""
    captured_at: Mapping[int, str]
    """File number → the service at whose wire it was captured."""
    names: Mapping[str, str]
    """Address, address:port or *:port, spelled as `tables.endpoints` does → service."""
    hints: object = None
    calls: Mapping[Call, Sequence[Caller]] = field(default_factory=dict)
    """Connections whose opener is known, however many share its address."""

    def service(self, address: str, port: int) -> str | None:
        """Who lives there."""
        names = self.names
        return names.get(endpoint(address, port)) or names.get(endpoint(address)) or names.get(endpoint(ANYWHERE, port))

    def speaker(self, end: Endpoint, other: Endpoint, seen_ns: tuple[int, int], *, ended: bool) -> str | None:
        """Who speaks at the first of these ends: whoever was seen to hold that connection then, else who lives there.

        Nobody holds a connection before it began, or after it ended; one that did not end may be silent for long.
        """
        first_ns, last_ns = seen_ns
        for caller in self.calls.get((end, other), ()):
            begun = caller.last_ns >= first_ns - _LOOK_SLACK_NS
            if begun and (not ended or caller.first_ns <= last_ns + _LOOK_SLACK_NS):
                return caller.service
        return self.service(*end)


def converse_columns(columns: Iterable[tuple[Columns, Words]], around: Surroundings) -> Iterator[Batch]:
    """All conversations of a partition; rows of one conversation come together and in order.

    It may go on in the next item. Columns are those of WANTED as integers of any width.
    """
    tables = ConversationTables()
    read = Payloads(around.files).read
    current: _Conversation | None = None
    for rows, words in columns:
        stream = rows["stream"]
        for at in range(0, len(stream), _WINDOW_PACKETS):
            streams = stream[at : at + _WINDOW_PACKETS]
            packets = _packets(rows, at, at + len(streams))
            starts = [0, *(np.flatnonzero(streams[1:] != streams[:-1]) + 1).tolist()]
            for start, end in pairwise([*starts, len(streams)]):
                if current is None or current.stream != streams[start]:
                    if current is not None:
                        current.end()
                    wire = _wire(rows, at + start, around, read, tables)
                    current = _Conversation(wire, *_endpoints(rows, words, at + start))
                current.take(packets.part(start, end))
                yield from tables.full()
    if current is not None:
        current.end()
    yield from tables.rest()


def _packets(rows: Columns, start: int, end: int) -> Segments:
    """Rows [start, end); their sender is 1 for the lower endpoint."""
    columns = [rows[name][start:end].astype(np.int64) for name in _NUMBERS]
    columns[-2] = columns[-3] - columns[-2]  # what is not missing was captured
    return Segments(*columns)


_NUMBERS = (
    "captured_ns", "low", "seq", "ack", "flags", "window", "window_shift", "mss", "payload_bytes", "missing_bytes",
    "payload_at",
)  # fmt: skip
"""In the order of segments."""


def _wire(rows: Columns, first: int, around: Surroundings, read: Reader, tables: ConversationTables) -> _Wire:
    transport: Transport = "tcp" if int(rows["protocol"][first]) == 6 else "udp"
    return _Wire(int(rows["stream"][first]), int(rows["file"][first]), transport, around, read, tables)


def _endpoints(rows: Columns, words: Words, row: int) -> tuple[Endpoint, Endpoint]:
    """The lower and the higher endpoint of a packet."""
    source, destination = (_text(address[row].tobytes()) for address in words)
    sender, receiver = (source, int(rows["source_port"][row])), (destination, int(rows["destination_port"][row]))
    return (sender, receiver) if rows["low"][row] else (receiver, sender)


def _text(address: bytes) -> str:
    address = address.ljust(16, b"\x00")  # numpy drops zeros at the end of `S16`
    if address.startswith(_MAPPED):
        return inet_ntop(AF_INET, address[len(_MAPPED) :])
    return inet_ntop(AF_INET6, address)


@dataclass(frozen=True, slots=True)
class _Wire:
    """What all connections of one pair of endpoints share."""

    stream: int
    file: int
    transport: Transport
    around: Surroundings
    read: Reader
    tables: ConversationTables


class _Conversation:
    """One pair of endpoints; several connections one after the other if ports were reused."""

    def __init__(self, wire: _Wire, low: Endpoint, high: Endpoint) -> None:
        self.stream = wire.stream
        self._wire = wire
        self._low, self._high = low, high
        self._epoch = 0
        self._connection: _Connection | None = None
        self._window: list[Segments] = []
        self._packets = 0
        self._bytes = 0

    def take(self, packets: Segments) -> None:
        """More of its packets."""
        done, count = 0, len(packets)
        while done < count:
            end = min(count, done + _WINDOW_PACKETS - self._packets)
            part = packets if end - done == count else packets.part(done, end)
            self._window.append(part)
            self._packets += end - done
            self._bytes += int(part.size.sum())
            done = end
            if self._packets >= _WINDOW_PACKETS or self._bytes >= _WINDOW_BYTES:
                self._flush(last=False)

    def end(self) -> None:
        """That was all."""
        self._flush(last=True)

    def _flush(self, *, last: bool) -> None:
        packets = joined(self._window)
        self._window, self._packets, self._bytes = [], 0, 0
        cuts = self._openings(packets) if self._wire.transport == "tcp" else []
        if self._connection is None and len(packets) and (not cuts or cuts[0] > 0):
            cuts = [0, *cuts]
        bounds = [*cuts, len(packets)]
        if self._connection is not None:
            self._connection.push(packets.part(0, bounds[0]), last=last or bool(cuts))
        for start, end in pairwise(bounds):
            if self._connection is not None:
                self._epoch += 1
            self._connection = self._connect(packets, start)
            self._connection.push(packets.part(start, end), last=last or end < len(packets))

    def _openings(self, packets: Segments) -> list[int]:
        """Where a SYN begins a new connection: not one that the last connection, still open, sent again."""
        flags = packets.flags
        begins = np.flatnonzero((flags & (SYN | ACK)) == SYN)
        if not len(begins):
            return []
        ends = np.flatnonzero(flags & (FIN | RST))
        ended = np.searchsorted(ends, begins) > np.concatenate(([0], np.searchsorted(ends, begins[:-1], side="right")))
        known = None
        if self._connection is not None:
            known = self._connection.opened
            ended[0] |= self._connection.ended
        openings = []
        rows = zip(begins.tolist(), packets.sender[begins].tolist(), packets.seq[begins].tolist(), ended, strict=True)
        for place, low, seq, over in rows:
            if over or (bool(low), seq) != known:
                openings.append(place)
            known = bool(low), seq
        return openings

    def _connect(self, packets: Segments, first: int) -> _Connection:
        flags, low = int(packets.flags[first]), bool(packets.sender[first])
        client_is_low = self._client_is_low(flags, low)
        client, server = (self._low, self._high) if client_is_low else (self._high, self._low)
        opened = (low, int(packets.seq[first])) if flags & (SYN | ACK) == SYN else None
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
        self.ended = False
        """Whether a FIN or RST was seen in it."""
        self._messages = 0
        self._packets = [0, 0]
        self._first_ns = self._last_ns = 0

    def push(self, packets: Segments, *, last: bool) -> None:
        """More packets; with `last` that was all, and the connection itself is told, too."""
        if len(packets):
            packets = replace(packets, sender=packets.sender ^ int(self._client_is_low))
            self._first_ns = self._first_ns or int(packets.time_ns[0])
            self._last_ns = int(packets.time_ns[-1])
            of_server = int(np.count_nonzero(packets.sender))
            self._packets[0] += len(packets) - of_server
            self._packets[1] += of_server
            self.ended = self.ended or bool(np.any(packets.flags & (FIN | RST)))
            if self._analysis is not None:
                self._analysis.push(packets)
        self._stream.push(packets, last=last)
        messages, exchanges = self._stream.take()
        self._messages += sum(map(len, messages))
        self._wire.tables.take(self._key, messages, exchanges)
        if last:
            self._wire.tables.streams.append(self._row())

    def _row(self) -> Row:
        wire, stream, analysis = self._wire, self._stream, self._analysis
        around = wire.around
        seen_ns = (self._first_ns, self._last_ns)
        caller, called = (
            around.speaker(end, other, seen_ns, ended=self.ended)
            for end, other in ((self._client, self._server), (self._server, self._client))
        )
        if analysis is not None:
            tcp: Row = (analysis.completeness, analysis.initial_rtt_ns, analysis.rtt_ns(0), analysis.rtt_ns(1))
            tcp += tuple(analysis.counts[name] for name in _COUNTS)
        else:
            tcp = (0, None, None, None, *(0 for _ in _COUNTS))
        return (
            *self._key, wire.file, around.captured_at.get(wire.file), wire.transport, stream.protocol,
            stream.recognised_by, *self._client, caller, *self._server, called, *seen_ns, sum(self._packets),
            self._packets[0], *stream.delivered_bytes, self._messages, stream.malformed, stream.undecoded_bytes,
            stream.gap_bytes, *tcp,
        )  # fmt: skip


_COUNTS = STREAMS.column_names[STREAMS.column_names.index("retransmissions") :]
