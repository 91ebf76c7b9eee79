"""Stage: messages seen on several wires → `hops`, the legs of one message from service to service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from battlebrokers.pipeline.stages.peers import OUTSIDE, Numbers, as_array, codes, numbers
from battlebrokers.pipeline.stages.sums import Sums
from battlebrokers.pipeline.stages.table_files import TableFile
from battlebrokers.tables import HOPS

BY = ("header", "id", "fingerprint")
"""How a message may be followed; `by` in a sighting is a place here."""
BY_HEADER, BY_ID, BY_FINGERPRINT = range(len(BY))
_CONFIDENCE = (1.0, 0.98, 0.95)
_NUMBER_BITS = 63
SIGHTING = pa.schema(
    [
        *(HOPS.arrow_schema().field(name) for name in (
            "trace", "device", "seq", "sender", "receiver", "protocol", "kind", "name", "stream", "epoch", "number",
            "sent_ns", "received_ns",
        )),
        pa.field("by", pa.int8(), nullable=False),
        pa.field("content", pa.int64(), nullable=False),
    ]
)  # fmt: skip
"""A message on one wire; `content` is a hash of what it carries."""


@dataclass(frozen=True, slots=True)
class HopStage:
    """The task that follows one share of the messages."""

    folder: str

    def __call__(self, task: int, moved: Iterable[tuple[int, bytes | Sums]]) -> Iterator[tuple[int, Sums]]:
        """Write the legs and add them up, with the sums of the stage before; all for one last task."""
        whole = Sums()
        seen: list[pa.Table] = []
        for _, value in moved:
            if isinstance(value, bytes):
                seen.append(pa.ipc.open_stream(value).read_all())
            else:
                whole.merge(value)
        legs = hops(pa.concat_tables(seen) if seen else SIGHTING.empty_table())
        with TableFile(self.folder, HOPS, task) as file:
            for rows in legs.to_batches():
                file.write(rows)
        sums = Sums()
        sums.passages.add(legs)
        sums.examples.add(legs)
        sums.kinds.add_followed(legs)
        sums.cut()
        whole.merge(sums)
        yield 0, whole


def hops(seen: pa.Table) -> pa.Table:
    """The legs of all messages; `seen` holds all sightings of each."""
    trace, sent = numbers(seen["trace"]), numbers(seen["sent_ns"])
    order = _by_message_and_time(trace, sent)
    if order is None:
        order = np.lexsort((numbers(seen["number"]), numbers(seen["stream"]), sent, trace))
    seen = seen.take(as_array(order))
    kept = _unambiguous(seen)
    if not kept.all():
        seen = seen.filter(_mask(kept))
    trace = numbers(seen["trace"])
    first = _starts(trace)
    leg = np.arange(len(trace)) - first + 1
    parent, came_ns = _parents(seen, first)
    orphan = parent < 0
    columns = {name: seen[name] for name in SIGHTING.names if name not in {"by", "content"}}
    by = seen["by"]
    columns |= {
        "leg": _column(leg, pa.int32()),
        "parent": _column(np.where(orphan, 0, parent), pa.int32(), orphan),
        "inside_ns": _column(np.where(orphan, 0, numbers(seen["sent_ns"]) - came_ns), pa.int64(), orphan),
        "matched_by": pa.array(BY, pa.string()).take(by),
        "confidence": pa.array(_CONFIDENCE, pa.float64()).take(by),
    }
    schema = HOPS.arrow_schema()
    legs = pa.table([columns[name] for name in schema.names], schema=schema)
    # The same words from two origins are two messages, however many connections they take; ours says which it is.
    origins = np.bincount(first[orphan], minlength=len(first))[first]
    return legs.filter(_mask(_ours(numbers(by), first) | (origins == 1)))


def _unambiguous(seen: pa.Table) -> npt.NDArray[np.bool_]:
    """What names two messages on one wire names none: a payload said twice, an identifier with different payloads.

    Our header does, even when it is repeated.
    """
    trace = numbers(seen["trace"])
    by = numbers(seen["by"])
    content = numbers(seen["content"])
    first = _starts(trace)
    size = np.bincount(first, minlength=len(trace))[first]
    # Sightings of one message on the same wire and from the same side lie together in this order.
    wire = (trace, numbers(seen["stream"]), numbers(seen["epoch"]), codes([seen["sender"]])[0])
    # Two of them do so anyway.
    several = np.flatnonzero(size > 2)
    sorted_several = np.lexsort((content[several], *(column[several] for column in wire[::-1])))
    order = np.concatenate((np.flatnonzero(size <= 2), several[sorted_several]))
    same = np.ones(max(0, len(trace) - 1), dtype=np.bool_)
    for column in wire:
        sorted_ = column[order]
        same &= sorted_[1:] == sorted_[:-1]
    repeated = np.zeros(len(trace), dtype=np.bool_)
    same &= (by[order][1:] != BY_ID) | (content[order][1:] != content[order][:-1])
    repeated[first[order[1:][same]]] = True
    kept: npt.NDArray[np.bool_] = _ours(by, first) | ~repeated[first] & (size > 1)
    return kept


def _ours(by: Numbers, first: Numbers) -> npt.NDArray[np.bool_]:
    """Which sightings are of messages that have our header on any wire: those are never mistaken for others."""
    header = np.zeros(len(first), dtype=np.bool_)
    header[first[by == BY_HEADER]] = True
    return header[first]


def _parents(seen: pa.Table, first: Numbers) -> tuple[Numbers, Numbers]:
    """The leg that brought a message to its sender: the last one that ended there before; -1 if there is none."""
    count = len(first)
    peer, names = codes([pa.chunked_array([*seen["sender"].chunks, *seen["receiver"].chunks], pa.string())])
    sender, receiver = peer[:count], peer[count:]
    outside = names.index((OUTSIDE,)) if (OUTSIDE,) in names else -1
    sent, received = numbers(seen["sent_ns"]), numbers(seen["received_ns"])
    # All comings and goings of a message at a peer in the order of time, at one moment in the order they have here;
    # whoever goes looks back for who came.
    where = np.concatenate((receiver, sender))
    message = np.concatenate((first, first))
    going = np.repeat((False, True), count)
    times = np.concatenate((received, sent))
    order = _packed_order(message, where, times - times.min()) if count else np.empty(0, dtype=np.int64)
    if order is None:
        order = np.lexsort((times, where, message))
    place = np.arange(2 * count)
    came = np.maximum.accumulate(np.where(going[order], -1, place)) if count else place
    leg_of = np.concatenate((np.arange(count), np.arange(count)))[order]
    at_going = np.flatnonzero(going[order] & (came >= 0))
    source = came[at_going]
    alike = (message[order][at_going] == message[order][source]) & (where[order][at_going] == where[order][source])
    goer, comer = leg_of[at_going], leg_of[source]
    alike &= (goer != comer) & (where[order][at_going] != outside)
    parent, came_ns = np.full(count, -1, dtype=np.int64), np.zeros(count, dtype=np.int64)
    parent[goer[alike]] = (comer - first[comer] + 1)[alike]
    came_ns[goer[alike]] = received[comer[alike]]
    return parent, came_ns


def _by_message_and_time(trace: Numbers, sent: Numbers) -> Numbers | None:
    """The order by trace and time; None if those alone do not tell it, or do not fit into one number."""
    if not len(trace):
        return None
    by_trace = np.argsort(trace)
    message, sent = _starts(trace[by_trace]), sent[by_trace] - sent.min()
    order = _packed_order(message, sent)
    if order is None:
        return None
    same = (message[order][1:] == message[order][:-1]) & (sent[order][1:] == sent[order][:-1])
    return None if same.any() else by_trace[order]


def _packed_order(*columns: Numbers) -> Numbers | None:
    """The stable order by these columns, packed into one; None if they do not fit.

    To sort one column that mostly is in order already takes a fraction of the time of sorting several.
    """
    bits = [int(column.max()).bit_length() for column in columns]
    # Times far apart may be wrong enough for a difference to be negative.
    if sum(bits) > _NUMBER_BITS or any(column.min() < 0 for column in columns):
        return None
    packed = columns[0]
    for column, width in zip(columns[1:], bits[1:], strict=True):
        packed = packed << width | column
    return np.argsort(packed, kind="stable")


def _starts(values: Numbers) -> Numbers:
    """For each row of a sorted column where the run of its value begins."""
    new = np.ones(len(values), dtype=np.bool_)
    new[1:] = values[1:] != values[:-1]
    return np.flatnonzero(new)[np.cumsum(new) - 1] if len(values) else np.empty(0, dtype=np.int64)


def _column(values: Numbers, kind: pa.DataType, absent: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    return pa.array(values, kind, mask=absent)


def _mask(values: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.array(values)
