"""Followed messages: the legs of single journeys, read from `hops`, and the way that decided when each arrived.

Called by `bb trace`, `bb explain` and the report. Reads Parquet with pyarrow; small answers out of large tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from battlebrokers.analysis.columns import int64_array, numbers_of, text_scalar
from battlebrokers.analysis.stored import is_run, is_stored, pieces, rows_with
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


class Traces:
    """All followed messages of a run or of decoded captures; read anew for each question, a piece at a time."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        if not is_stored(folder, HOPS):
            raise InputError(
                f"{folder.path} has no followed messages",
                hint="Run with --capture, or look into captures with `bb pcap`.",
            )

    def __len__(self) -> int:
        return sum(len(message.ids) for message in self._messages())

    def slowest(self, count: int) -> list[Trace]:
        """The messages that took longest, the slowest first."""
        ids, took_ns = _NONE, _NONE
        for some in self._messages(("sent_ns", "received_ns")):
            sent, received = (numbers_of(some.rows[name]) for name in ("sent_ns", "received_ns"))
            took = np.maximum.reduceat(received, some.starts) - np.minimum.reduceat(sent, some.starts)
            ids, took_ns = np.concatenate((ids, some.ids)), np.concatenate((took_ns, took))
            order = np.lexsort((ids, -took_ns))[:count]
            ids, took_ns = ids[order], took_ns[order]
        return self.of(ids)

    def lost(self, count: int | None = None) -> Lost:
        """Messages that never reached whoever waited for them, as far as they got; at most `count` of them."""
        total: int | None = None
        if is_run(self._folder):
            gone = self._gone()
            total, found = len(gone), self._seen(gone)
        else:
            found = self._stuck()
        seen, ids = 0, []
        for number in found:
            seen += 1
            if count is None or seen <= count:
                ids.append(number)
        return Lost(seen if total is None else total, seen, tuple(self.of(ids)))

    def _stuck(self) -> Iterator[int]:
        """Messages that ended in a service that sends others on, and went nowhere else.

        Who sends nothing on is where messages are meant to end.
        """
        senders = {name for piece in pieces(self._folder, HOPS, ["sender"]) for name in _words(piece["sender"])}
        for some in self._messages(("receiver",)):
            receivers = some.rows["receiver"]
            ends = {name for name in _words(receivers) if name == OUTSIDE or name not in senders}
            reached = np.zeros(len(receivers), dtype=np.int64)
            for name in ends:
                reached += numbers_of(pc.equal(receivers, text_scalar(name)).cast(pa.int64()))
            yield from some.ids[np.add.reduceat(reached, some.starts) == 0].tolist()

    def _gone(self) -> npt.NDArray[np.int64]:
        """Those a run's listeners waited for in vain, sorted; see `_keys`."""
        found = (
            _keys(piece.filter(pc.equal(piece["outcome"], text_scalar("lost"))))
            for piece in pieces(self._folder, JOURNEYS, ["device", "seq", "outcome"])
        )
        return np.unique(np.concatenate([_NONE, *found]))

    def _seen(self, gone: npt.NDArray[np.int64]) -> Iterator[int]:
        """Of these messages those that were on a wire."""
        for some in self._messages(("device", "seq")):
            ours = some.rows.filter(pc.is_valid(some.rows["device"]))
            mine = numbers_of(ours["trace"])[np.isin(_keys(ours), gone)]
            yield from dict.fromkeys(mine.tolist())

    def named(self, name: str) -> list[Trace]:
        """The message `device:seq`, or the one with that hexadecimal id."""
        device, colon, seq = name.partition(":")
        try:
            if colon:
                wanted = (int64_array([int(device)])[0], int64_array([int(seq)])[0])
            else:
                number = int(name, 16)
                number -= 1 << 64 if number >> 63 else 0
                int64_array([number])
        except (ValueError, OverflowError, pa.ArrowInvalid):
            raise InputError(
                f"{name!r} names no message",
                hint="Say device:seq, for example 12:345, or an id as `--slowest` shows it.",
            ) from None
        if not colon:
            return self.of([number])
        found: dict[int, None] = {}
        for piece in pieces(self._folder, HOPS, ["trace", "device", "seq"]):
            rows = pc.and_(pc.equal(piece["device"], wanted[0]), pc.equal(piece["seq"], wanted[1]))
            found |= dict.fromkeys(piece.filter(rows)["trace"].to_pylist())
        return self.of(list(found))

    def of(self, ids: Sequence[int] | npt.NDArray[np.int64]) -> list[Trace]:
        """These messages, in this order."""
        wanted = [int(number) for number in ids]
        if not wanted:
            return []
        rows = [row for some in rows_with(self._folder, HOPS, "trace", int64_array(wanted)) for row in some.to_pylist()]
        found = {trace.id: trace for trace in traces_of(rows)}
        return [found[number] for number in wanted if number in found]

    def _messages(self, columns: Sequence[str] = ()) -> Iterator[_Messages]:
        """All messages with these columns of their legs, which lie together: only a piece may cut them apart."""
        waiting: pa.Table | None = None
        for piece in pieces(self._folder, HOPS, ["trace", *columns]):
            if not piece.num_rows:
                continue
            rows = piece if waiting is None else pa.concat_tables([waiting, piece])
            trace = numbers_of(rows["trace"])
            others = np.flatnonzero(trace != trace[-1])
            end = int(others[-1]) + 1 if len(others) else 0
            if end:
                yield _Messages.of(rows.slice(0, end))
            waiting = rows.slice(end)
        if waiting is not None:
            yield _Messages.of(waiting)


@dataclass(frozen=True, slots=True)
class _Messages:
    """Legs of whole messages."""

    rows: pa.Table
    ids: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    """Where each message's legs begin."""

    @classmethod
    def of(cls, rows: pa.Table) -> _Messages:
        trace = numbers_of(rows["trace"])
        starts = np.flatnonzero(np.append(True, trace[1:] != trace[:-1]))
        return cls(rows, trace[starts], starts)


_NONE: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
_SEQ_BITS = 32


def _keys(rows: pa.Table) -> npt.NDArray[np.int64]:
    """One number for device and sequence number, which has 32 bits in our header."""
    device, seq = (numbers_of(rows[name]).astype(np.int64) for name in ("device", "seq"))
    return device << _SEQ_BITS | seq & ((1 << _SEQ_BITS) - 1)


def _words(column: pa.ChunkedArray) -> list[str]:
    words: list[str] = pc.unique(column).to_pylist()
    return words


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
