"""Conversations: the busiest streams with what was asked and answered in them, and all streams added up.

Read from `streams`, `messages` and `exchanges` in pieces; only the busiest streams are kept in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from battlebrokers.analysis.carriers import Key, Spans, count_carriers
from battlebrokers.analysis.columns import group_codes, int64_array, numbers_of, text_scalar
from battlebrokers.analysis.peers import client_names, server_names
from battlebrokers.analysis.stored import pieces
from battlebrokers.tables import EXCHANGES, MESSAGES, STREAMS
from battlebrokers.tables.run_folder import RunFolder

UNKNOWN = "unknown"
"""The protocol of what no dissector recognised."""
_MOST = 200
_MOST_OF_A_SERVICE = 100

_ANY = ""
"""Stands for whatever protocol."""
_NEVER_NS = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Questions:
    """What one side of a conversation asked."""

    asked: int = 0
    answered: int = 0
    """Uncertain answers included."""
    failed: int = 0
    uncertain: int = 0

    @property
    def pending(self) -> int:
        """Those without an answer until the capture ended."""
        return self.asked - self.answered


@dataclass(frozen=True, slots=True)
class Conversation:
    """One stream: a row of `streams`, and what was said in it."""

    client: str
    """Service, or `outside`."""
    server: str
    """Service, or address and port."""
    row: dict[str, Any]
    messages: dict[str, int]
    """By protocol, the most frequent first."""
    packets: dict[str, int]
    """Packets that carried each protocol."""
    bare_packets: int
    """Packets that carried none of them: acknowledgements, opening and closing, what could not be read."""
    from_client: Questions
    from_server: Questions

    @property
    def bytes(self) -> int:
        """Payload, both ways."""
        return int(self.row["client_bytes"] + self.row["server_bytes"])

    @property
    def protocols(self) -> str:
        """What was spoken, in words."""
        return ", ".join(self.messages) or self.row["protocol"] or f"{self.row['transport']}, {UNKNOWN}"


@dataclass(slots=True)
class ProtocolTotal:
    """All streams of one protocol, added up."""

    protocol: str
    streams: int = 0
    packets: int = 0
    bytes: int = 0
    malformed: int = 0
    undecoded_bytes: int = 0
    gap_bytes: int = 0
    retransmissions: int = 0


@dataclass(frozen=True, slots=True)
class Conversations:
    """The busiest of all, the busiest of each service, and the sums."""

    busiest: tuple[Conversation, ...]
    of_service: dict[str, tuple[Conversation, ...]]
    count_of_service: dict[str, int]
    count: int
    totals: tuple[ProtocolTotal, ...]
    """The protocol with most packets first."""
    captured_ns: tuple[int, int] | None
    """First and last packet of any stream."""


@dataclass(slots=True)
class _Kept:
    """The streams worth keeping, so far."""

    most: int
    rows: pa.Table | None = None
    count: int = 0

    def add(self, piece: pa.Table) -> None:
        self.count += piece.num_rows
        rows = piece if self.rows is None else pa.concat_tables([self.rows, piece])
        order = [("busy", "descending"), ("first_ns", "ascending"), ("stream", "ascending"), ("epoch", "ascending")]
        self.rows = rows.take(pc.sort_indices(rows, order).slice(0, self.most)).combine_chunks()

    def told(self) -> list[dict[str, Any]]:
        return self.rows.to_pylist() if self.rows is not None else []


@dataclass(slots=True)
class _Sums:
    totals: dict[str, ProtocolTotal] = field(default_factory=dict)
    first_ns: int | None = None
    last_ns: int | None = None

    def add(self, piece: pa.Table) -> None:
        names = ("packets", "busy", "malformed", "undecoded_bytes", "gap_bytes", "retransmissions")
        for protocol in pc.unique(piece["spoken"]).to_pylist():
            rows = piece.filter(pc.equal(piece["spoken"], text_scalar(protocol)))
            total = self.totals.setdefault(protocol, ProtocolTotal(protocol))
            total.streams += rows.num_rows
            for name in names:
                mine = "bytes" if name == "busy" else name
                setattr(total, mine, getattr(total, mine) + (pc.sum(rows[name]).as_py() or 0))
        if piece.num_rows:
            low, high = pc.min(piece["first_ns"]).as_py(), pc.max(piece["last_ns"]).as_py()
            self.first_ns = low if self.first_ns is None else min(self.first_ns, low)
            self.last_ns = high if self.last_ns is None else max(self.last_ns, high)


def read_conversations(folder: RunFolder, services: Iterable[str]) -> Conversations:
    """Read the streams; `services` are those whose own conversations are wanted."""
    busiest, sums = _Kept(_MOST), _Sums()
    own = {service: _Kept(_MOST_OF_A_SERVICE) for service in services}
    for raw in pieces(folder, STREAMS):
        piece = _named(raw)
        sums.add(piece)
        busiest.add(piece)
        for service, kept in own.items():
            name = text_scalar(service)
            mine = pc.or_(pc.equal(piece["client_name"], name), pc.equal(piece["server_name"], name))
            kept.add(piece.filter(mine))
    wanted = {_key(row) for kept in (busiest, *own.values()) for row in kept.told()}
    said, spans = _said(folder, wanted)
    carried, asked = count_carriers(folder, spans), _asked(folder, wanted)

    def tell(kept: _Kept) -> tuple[Conversation, ...]:
        return tuple(_conversation(row, said, carried, asked) for row in kept.told())

    totals = sorted(sums.totals.values(), key=lambda total: (-total.packets, total.protocol))
    span = None if sums.first_ns is None or sums.last_ns is None else (sums.first_ns, sums.last_ns)
    return Conversations(
        tell(busiest),
        {service: tell(kept) for service, kept in own.items()},
        {service: kept.count for service, kept in own.items()},
        busiest.count,
        tuple(totals),
        span,
    )


def _named(piece: pa.Table) -> pa.Table:
    """With both ends by name, as the pipeline names them, and what to sort by."""
    return (
        piece.append_column("client_name", client_names(piece))
        .append_column("server_name", server_names(piece))
        .append_column("spoken", pc.coalesce(piece["protocol"], text_scalar(UNKNOWN)))
        .append_column("busy", pc.add(piece["client_bytes"], piece["server_bytes"]))
    )


def _key(row: dict[str, Any]) -> Key:
    return row["stream"], row["epoch"]


def _conversation(
    row: dict[str, Any],
    said: dict[Key, dict[str, int]],
    carried: dict[tuple[Key, str], int],
    asked: dict[tuple[Key, str], Questions],
) -> Conversation:
    key = _key(row)
    messages = dict(sorted(said.get(key, {}).items(), key=lambda kind: (-kind[1], kind[0])))
    none = Questions()
    return Conversation(
        row["client_name"], row["server_name"], row, messages,
        {protocol: carried.get((key, protocol), 0) for protocol in messages},
        row["packets"] - carried.get((key, _ANY), 0),
        asked.get((key, "client"), none), asked.get((key, "server"), none),
    )  # fmt: skip


def _said(folder: RunFolder, wanted: set[Key]) -> tuple[dict[Key, dict[str, int]], Spans]:
    """Messages per protocol of each wanted stream, and when it was spoken."""
    found: dict[Key, dict[str, int]] = {}
    spans: dict[tuple[Key, str], tuple[int, int]] = {}
    for piece in pieces(folder, MESSAGES, ("stream", "epoch", "protocol", "first_ns", "last_ns")):
        runs, starts = _runs(piece, ("stream", "epoch", "protocol"))
        groups, keys = group_codes(runs, runs.column_names)
        first_ns, last_ns = np.full(len(keys), _NEVER_NS), np.full(len(keys), -_NEVER_NS)
        if len(starts):
            np.minimum.at(first_ns, groups, np.minimum.reduceat(numbers_of(piece["first_ns"]), starts))
            np.maximum.at(last_ns, groups, np.maximum.reduceat(numbers_of(piece["last_ns"]), starts))
        counts = _added(groups, np.diff(starts, append=piece.num_rows), len(keys))
        rows = zip(keys, counts.tolist(), first_ns.tolist(), last_ns.tolist(), strict=True)
        for (stream, epoch, protocol), n, first, last in rows:
            key = (stream, epoch)
            if key not in wanted:
                continue
            kinds = found.setdefault(key, {})
            kinds[protocol] = kinds.get(protocol, 0) + n
            for spoken in (protocol, _ANY):
                known = spans.get((key, spoken), (first, last))
                spans[key, spoken] = min(known[0], first), max(known[1], last)
    return found, spans


def _runs(rows: pa.Table, names: Sequence[str]) -> tuple[pa.Table, npt.NDArray[np.int64]]:
    """These columns of the first of every run of equal rows, and where it begins; streams are stored as wholes."""
    if not rows.num_rows:
        return rows.select(names), np.empty(0, dtype=np.int64)
    new = np.zeros(rows.num_rows, dtype=np.bool_)
    new[0] = True
    for name in names:
        column = rows[name].combine_chunks()
        values = numbers_of(column if pa.types.is_integer(column.type) else column.dictionary_encode().indices)
        new[1:] |= values[1:] != values[:-1]
    starts = np.flatnonzero(new)
    return rows.select(names).take(int64_array(starts)), starts


def _added(groups: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """The numbers of each group added up."""
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, groups, numbers)
    return sums


def _counted(rows: pa.Table) -> Iterator[tuple[tuple[Any, ...], int]]:
    """Each different row, and how often it is there."""
    runs, starts = _runs(rows, rows.column_names)
    groups, keys = group_codes(runs, runs.column_names)
    return zip(keys, _added(groups, np.diff(starts, append=rows.num_rows), len(keys)).tolist(), strict=True)


def _asked(folder: RunFolder, wanted: set[Key]) -> dict[tuple[Key, str], Questions]:
    """What each side of each wanted stream asked."""
    counts: dict[tuple[Key, str], list[int]] = {}
    for piece in pieces(folder, EXCHANGES, ["stream", "epoch", "asker", "outcome", "certain"]):
        for (stream, epoch, asker, outcome, certain), n in _counted(piece):
            if (stream, epoch) not in wanted:
                continue
            answered = outcome != "unanswered"
            sums = counts.setdefault(((stream, epoch), asker), [0, 0, 0, 0])
            sums[0] += n
            sums[1] += n * answered
            sums[2] += n * (outcome == "failed")
            sums[3] += n * (answered and not certain)
    return {key: Questions(*sums) for key, sums in counts.items()}
