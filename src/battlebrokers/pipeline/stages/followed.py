"""Stage: legs → `followed`, a row for each message: where it was seen first and last, and whether it arrived.

Runs when all legs are written: only then is it known who sends anything on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from battlebrokers.pipeline.stages.peers import OUTSIDE, as_array, numbers
from battlebrokers.pipeline.stages.table_files import TableFile, read_file
from battlebrokers.tables import FOLLOWED

_LEG = ["trace", "device", "seq", "sender", "receiver", "sent_ns", "received_ns", "matched_by", "confidence"]


@dataclass(frozen=True, slots=True)
class FollowedStage:
    """The task that tells the messages whose legs some tasks wrote."""

    hops: str
    folder: str
    senders: Collection[str]
    """Whoever sends anything on; who does not is where messages are meant to end."""

    def __call__(self, tasks: Iterable[int]) -> Iterator[None]:
        """Read, add up, write: a bounded number of legs at a time."""
        for task in tasks:
            with TableFile(self.folder, FOLLOWED, task) as file:
                for legs in whole_messages(read_file(self.hops, task, _LEG)):
                    for rows in followed(legs, self.senders).to_batches():
                        file.write(rows)
        yield from ()


def whole_messages(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The same rows, cut between messages: all legs of one lie together."""
    waiting: pa.Table | None = None
    for batch in batches:
        piece = pa.Table.from_batches([batch])
        piece = piece if waiting is None else pa.concat_tables([waiting, piece])
        trace = numbers(piece["trace"])
        others = np.flatnonzero(trace != trace[-1])
        end = int(others[-1]) + 1 if len(others) else 0
        if end:
            yield piece.slice(0, end)
        waiting = piece.slice(end)
    if waiting is not None and waiting.num_rows:
        yield waiting


def followed(legs: pa.Table, senders: Collection[str]) -> pa.Table:
    """One row for each message; its legs in the order they began."""
    schema = FOLLOWED.arrow_schema()
    if not legs.num_rows:
        return schema.empty_table()
    legs = legs.combine_chunks()
    trace, sent, received = (numbers(legs[name]) for name in ("trace", "sent_ns", "received_ns"))
    starts = np.flatnonzero(np.append(True, trace[1:] != trace[:-1]))
    sizes = np.diff(np.append(starts, len(trace)))
    last_ns = np.maximum.reduceat(received, starts)
    message = np.repeat(np.arange(len(starts)), sizes)
    last = np.zeros(len(starts), dtype=np.int64)
    latest = np.flatnonzero(received == last_ns[message])
    last[message[latest]] = latest
    ends = pa.array(
        [name for name in pc.unique(legs["receiver"]).to_pylist() if name == OUTSIDE or name not in senders]
    )
    reached = pc.is_in(legs["receiver"], value_set=ends.cast(pa.string())).to_numpy().astype(np.int64)
    confidence = legs["confidence"].to_numpy()
    least = np.lexsort((confidence, message))[starts]
    columns = {
        "trace": as_array(trace[starts]),
        "device": legs["device"].take(as_array(starts)),
        "seq": legs["seq"].take(as_array(starts)),
        "legs": pa.array(sizes, pa.int32()),
        "first_ns": as_array(np.minimum.reduceat(sent, starts)),
        "last_ns": as_array(last_ns),
        "first_seen": legs["sender"].take(as_array(starts)),
        "last_seen": legs["receiver"].take(as_array(last)),
        "arrived": pa.array(np.add.reduceat(reached, starts) > 0),
        "matched_by": legs["matched_by"].take(as_array(least)),
        "confidence": pa.array(confidence[least]),
    }
    return pa.table([columns[name] for name in schema.names], schema=schema)
