"""Stage: blocks of packets → the tables of streams, messages and exchanges, and what they count up to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from battlebrokers.pipeline.conversations import Columns, Surroundings, Words, converse_columns
from battlebrokers.pipeline.stages.packet_blocks import PACKET, Block, by_conversation
from battlebrokers.pipeline.stages.packets import Moved, Read
from battlebrokers.pipeline.stages.table_files import TableFile
from battlebrokers.tables import EXCHANGES, MESSAGES, STREAMS

TOTALS = (
    "retransmissions", "fast_retransmissions", "out_of_order", "spurious_retransmissions", "duplicate_acks",
    "zero_windows", "lost_segments", "malformed", "undecoded_bytes",
)  # fmt: skip
"""Columns of `streams` that are added up."""
_NUMBERS = [name for name in PACKET.names or () if name not in {"source", "destination"}]
_PIECE = 1 << 17


@dataclass(slots=True)
class Counts:
    """What one task found."""

    read: list[Read] = field(default_factory=list)
    streams: int = 0
    totals: Counter[str] = field(default_factory=Counter)
    messages: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By protocol and kind."""
    exchanges: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By protocol and `answered`, `unanswered` or `uncertain`."""

    def add(self, other: Counts) -> None:
        """Those of another task."""
        self.read += other.read
        self.streams += other.streams
        self.totals += other.totals
        self.messages += other.messages
        self.exchanges += other.exchanges

    def see(self, table: str, rows: pa.RecordBatch) -> None:
        """Count rows of one of the tables."""
        if table == STREAMS.name:
            self.streams += rows.num_rows
            self.totals.update({name: pc.sum(rows[name]).as_py() for name in TOTALS})
        elif table == MESSAGES.name:
            for protocol, kind, number in _groups(rows, ["protocol", "kind"]):
                self.messages[protocol, kind] += number
        else:
            for protocol, outcome, certain, number in _groups(rows, ["protocol", "outcome", "certain"]):
                kind = "unanswered" if outcome == "unanswered" else "answered" if certain else "uncertain"
                self.exchanges[protocol, kind] += number


def _groups(rows: pa.RecordBatch, names: list[str]) -> Iterator[tuple[Any, ...]]:
    counted = pa.Table.from_batches([rows.select(names)]).group_by(names).aggregate([([], "count_all")])
    yield from zip(*(counted[name].to_pylist() for name in [*names, "count_all"]), strict=True)


@dataclass(frozen=True, slots=True)
class StreamStage:
    """The task that follows the conversations of one share."""

    around: Surroundings
    folders: Mapping[str, str]
    """Name of a table → where it lies."""

    def __call__(self, task: int, moved: Iterable[Moved]) -> Iterator[Counts]:
        """Sort, follow, write, count."""
        counts = Counts()
        with ExitStack() as stack:
            files = {
                table.name: stack.enter_context(TableFile(self.folders[table.name], table, task))
                for table in (STREAMS, MESSAGES, EXCHANGES)
            }
            packets = by_conversation(_blocks(moved, counts))
            for table, rows in converse_columns(_columns(packets), self.around):
                counts.see(table.name, rows)
                files[table.name].write(rows)
        yield counts


def _blocks(moved: Iterable[Moved], counts: Counts) -> Iterator[bytes]:
    for _, value in moved:
        if isinstance(value, Read):
            counts.read.append(value)
        else:
            yield value


def _columns(blocks: Iterable[Block]) -> Iterator[tuple[Columns, Words]]:
    for block in blocks:
        for start in range(0, len(block), _PIECE):
            piece = block[start : start + _PIECE]
            yield {name: piece[name] for name in _NUMBERS}, (piece["source"], piece["destination"])
