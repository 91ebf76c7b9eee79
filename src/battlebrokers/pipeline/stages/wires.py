"""Stage: what one task decoded → what it adds up to between services, and the messages that may be followed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from battlebrokers.dissect.payload_ids import header_id
from battlebrokers.pipeline.stages.hops import BY_FINGERPRINT, BY_HEADER, BY_ID, SIGHTING
from battlebrokers.pipeline.stages.peers import COLUMNS, Numbers, Peers, as_array, numbers, peers_of
from battlebrokers.pipeline.stages.sieve import Sieve
from battlebrokers.pipeline.stages.sums import Sums
from battlebrokers.pipeline.stages.table_files import read_file
from battlebrokers.tables import EXCHANGES, MESSAGES, STREAMS, Table

_MESSAGE = [
    "stream", "epoch", "number", "protocol", "kind", "sender", "name", "bytes", "payload_bytes", "first_ns", "last_ns",
    "device", "seq", "fingerprint", "identity",
]  # fmt: skip
_EXCHANGE = [
    "stream", "epoch", "protocol", "kind", "name", "asker", "request", "response", "outcome", "certain", "asked_ns",
    "answered_ns", "request_bytes", "response_bytes",
]  # fmt: skip
_LEAST_FINGERPRINTED_BYTES = 8
"""Shorter payloads say the same too often to be followed."""
_PACKED = pa.ipc.IpcWriteOptions(compression="lz4")


Moved = tuple[int, bytes | Sums]
"""Sightings in Arrow's stream format, or sums, and which task of the next stage takes them."""


@dataclass(frozen=True, slots=True)
class WireStage:
    """The task that looks at what some tasks decoded."""

    folders: Mapping[str, str]
    left_out: Any
    """Spark's broadcast of the conversations that are counted on another wire."""
    followers: int
    """Tasks of the next stage."""

    def __call__(self, number: int, tasks: Iterable[int]) -> Iterator[Moved]:
        """Sightings and sums for the next stage."""
        sums, sieve = Sums(), Sieve()
        for task in tasks:
            yield from self._look(task, sums, sieve)
        yield number, sums

    def _look(self, task: int, whole: Sums, sieve: Sieve) -> Iterator[Moved]:
        def rows(table: Table, columns: list[str]) -> Iterator[pa.RecordBatch]:
            return read_file(self.folders[table.name], task, columns)

        sums = Sums()
        peers = peers_of(rows(STREAMS, COLUMNS), self.left_out.value)
        for seen in add_up(peers, rows(EXCHANGES, _EXCHANGE), rows(MESSAGES, _MESSAGE), sums):
            yield from split(sieve.pass_on(seen), self.followers)
        sums.cut()
        whole.merge(sums)


def add_up(
    peers: Peers, exchanges: Iterable[pa.RecordBatch], messages: Iterable[pa.RecordBatch], sums: Sums
) -> Iterator[pa.Table]:
    """Add rows of these tables to the sums; yields the messages that may be followed (see `SIGHTING`)."""
    roles = _Roles(peers)
    for batch in exchanges:
        rows = peers.rows(numbers(batch["stream"]), numbers(batch["epoch"]))
        roles.add(rows, batch)
        by_client = pc.equal(batch["asker"], "client").to_numpy(zero_copy_only=False)
        sums.answers.add(batch, rows, by_client, peers)
        sums.kinds.add_exchanges(batch, rows, by_client, peers)
    for batch in messages:
        rows = peers.rows(numbers(batch["stream"]), numbers(batch["epoch"]))
        by_client = pc.equal(batch["sender"], "client").to_numpy(zero_copy_only=False)
        part = roles.of(rows, numbers(batch["number"]))
        sums.traffic.add(batch, rows, by_client, part, peers)
        sums.kinds.add_messages(batch, rows, by_client, part, peers)
        yield sightings(batch, rows, by_client, peers)


class _Roles:
    """Which messages asked and which answered: an octet each, however long a connection is."""

    def __init__(self, peers: Peers) -> None:
        self._first = peers.first
        self._kept = np.zeros(int(peers.first[-1]) + 1, dtype=np.uint8)
        """The last one stands for whatever is not known."""

    def add(self, rows: Numbers, exchanges: pa.RecordBatch) -> None:
        """What these exchanges, of conversations in these rows of the peers, say of their messages."""
        self._kept[self._places(rows, numbers(exchanges["request"]))] |= _REQUEST
        answered = ~_are_null(exchanges["response"])
        response = numbers(pc.fill_null(exchanges["response"], 0))
        self._kept[self._places(rows[answered], response[answered])] |= _RESPONSE
        self._kept[-1] = 0

    def of(self, rows: Numbers, number: Numbers) -> Numbers:
        """0 other, 1 request, 2 response; a message that answers one thing and asks another counts as an answer."""
        found = self._kept[self._places(rows, number)]
        return np.where(found & _RESPONSE, 2, (found & _REQUEST).astype(np.int64))

    def _places(self, rows: Numbers, number: Numbers) -> Numbers:
        last = len(self._first) - 1
        ends = self._first[np.minimum(rows + 1, last)]
        places = self._first[rows] + number
        return np.where((rows < last) & (number >= 0) & (places < ends), places, len(self._kept) - 1)


_REQUEST, _RESPONSE = 1, 2


def sightings(batch: pa.RecordBatch, rows: Numbers, by_client: npt.NDArray[np.bool_], peers: Peers) -> pa.Table:
    """The messages that may be followed, with their names: by our header, or by what they carry."""
    ours = ~_are_null(batch["device"])
    marked = ~_are_null(batch["fingerprint"]) & (numbers(batch["payload_bytes"]) >= _LEAST_FINGERPRINTED_BYTES)
    named = ~ours & ~_are_null(batch["identity"])
    which = np.flatnonzero((ours | named | marked) & peers.counted[rows])
    some = batch.take(as_array(which))
    device, seq, content, identity = (
        numbers(pc.fill_null(some[name], 0)) for name in ("device", "seq", "fingerprint", "identity")
    )
    by = np.where(ours[which], BY_HEADER, np.where(named[which], BY_ID, BY_FINGERPRINT))
    trace = np.choose(by, (header_id(device, seq), identity, content))
    sender, receiver = peers.names(rows[which], by_client[which])
    columns = {
        "trace": as_array(trace), "sender": sender, "receiver": receiver, "sent_ns": some["first_ns"],
        "received_ns": some["last_ns"], "by": pc.cast(as_array(by), pa.int8()), "content": as_array(content),
    }  # fmt: skip
    return pa.table([columns[name] if name in columns else some[name] for name in SIGHTING.names], schema=SIGHTING)


def share_of(trace: Numbers, parts: int) -> Numbers:
    """Which task follows a message; numbers in a row are spread, or what happens every so often would be one task's."""
    mixed = trace.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return ((mixed >> np.uint64(32)) % np.uint64(parts)).astype(np.int64)


def split(seen: pa.Table, parts: int) -> Iterator[tuple[int, bytes]]:
    """The sightings by the task that follows their message."""
    if not seen.num_rows:
        return
    part = share_of(numbers(seen["trace"]), parts)
    ordered = seen.take(as_array(np.argsort(part, kind="stable")))
    start = 0
    for number, end in enumerate(np.cumsum(np.bincount(part, minlength=parts)).tolist()):
        if end > start:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, SIGHTING, options=_PACKED) as writer:
                writer.write_table(ordered.slice(start, end - start))
            yield number, sink.getvalue().to_pybytes()
        start = end


def _are_null(column: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = pc.is_null(column).to_numpy(zero_copy_only=False)
    return found
