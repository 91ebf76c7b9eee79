"""Who talks in the conversations of one task: both ends by name, found for whole columns of messages at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]
OUTSIDE = "outside"
"""Whoever is not a service: devices, clients, users."""
COLUMNS = ["stream", "epoch", "client_service", "server_service", "server", "server_port", "messages"]
"""Of the table of streams."""
_EPOCH_BITS = 31


@dataclass(frozen=True, slots=True)
class Peers:
    """Row n is the n-th conversation by stream and epoch; one more row stands for whoever is not known."""

    streams: Numbers
    epochs: Numbers
    client: pa.Array
    server: pa.Array
    """Names; a server nobody named is known by its address."""
    counted: npt.NDArray[np.bool_]
    """False for conversations that were seen on another wire, too, and are counted there."""
    first: Numbers
    """For each row how many messages all rows before it have; one number more says how many there are."""

    def rows(self, stream: Numbers, epoch: Numbers) -> Numbers:
        """Where each conversation stands here; one that is not known: the last row, which never counts."""
        # Epochs of a stream are 0, 1, 2, …: they lie one behind the other.
        last = len(self.streams)
        rows: Numbers = np.minimum(np.searchsorted(self.streams, stream) + epoch, last)
        if last:
            place = np.minimum(rows, last - 1)
            known = (self.streams[place] == stream) & (self.epochs[place] == epoch)
            rows = np.where(known, rows, last)
        return rows

    def names(self, rows: Numbers, by_client: npt.NDArray[np.bool_]) -> tuple[pa.Array, pa.Array]:
        """Whoever spoke and whoever listened, in these conversations."""
        both = pa.concat_arrays([self.client, self.server])
        other = len(self.client)
        speaker, listener = rows + np.where(by_client, 0, other), rows + np.where(by_client, other, 0)
        return both.take(as_array(speaker)), both.take(as_array(listener))

    def pairs(self, rows: Numbers, by_client: npt.NDArray[np.bool_]) -> tuple[Numbers, list[tuple[str, str]]]:
        """A small number per different pair of whoever spoke and whoever listened, and those pairs."""
        code, names = codes([pa.chunked_array([self.client, self.server])])
        client, server = np.split(code, 2)
        # Worked out once per conversation and side, then looked up.
        sides = np.stack((server * len(names) + client, client * len(names) + server), axis=1)
        pairs, places = np.unique(sides, return_inverse=True)
        words = [(names[pair // len(names)][0], names[pair % len(names)][0]) for pair in pairs.tolist()]
        return places.reshape(-1)[2 * rows + by_client], words


def peers_of(streams: Iterable[pa.RecordBatch], left_out: Numbers) -> Peers:
    """From rows of the table of streams; `left_out` are keys (see `keys`) of those not to be counted."""
    table = pa.Table.from_batches(streams) if (streams := list(streams)) else _NO_STREAMS
    table = table.combine_chunks()
    order = np.lexsort((numbers(table["epoch"]), numbers(table["stream"])))
    table = table.take(as_array(order)).combine_chunks()
    stream, epoch = numbers(table["stream"]), numbers(table["epoch"])
    address = pc.binary_join_element_wise(table["server"], pc.cast(table["server_port"], pa.string()), ":")
    client = pc.coalesce(table["client_service"], OUTSIDE)
    server = pc.coalesce(table["server_service"], address)
    counted = np.append(~np.isin(keys(stream, epoch), left_out), False)
    nobody = pa.array([""], pa.string())
    client, server = (pa.concat_arrays([_one(names), nobody]) for names in (client, server))
    first = np.concatenate(([0], np.cumsum(numbers(table["messages"]))))
    return Peers(stream, epoch, client, server, counted, first)


def keys(stream: Numbers, epoch: Numbers) -> Numbers:
    """One number per conversation; different ones collide as rarely as hashes of streams do."""
    return stream ^ (epoch << _EPOCH_BITS)


def numbers(column: pa.ChunkedArray | pa.Array) -> Numbers:
    """A column without gaps as 64-bit numbers."""
    return column.to_numpy(zero_copy_only=False).astype(np.int64) if isinstance(column, pa.Array) else np.asarray(
        column.to_numpy()
    ).astype(np.int64)  # fmt: skip


def codes(columns: Sequence[pa.ChunkedArray]) -> tuple[Numbers, list[tuple[str, ...]]]:
    """A small number per different combination of words, and those combinations."""
    count = len(columns[0])
    combined = np.zeros(count, dtype=np.int64)
    if not count:
        return combined, []
    words: list[list[str]] = []
    for column in columns:
        encoded = pc.dictionary_encode(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
        words.append(encoded.dictionary.to_pylist())
        combined = combined * len(words[-1]) + numbers(encoded.indices)
    places, different = distinct(combined)
    found: list[tuple[str, ...]] = []
    for code in different.tolist():
        combination: list[str] = []
        for known in reversed(words):
            code, place = divmod(code, len(known))
            combination.append(known[place])
        found.append(tuple(reversed(combination)))
    return places, found


def distinct(values: Numbers) -> tuple[Numbers, Numbers]:
    """For each number its place among the different ones, and those; unsorted, so without sorting."""
    encoded = as_array(values).dictionary_encode()
    return numbers(encoded.indices), numbers(encoded.dictionary)


def as_array(values: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> pa.Array:
    """The same in Arrow."""
    content = np.ascontiguousarray(values, dtype=np.int64)
    return pa.Array.from_buffers(pa.int64(), len(content), [None, pa.py_buffer(content)])


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


_NO_STREAMS = pa.schema(
    [("stream", pa.int64()), ("epoch", pa.int32()), ("client_service", pa.string()), ("server_service", pa.string()),
     ("server", pa.string()), ("server_port", pa.int32()), ("messages", pa.int64())]
).empty_table()  # fmt: skip
