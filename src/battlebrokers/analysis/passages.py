"""How followed messages went from service to service, added up per kind: how many, and how long the sender kept them.

Read from `hops`; this is what nobody has to read message by message.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from battlebrokers.analysis.stored import pieces, whole
from battlebrokers.analysis.traces import OUTSIDE
from battlebrokers.tables import HOPS
from battlebrokers.tables.run_folder import RunFolder

_MOST = 60
_Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Passage:
    """One kind of message on its way between two services."""

    sender: str
    receiver: str
    protocol: str
    kind: str
    n: int
    inside_p50_ns: int | None
    """How long the sender kept half of them at most; None where they were first seen."""
    inside_p95_ns: int | None


@dataclass(frozen=True, slots=True)
class LastSeen:
    """Where followed messages ended that never left again."""

    service: str
    n: int


def read_passages(folder: RunFolder) -> list[Passage]:
    """The most frequent kinds first."""
    keys = ["sender", "receiver", "protocol", "kind"]
    counts: dict[_Key, int] = {}
    inside: dict[_Key, list[npt.NDArray[np.int64]]] = {}
    for piece in pieces(folder, HOPS, [*keys, "inside_ns"]):
        for row in piece.group_by(keys).aggregate([([], "count_all"), ("inside_ns", "list")]).to_pylist():
            key = (row["sender"], row["receiver"], row["protocol"], row["kind"])
            counts[key] = counts.get(key, 0) + row["count_all"]
            known = [value for value in row["inside_ns_list"] if value is not None]
            inside.setdefault(key, []).append(np.array(known, dtype=np.int64))
    order = sorted(counts, key=lambda key: (-counts[key], key))[:_MOST]
    return [Passage(*key, counts[key], *_levels(np.concatenate(inside[key]))) for key in order]


def _levels(values: npt.NDArray[np.int64]) -> tuple[int | None, int | None]:
    if not len(values):
        return None, None
    low, high = np.quantile(values, [0.5, 0.95], method="inverted_cdf")
    return int(low), int(high)


def read_last_seen(folder: RunFolder) -> list[LastSeen]:
    """Of the messages that came from outside and never went out again: which service had them last."""
    rows = whole(folder, HOPS, ["trace", "sender", "receiver", "received_ns"])
    if not rows.num_rows:
        return []
    out = pc.unique(rows.filter(pc.equal(rows["receiver"], OUTSIDE))["trace"])
    stayed = rows.filter(pc.invert(pc.is_in(rows["trace"], out)))
    ends = stayed.sort_by([("trace", "ascending"), ("received_ns", "ascending")])
    last = ends.group_by("trace", use_threads=False).aggregate([("receiver", "last")])
    counted = last.group_by("receiver_last").aggregate([([], "count_all")]).to_pylist()
    found = [LastSeen(row["receiver_last"], row["count_all"]) for row in counted]
    return sorted(found, key=lambda one: (-one.n, one.service))
