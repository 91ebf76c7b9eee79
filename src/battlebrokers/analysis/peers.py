"""Who the two ends of a stream are, by name, as the pipeline names them; read from rows of `streams`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from battlebrokers.analysis.columns import numbers_of, text_scalar
from battlebrokers.analysis.stored import pieces
from battlebrokers.analysis.traces import OUTSIDE
from battlebrokers.tables import STREAMS
from battlebrokers.tables.run_folder import RunFolder

Ints = npt.NDArray[np.int64]

NAMED_BY = ("client_service", "server_service", "server", "server_port")
"""The columns of `streams` that names are made from."""


def client_names(rows: pa.Table) -> pa.ChunkedArray:
    """The service that opened each stream, or `outside`."""
    return pc.coalesce(rows["client_service"], text_scalar(OUTSIDE))


def server_names(rows: pa.Table) -> pa.ChunkedArray:
    """The service at the other end; one without a name is known by its address and port."""
    address = pc.binary_join_element_wise(rows["server"], pc.cast(rows["server_port"], pa.string()), text_scalar(":"))
    return pc.coalesce(rows["server_service"], address)


@dataclass(frozen=True, slots=True)
class Peers:
    """Both ends of every stream: numbers into `names`, in the order of `streams`."""

    names: tuple[str, ...]
    streams: Ints
    clients: Ints
    servers: Ints

    def pairs(self, rows: pa.Table, speaker: str) -> tuple[Ints, Ints]:
        """For each row of a known stream who spoke and who was spoken to; column `speaker`: `client` or `server`."""
        place = np.searchsorted(self.streams, numbers_of(rows["stream"]))
        place = np.minimum(place, len(self.streams) - 1)
        by_client = numbers_of(pc.equal(rows[speaker], text_scalar("client")).cast(pa.int8())).astype(bool)
        client, server = self.clients[place], self.servers[place]
        return np.where(by_client, client, server), np.where(by_client, server, client)


def read_peers(folder: RunFolder) -> Peers:
    """The ends of all streams; a stream whose ports were reused keeps its names."""
    numbers: dict[str, int] = {}
    parts: list[tuple[Ints, Ints, Ints]] = []
    for piece in pieces(folder, STREAMS, ("stream", *NAMED_BY)):
        ends = [_numbered(column, numbers) for column in (client_names(piece), server_names(piece))]
        parts.append((numbers_of(piece["stream"]), ends[0], ends[1]))
    if not parts:
        return Peers((), *(np.empty(0, np.int64),) * 3)
    streams, clients, servers = (np.concatenate([part[place] for part in parts]) for place in range(3))
    kept, first = np.unique(streams, return_index=True)
    return Peers(tuple(numbers), kept, clients[first], servers[first])


def _numbered(column: Any, numbers: dict[str, int]) -> Ints:
    """Each name's number; new names get the next one."""
    if not len(column):
        return np.empty(0, np.int64)
    encoded = column.combine_chunks().dictionary_encode()
    found = np.array([_number(name, numbers) for name in encoded.dictionary.to_pylist()], dtype=np.int64)
    chosen: Ints = found[numbers_of(encoded.indices)]
    return chosen


def _number(name: str, numbers: dict[str, int]) -> int:
    return numbers.setdefault(name, len(numbers))
