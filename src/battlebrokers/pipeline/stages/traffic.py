"""Messages between named services → `traffic`: bytes and messages per second, peers and protocol, added up anywhere."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from battlebrokers.clock import SECOND_NS
from battlebrokers.pipeline.stages.peers import Numbers, Peers, as_array, numbers
from battlebrokers.tables import TRAFFIC

_PARTS = ("other", "request", "response")
_KEYS = ["second", "sender", "receiver", "protocol", "part"]
_SUMS = ["messages", "bytes"]
_MOST_WAITING = 64
"""Tables of sums that wait to be added up."""


class TrafficSum:
    """Sums of a task; small whatever the number of messages."""

    def __init__(self) -> None:
        self._added: list[pa.Table] = []

    def add(
        self, batch: pa.RecordBatch, rows: Numbers, by_client: npt.NDArray[np.bool_], part: Numbers,
        peers: Peers,
    ) -> None:  # fmt: skip
        """Messages in these rows of the peers; `part` says 0 other, 1 request, 2 response."""
        counted = peers.counted[rows]
        side = 2 * rows + by_client
        table = pa.table(
            {
                "second": as_array(numbers(batch["first_ns"]) // SECOND_NS),
                "side": as_array(side),
                "protocol": batch["protocol"],
                "place": as_array(part),
                "bytes": batch["bytes"],
            }
        )
        if not counted.all():
            table = table.filter(pa.array(counted))
        found = table.group_by(["second", "side", "protocol", "place"]).aggregate([("bytes", "sum"), ([], "count_all")])
        side = numbers(found["side"])
        sender, receiver = peers.names(side >> 1, side & 1 == 1)
        words = pa.array(_PARTS, pa.string()).take(found["place"].combine_chunks())
        named = [found["second"], sender, receiver, found["protocol"], words, found["count_all"], found["bytes_sum"]]
        self._added.append(_summed(pa.table(named, names=[*_KEYS, *_SUMS])))

    def merge(self, other: TrafficSum) -> None:
        """That of another task."""
        self._added += other._added
        if len(self._added) > _MOST_WAITING:
            self._added = [_summed(pa.concat_tables(self._added))]

    def table(self) -> pa.Table:
        """The rows of `traffic`, in the order of time."""
        schema = TRAFFIC.arrow_schema()
        if not self._added:
            return schema.empty_table()
        whole = _summed(pa.concat_tables(self._added)).sort_by([(name, "ascending") for name in _KEYS])
        return whole.select(schema.names).cast(schema)

    def between(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Messages and bytes from each peer to each other."""
        if not self._added:
            return {}
        whole = pa.concat_tables(self._added).group_by(["sender", "receiver"])
        rows = whole.aggregate([(name, "sum") for name in _SUMS]).to_pylist()
        return {(row["sender"], row["receiver"]): (row["messages_sum"], row["bytes_sum"]) for row in rows}


def _summed(table: pa.Table) -> pa.Table:
    summed = table.group_by(_KEYS).aggregate([(name, "sum") for name in _SUMS])
    return summed.select([*_KEYS, *(f"{name}_sum" for name in _SUMS)]).rename_columns([*_KEYS, *_SUMS])
