"""Addresses as words, and the hash that names a conversation. Called by `frames`.

Work is done once per different address, not once per packet.
"""

from __future__ import annotations

from dataclasses import dataclass
from socket import AF_INET6, inet_ntop

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from battlebrokers.dissect.gather import Numbers
from battlebrokers.dissect.headers import ABSENT, Headers

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Addresses:
    """The different addresses of a chunk, and which frame has which."""

    words: list[str]
    hashes: Hashes
    source: Numbers
    """Places in `words`; absent where there is no address."""
    destination: Numbers


def addresses_of(headers: Headers) -> Addresses:
    """All addresses of a chunk."""
    count = len(headers.start)
    source = np.full(count, ABSENT, dtype=np.int64)
    destination = source.copy()
    words: list[str] = []
    hashes: list[Hashes] = []
    four = np.flatnonzero(headers.addressed & (headers.version == 4))
    if len(four):
        both = np.concatenate((headers.source_low[four], headers.destination_low[four])).astype(np.uint32)
        codes, values = _different(both, pa.uint32(), 4)
        source[four], destination[four] = np.split(codes, 2)
        numbers = np.frombuffer(values, dtype=np.uint32)
        words += [f"{one >> 24}.{one >> 16 & 255}.{one >> 8 & 255}.{one & 255}" for one in numbers.tolist()]
        hashes.append(_mixed(numbers.astype(np.uint64)))
    six = np.flatnonzero(headers.addressed & (headers.version == 6))
    if len(six):
        high = np.concatenate((headers.source_high[six], headers.destination_high[six]))
        low = np.concatenate((headers.source_low[six], headers.destination_low[six]))
        codes, values = _different(np.stack((high, low), axis=1).astype(">u8"), pa.binary(16), 16)
        source[six], destination[six] = np.split(codes + len(words), 2)
        words += [inet_ntop(AF_INET6, values[at : at + 16]) for at in range(0, len(values), 16)]
        halves = np.frombuffer(values, dtype=">u8").reshape(-1, 2).astype(np.uint64)
        hashes.append(_mixed(_mixed(~halves[:, 0]) ^ halves[:, 1]))
    return Addresses(words, np.concatenate(hashes) if hashes else np.empty(0, dtype=np.uint64), source, destination)


def _different(values: npt.NDArray[np.generic], kind: pa.DataType, width: int) -> tuple[Numbers, bytes]:
    """Where each value stands among the different ones, and those as bytes."""
    plain = np.ascontiguousarray(values)
    array = pa.Array.from_buffers(kind, plain.nbytes // width, [None, pa.py_buffer(plain)])
    encoded = array.dictionary_encode()
    places = np.frombuffer(encoded.indices.buffers()[1], dtype=np.int32, count=len(array))
    different = len(encoded.dictionary)
    return places.astype(np.int64), encoded.dictionary.buffers()[1].to_pybytes()[: different * width]


def streams_of(headers: Headers, addresses: Addresses, wire: int) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """The hash of each frame's conversation, the same both ways, and which frames have one."""
    known = headers.source_port != ABSENT
    which = np.flatnonzero(known)
    streams = np.zeros(len(known), dtype=np.int64)
    if not len(which):
        return streams, known
    one = _mixed(addresses.hashes[addresses.source[which]] ^ headers.source_port[which].view(np.uint64))
    other = _mixed(addresses.hashes[addresses.destination[which]] ^ headers.destination_port[which].view(np.uint64))
    salt = _mixed((headers.protocol[which] | (wire + 1) << 8).view(np.uint64))
    streams[which] = _mixed(_mixed(np.minimum(one, other) ^ salt) + np.maximum(one, other)).view(np.int64)
    return streams, known


def _mixed(values: Hashes) -> Hashes:
    """splitmix64: different numbers stay different, and each bit depends on all others."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
