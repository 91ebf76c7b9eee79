"""How many packets carried each protocol of a stream: those with payload while that protocol was spoken.

Read from `packets` in pieces, three columns of it. A packet of MQTT inside a WebSocket carries both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from battlebrokers.analysis.columns import int64_array, numbers_of
from battlebrokers.analysis.stored import is_stored, pieces
from battlebrokers.tables import PACKETS
from battlebrokers.tables.run_folder import RunFolder

Key = tuple[int, int]
"""Stream and epoch."""
Spans = Mapping[tuple[Key, str], tuple[int, int]]
"""When each protocol was spoken in each stream: its first and last byte."""

_NOWHERE: Mapping[tuple[int, int], list[tuple[Key, str]]] = {}


def count_carriers(folder: RunFolder, spans: Spans) -> dict[tuple[Key, str], int]:
    """Packets with payload within each span."""
    counts = dict.fromkeys(spans, 0)
    if not spans or not is_stored(folder, PACKETS):
        return counts
    # Mostly one protocol is spoken in a stream, as long as any is: equal spans are looked at once.
    of_stream: dict[int, dict[tuple[int, int], list[tuple[Key, str]]]] = {}
    for place, span in spans.items():
        of_stream.setdefault(place[0][0], {}).setdefault(span, []).append(place)
    for piece in pieces(folder, PACKETS, ("stream", "captured_ns", "payload_bytes")):
        loaded = pc.greater(piece["payload_bytes"], int64_array([0])[0])
        mine = piece.filter(pc.and_(pc.is_valid(piece["stream"]), loaded))
        for number, times in _times_of(mine):
            for (first_ns, last_ns), places in of_stream.get(number, _NOWHERE).items():
                within = int(times.searchsorted(last_ns, "right") - times.searchsorted(first_ns, "left"))
                for place in places:
                    counts[place] += within
    return counts


def _times_of(packets: pa.Table) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """The streams, each with the times of its packets in order."""
    if not packets.num_rows:
        return
    encoded = packets["stream"].combine_chunks().dictionary_encode()
    streams = encoded.dictionary.to_pylist()
    place = numbers_of(encoded.indices)
    # Numbers of two octets are sorted by their digits, in a fraction of the time.
    order = np.argsort(place.astype(np.uint16) if len(streams) <= 1 << 16 else place, kind="stable")
    at_ns = numbers_of(packets["captured_ns"])[order]
    start = 0
    for stream, end in zip(streams, np.cumsum(np.bincount(place)).tolist(), strict=True):
        yield stream, np.sort(at_ns[start:end], kind="stable")
        start = end
