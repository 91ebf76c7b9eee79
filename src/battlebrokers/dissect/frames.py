"""Captured frames to rows of `packets`: link layer, IP, TCP or UDP, without a loop over packets.

Called with a chunk of a capture and its records. Headers are read, payloads only located; nothing is ever raised.
`pa.array` is not used: its first call imports pandas, which takes a worker a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from battlebrokers.dissect.addresses import Addresses, addresses_of, streams_of
from battlebrokers.dissect.gather import Numbers
from battlebrokers.dissect.headers import ABSENT, BAD_RECORD, FAULTS, Headers, Mask
from battlebrokers.dissect.ip import decode_ip
from battlebrokers.dissect.link_layers import decode_link
from battlebrokers.dissect.records import Records
from battlebrokers.dissect.transport import decode_transport
from battlebrokers.tables.packets import PACKETS

_LARGEST = 0x7FFF_FFFF
_SCHEMA = PACKETS.arrow_schema()


def headers_of(data: bytes, at: int, records: Records) -> Headers:
    """What the headers of these frames say; `at` is where the chunk begins in its file."""
    headers = Headers(data, at, records)
    decode_link(headers)
    decode_ip(headers)
    decode_transport(headers)
    return headers


@dataclass(frozen=True, slots=True)
class Frames:
    """The frames of a chunk: their headers, who is meant by them, and the conversations they belong to."""

    at: int
    """Where the chunk begins in its file."""
    records: Records
    headers: Headers
    addresses: Addresses
    streams: Numbers
    known: Mask
    """Which of them have a stream."""


def frames_of(data: bytes, at: int, records: Records, wire: int) -> Frames:
    """Conversations on one wire may go on from file to file."""
    headers = headers_of(data, at, records)
    addresses = addresses_of(headers)
    return Frames(at, records, headers, addresses, *streams_of(headers, addresses, wire))


def packets(data: bytes, at: int, records: Records, file: int, wire: int | None = None) -> pa.RecordBatch:
    """The rows of a chunk; without a number of its wire each file is a wire of its own."""
    return rows_of(frames_of(data, at, records, file if wire is None else wire), file)


def rows_of(frames: Frames, file: int) -> pa.RecordBatch:
    """One row per frame, and one with the fault `record` per damage, in the order of the file."""
    at, records, headers, addresses = frames.at, frames.records, frames.headers, frames.addresses
    streams, known = frames.streams, frames.known
    located = headers.payload_at != ABSENT
    reached = np.clip(headers.captured_end, headers.payload_at, headers.payload_end)
    columns: dict[str, Numbers] = {
        "file": np.full(len(records), file, dtype=np.int64),
        "at": records.at,
        "captured_ns": records.time_ns,
        "interface": records.interface,
        "stream": streams,
        "payload_at": np.where(located, headers.payload_at + at, ABSENT),
        "payload_bytes": np.minimum(headers.payload_end - headers.payload_at, _LARGEST),
        "missing_bytes": np.minimum(headers.payload_end - reached, _LARGEST),
        "original_bytes": np.minimum(records.original_bytes, _LARGEST),
        "source": addresses.source,
        "destination": addresses.destination,
    }
    for name in (
        "protocol", "source_port", "destination_port", "seq", "ack", "flags", "window", "window_shift", "mss", "fault",
    ):  # fmt: skip
        columns[name] = getattr(headers, name)
    if records.damages:
        columns, known = _with_damages(columns, known, records, file)
    return _batch(columns, known, addresses)


def _with_damages(
    columns: dict[str, Numbers], known: Mask, records: Records, file: int
) -> tuple[dict[str, Numbers], Mask]:
    """Rows for what could not be read, put in their places."""
    count = len(records.damages)
    zeros = np.zeros(count, dtype=np.int64)
    told = {
        "file": zeros + file,
        "at": np.array([damage.at for damage in records.damages], dtype=np.int64),
        "fault": zeros + BAD_RECORD,
        "original_bytes": np.minimum([damage.size_bytes for damage in records.damages], _LARGEST),
        "captured_ns": zeros, "payload_bytes": zeros, "missing_bytes": zeros,
    }  # fmt: skip
    order = np.argsort(np.concatenate((columns["at"], told["at"])), kind="stable")
    result = {name: np.concatenate((values, told.get(name, zeros + ABSENT)))[order] for name, values in columns.items()}
    return result, np.concatenate((known, np.zeros(count, dtype=np.bool_)))[order]


def _batch(columns: dict[str, Numbers], known: Mask, addresses: Addresses) -> pa.RecordBatch:
    arrays = []
    for field in _SCHEMA:
        values = columns[field.name]
        if field.name in {"source", "destination"}:
            arrays.append(_words(addresses.words, values))
        elif field.name == "fault":
            arrays.append(_words(FAULTS, values))
        elif field.name == "stream":
            arrays.append(_numbers(values, field.type, known))
        else:
            arrays.append(_numbers(values, field.type, values != ABSENT if field.nullable else None))
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _numbers(values: npt.NDArray[Any], kind: pa.DataType, present: Mask | None = None) -> pa.Array:
    content = np.ascontiguousarray(values, dtype=kind.to_pandas_dtype())
    absent = len(values) - int(np.count_nonzero(present)) if present is not None else 0
    bits = pa.py_buffer(np.packbits(present, bitorder="little")) if present is not None and absent else None
    return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(content)], null_count=absent)


def _words(words: list[str] | tuple[str, ...], places: Numbers) -> pa.Array:
    encoded = [word.encode() for word in words]
    offsets = np.zeros(len(encoded) + 1, dtype=np.int32)
    offsets[1:] = np.cumsum([len(word) for word in encoded], dtype=np.int32)
    vocabulary = pa.Array.from_buffers(
        pa.string(), len(encoded), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    )
    return vocabulary.take(_numbers(places, pa.int32(), places != ABSENT))
