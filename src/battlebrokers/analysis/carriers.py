"""How many packets carried each protocol of a stream: those with payload while that protocol was spoken.

Read from `packets` in pieces, three columns of it. A packet of MQTT inside a WebSocket carries both.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow.compute as pc

from battlebrokers.analysis.columns import int64_array, numbers_of
from battlebrokers.analysis.stored import is_stored, pieces
from battlebrokers.tables import PACKETS
from battlebrokers.tables.run_folder import RunFolder

Key = tuple[int, int]
"""Stream and epoch."""
Spans = Mapping[tuple[Key, str], tuple[int, int]]
"""When each protocol was spoken in each stream: its first and last byte."""


def count_carriers(folder: RunFolder, spans: Spans) -> dict[tuple[Key, str], int]:
    """Packets with payload within each span."""
    counts = dict.fromkeys(spans, 0)
    if not spans or not is_stored(folder, PACKETS):
        return counts
    of_stream: dict[int, list[tuple[Key, str]]] = {}
    for place in spans:
        of_stream.setdefault(place[0][0], []).append(place)
    wanted = int64_array(of_stream)
    for piece in pieces(folder, PACKETS, ("stream", "captured_ns", "payload_bytes")):
        loaded = pc.greater(piece["payload_bytes"], int64_array([0])[0])
        mine = piece.filter(pc.and_(pc.is_in(piece["stream"], wanted), loaded))
        if not mine.num_rows:
            continue
        stream, at_ns = numbers_of(mine["stream"].drop_null()), numbers_of(mine["captured_ns"])
        order = np.lexsort((at_ns, stream))
        found, starts = np.unique(stream[order], return_index=True)
        for number, times in zip(found.tolist(), np.split(at_ns[order], starts[1:]), strict=True):
            for place in of_stream[number]:
                first_ns, last_ns = spans[place]
                after, before = np.searchsorted(times, last_ns, "right"), np.searchsorted(times, first_ns, "left")
                counts[place] += int(after - before)
    return counts
