"""How followed messages went from service to service, added up per kind: how many, and how long the sender kept them.

Read from `hops`; this is what nobody has to read message by message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from battlebrokers.analysis.columns import group_codes, int64_array, numbers_of
from battlebrokers.analysis.stored import pieces, whole
from battlebrokers.analysis.traces import never_arrived
from battlebrokers.tables import HOPS
from battlebrokers.tables.run_folder import RunFolder

_MOST = 60
_Key = tuple[Any, ...]


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
        groups, found = group_codes(piece, keys)
        for key, n in zip(found, np.bincount(groups, minlength=len(found)).tolist(), strict=True):
            counts[key] = counts.get(key, 0) + n
        kept = piece.filter(piece["inside_ns"].is_valid())
        groups, found = group_codes(kept, keys)
        for number, key in enumerate(found):
            inside.setdefault(key, []).append(numbers_of(kept["inside_ns"])[groups == number])
    order = sorted(counts, key=lambda key: (-counts[key], key))[:_MOST]
    return [_passage(key, counts[key], inside.get(key, [])) for key in order]


def _passage(key: _Key, n: int, inside: Sequence[npt.NDArray[np.int64]]) -> Passage:
    sender, receiver, protocol, kind = key
    if not inside:
        return Passage(sender, receiver, protocol, kind, n, None, None)
    low, high = np.quantile(np.concatenate(inside), [0.5, 0.95], method="inverted_cdf")
    return Passage(sender, receiver, protocol, kind, n, int(low), int(high))


def read_last_seen(folder: RunFolder) -> list[LastSeen]:
    """Of the messages that never arrived: which service had them last."""
    rows = whole(folder, HOPS, ["trace", "sender", "receiver", "received_ns"])
    if not rows.num_rows:
        return []
    stayed = rows.filter(pc.is_in(rows["trace"], never_arrived(rows)))
    order = pc.sort_indices(stayed, [("trace", "ascending"), ("received_ns", "ascending")])
    ends = stayed.select(["trace", "receiver"]).take(order)
    trace = numbers_of(ends["trace"])
    last = np.append(trace[1:] != trace[:-1], True)[: len(trace)]
    counts = Counter(ends["receiver"].take(int64_array(np.flatnonzero(last))).to_pylist())
    return [LastSeen(service, n) for service, n in sorted(counts.items(), key=lambda one: (-one[1], one[0]))]
