"""Followed messages: the legs of single journeys, read from `hops`, and the way that decided when each arrived.

Called by `bb trace`, `bb explain` and the report. Reads Parquet with pyarrow; small answers out of large tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from battlebrokers.analysis.columns import int64_array, numbers_of, text_scalar
from battlebrokers.analysis.stored import whole
from battlebrokers.errors import InputError
from battlebrokers.tables import HOPS, JOURNEYS
from battlebrokers.tables.run_folder import RunFolder

OUTSIDE = "outside"


@dataclass(frozen=True, slots=True)
class Leg:
    """One leg of a followed message between two services."""

    number: int
    parent: int | None
    sender: str
    receiver: str
    protocol: str
    kind: str
    name: str
    sent_ns: int
    received_ns: int
    inside_ns: int | None


@dataclass(frozen=True, slots=True)
class Trace:
    """One message with all its legs, in the order they began."""

    id: int
    device: int | None
    seq: int | None
    confidence: float
    legs: tuple[Leg, ...]

    @property
    def began_ns(self) -> int:
        """Its first byte on any wire."""
        return self.legs[0].sent_ns

    @property
    def took_ns(self) -> int:
        """From its first byte on any wire to its last."""
        return max(leg.received_ns for leg in self.legs) - self.began_ns

    @property
    def title(self) -> str:
        """How a user names it."""
        return f"{self.device}:{self.seq}" if self.device is not None else f"{self.id & 0xFFFFFFFFFFFFFFFF:016x}"

    def way(self) -> list[Leg]:
        """The legs that decided when it arrived last: back from the last arrival through the parents."""
        by_number = {leg.number: leg for leg in self.legs}
        leg: Leg | None = max(self.legs, key=lambda leg: leg.received_ns)
        found: list[Leg] = []
        while leg is not None and leg not in found:
            found.append(leg)
            leg = by_number.get(leg.parent) if leg.parent is not None else None
        return found[::-1]


@dataclass(frozen=True, slots=True)
class Lost:
    """Messages that never arrived."""

    total: int
    seen: int
    """Those of them that were seen on a wire."""
    traces: tuple[Trace, ...]
    """The first of these."""


def never_arrived(rows: pa.Table) -> pa.Array:
    """Of rows of `hops`: the messages that ended in a service that sends others on, and went nowhere else.

    Who sends nothing on is where messages are meant to end.
    """
    senders = pc.unique(rows["sender"])
    out = pc.equal(rows["receiver"], text_scalar(OUTSIDE))
    arrived = rows.filter(pc.or_(out, pc.invert(pc.is_in(rows["receiver"], senders))))
    return pc.unique(rows.filter(pc.invert(pc.is_in(rows["trace"], pc.unique(arrived["trace"]))))["trace"])


class Traces:
    """All followed messages of a run or of decoded captures."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        place = folder.table(HOPS)
        if not place.is_dir():
            raise InputError(
                f"{folder.path} has no followed messages",
                hint="Run with --capture, or look into captures with `bb pcap`.",
            )
        self._rows = whole(folder, HOPS)
        if self._rows.num_rows:
            trace, sent, received = (numbers_of(self._rows[name]) for name in ("trace", "sent_ns", "received_ns"))
            order = np.argsort(trace, kind="stable")
            self._ids: npt.NDArray[np.int64]
            self._ids, starts = np.unique(trace[order], return_index=True)
            ends_ns = np.maximum.reduceat(received[order], starts)
            self._took_ns: npt.NDArray[np.int64] = ends_ns - np.minimum.reduceat(sent[order], starts)
        else:
            self._ids = self._took_ns = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ids)

    def slowest(self, count: int) -> list[Trace]:
        """The messages that took longest, the slowest first."""
        order = np.lexsort((self._ids, -self._took_ns))[:count]
        return self.of(self._ids[order])

    def lost(self, count: int | None = None) -> Lost:
        """Messages that never reached whoever waited for them, as far as they got; at most `count` of them."""
        if not self._folder.table(JOURNEYS).is_dir():
            ids = never_arrived(self._rows).to_pylist()
            return Lost(len(ids), len(ids), tuple(self.of(ids[:count])))
        gone = whole(self._folder, JOURNEYS, ["device", "seq", "outcome"])
        gone = gone.filter(pc.equal(gone["outcome"], text_scalar("lost")))
        pairs = set(zip(gone["device"].to_pylist(), gone["seq"].to_pylist(), strict=True))
        wanted = self._rows.filter(pc.is_in(self._rows["seq"], gone["seq"].combine_chunks()))
        told = zip(*(wanted[name].to_pylist() for name in ("trace", "device", "seq")), strict=True)
        ids = list(dict.fromkeys(trace for trace, device, seq in told if (device, seq) in pairs))
        return Lost(len(pairs), len(ids), tuple(self.of(ids[:count])))

    def named(self, name: str) -> list[Trace]:
        """The message `device:seq`, or the one with that hexadecimal id."""
        device, colon, seq = name.partition(":")
        try:
            if colon:
                wanted = (int64_array([int(device)])[0], int64_array([int(seq)])[0])
                rows = pc.and_(pc.equal(self._rows["device"], wanted[0]), pc.equal(self._rows["seq"], wanted[1]))
            else:
                number = int(name, 16)
                number -= 1 << 64 if number >> 63 else 0
                rows = pc.equal(self._rows["trace"], int64_array([number])[0])
        except (ValueError, OverflowError, pa.ArrowInvalid):
            raise InputError(
                f"{name!r} names no message",
                hint="Say device:seq, for example 12:345, or an id as `--slowest` shows it.",
            ) from None
        return self.of(pc.unique(self._rows.filter(rows)["trace"]).to_pylist())

    def of(self, ids: Sequence[int] | npt.NDArray[np.int64]) -> list[Trace]:
        """These messages, in this order."""
        wanted = [int(number) for number in ids]
        rows = self._rows.filter(pc.is_in(self._rows["trace"], int64_array(wanted)))
        found = {trace.id: trace for trace in traces_of(rows.to_pylist())}
        return [found[number] for number in wanted if number in found]


def traces_of(rows: Iterable[dict[str, Any]]) -> list[Trace]:
    """Messages from their rows of `hops`."""
    legs: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        legs.setdefault(row["trace"], []).append(row)
    return [_trace(number, sorted(found, key=lambda row: row["leg"])) for number, found in legs.items()]


def _trace(number: int, rows: list[dict[str, Any]]) -> Trace:
    first = rows[0]
    names = ("parent", "sender", "receiver", "protocol", "kind", "name", "sent_ns", "received_ns", "inside_ns")
    legs = tuple(Leg(row["leg"], *(row[name] for name in names)) for row in rows)
    return Trace(number, first["device"], first["seq"], min(row["confidence"] for row in rows), legs)
