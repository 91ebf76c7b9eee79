"""Streams, messages and exchanges on their way out: from what conversations told to Arrow batches of whole tables.

Used by the stage that follows conversations. Columns stay columns: nothing here looks at a single message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from battlebrokers.dissect.segments import Numbers
from battlebrokers.dissect.talk import WIDTH, Found
from battlebrokers.dissect.transcript import EXCHANGE_FIELDS, Messages
from battlebrokers.tables import EXCHANGES, MESSAGES, STREAMS, Table

_BATCH_ROWS = 50_000
_SENDER = pa.array(["client", "server"])

Row = tuple[Any, ...]
Batch = tuple[Table, pa.RecordBatch]
_Where = list[tuple[int, int, int]]
"""Stream, epoch and how many rows of them."""


class ConversationTables:
    """Rows on their way out, handed on in batches."""

    def __init__(self) -> None:
        self.streams: list[Row] = []
        self._messages: list[Messages] = []
        self._spoken_in: _Where = []
        """Stream, epoch and how many of the messages."""
        self._exchanges: list[Any] = []
        self._exchanged_in: _Where = []
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

    def full(self) -> Iterator[Batch]:
        """What there is, once it is enough."""
        if self._rows + len(self.streams) >= _BATCH_ROWS:
            yield from self.rest()

    def rest(self) -> Iterator[Batch]:
        """What there is."""
        if self.streams:
            yield STREAMS, _batch(STREAMS, list(zip(*self.streams, strict=True)))
        if self._messages:
            yield MESSAGES, _batch(MESSAGES, _message_columns(self._spoken_in, self._messages))
        if self._exchanges:
            yield EXCHANGES, _batch(EXCHANGES, _exchange_columns(self._exchanged_in, self._exchanges))
        self.streams, self._messages, self._spoken_in, self._exchanges, self._exchanged_in = [], [], [], [], []
        self._rows = 0


def _message_columns(where: _Where, messages: list[Messages]) -> list[Any]:
    fields: list[Any] = []
    for some in messages:
        fields += some.fields
    number, sender, size, first_ns, last_ns = (
        np.concatenate([getattr(some, name) for some in messages])
        for name in ("number", "sender", "size", "first_ns", "last_ns")
    )
    told = {name: fields[place::WIDTH] for place, name in enumerate(Found._fields)}
    reason, properties = _details(messages, len(number))
    fingerprint = pa.array(told["fingerprint"], pa.uint64()).view(pa.int64())
    return [
        *_repeated(where), number, told["protocol"], told["kind"], _SENDER.take(pa.array(sender)), told["name"],
        told["correlation"], told["failed"], size, told["payload_bytes"], first_ns, last_ns, told["device"],
        told["seq"], fingerprint, told["identity"], reason, properties,
    ]  # fmt: skip


def _details(messages: list[Messages], count: int) -> tuple[list[int | None], list[str]]:
    """Reason and properties of each message; most have none."""
    reason: list[int | None] = [None] * count
    properties = [""] * count
    first = 0
    for some in messages:
        for place, detail in some.details.items():
            reason[first + place], properties[first + place] = detail
        first += len(some)
    return reason, properties


def _exchange_columns(where: _Where, exchanges: list[Any]) -> list[Any]:
    width = len(EXCHANGE_FIELDS)
    told = {name: exchanges[place::width] for place, name in enumerate(EXCHANGE_FIELDS)}
    told["sender"] = _SENDER.take(pa.array(told["sender"]))
    return [*_repeated(where), *told.values()]


def _repeated(where: _Where) -> tuple[Numbers, Numbers]:
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
