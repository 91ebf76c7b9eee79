"""From capture files to packets, streams, messages, exchanges and what they add up to: the work behind `bb pcap`.

Called by the analyst, for captures alone and for captured runs. Four stages in two Spark jobs; between them travel
blocks of headers, while payloads stay in the capture and are read where they are needed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from battlebrokers.dissect.boundaries import PART_BYTES
from battlebrokers.dissect.hints import Hints
from battlebrokers.pipeline.conversations import Call, Caller, Surroundings
from battlebrokers.pipeline.sources.capture import prepared
from battlebrokers.pipeline.sources.files import RandomFile
from battlebrokers.pipeline.stages.followed import FollowedStage
from battlebrokers.pipeline.stages.hops import HopStage
from battlebrokers.pipeline.stages.packets import PacketStage, file_parts
from battlebrokers.pipeline.stages.peers import keys, numbers
from battlebrokers.pipeline.stages.progress import StageProgress
from battlebrokers.pipeline.stages.service_peers import Used
from battlebrokers.pipeline.stages.streams import Counts, StreamStage
from battlebrokers.pipeline.stages.sums import SumStage
from battlebrokers.pipeline.stages.table_files import read_file
from battlebrokers.pipeline.stages.wires import WireStage
from battlebrokers.pipeline.store import LocalStore, Store
from battlebrokers.pipeline.twins import COLUMNS as TWIN_COLUMNS
from battlebrokers.pipeline.twins import twins
from battlebrokers.tables import (
    ALONE,
    EXCHANGES,
    FOLLOWED,
    HOPS,
    MESSAGES,
    PACKETS,
    PASSAGES,
    STREAMS,
    WIRE,
)
from battlebrokers.tables.endpoints import respelled
from battlebrokers.tables.manifest import Manifest, PairingFacts

Progress = Callable[[str, int, int], None]
SUMMARY = "decoded/summary.json"
_WRITTEN = (PACKETS, STREAMS, MESSAGES, EXCHANGES, *WIRE)
_SHARE_BYTES = 16 << 20
"""About so much of the captures a task follows the conversations of."""
_LEAST_SHARE_BYTES = 2 << 20
_LEAST_TASKS = 4
"""Enough for a few cores, when there is something to do for them."""
_SHARES_FOLLOWED = 4
"""Following messages is so much less work that a task takes several shares."""


@dataclass(frozen=True, slots=True)
class Captures:
    """What to look at, and what is known about it."""

    files: Sequence[str]
    wires: Sequence[int] = ()
    """Per file: the number of the wire it was captured on; files of one wire continue each other. One each if empty."""
    captured_at: Mapping[int, str] = field(default_factory=dict)
    """File number → the service on whose wire it was captured."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Address, address:port or *:port → service."""
    hints: Hints | None = None
    """How messages pair, where a contender's file says so."""
    calls: Mapping[Call, Sequence[Caller]] = field(default_factory=dict)
    """Connections whose opener was seen to hold them."""
    used: Used = field(default_factory=dict)
    """What services used, as far as it was measured."""
    beside_run: bool = False
    """Whether they were captured in a run, whose own tables have some names already."""
    unread: Sequence[dict[str, Any]] = ()
    """Files that are missing here because nothing can be read from them: defects, as `prepared` gives them."""


def captures_of(
    manifest: Manifest, store: Store, sockets: pa.Table | None = None, resources: pa.Table | None = None
) -> Captures | None:
    """What a run captured, if it did; a file of which nothing can be read costs the others nothing.

    `sockets` and `resources` are the rows of those tables: who called whom, and what services used.
    """
    # Not at the top: workers import this module, too, and need none of it.
    from battlebrokers.pipeline.sources.unpacking import why_unreadable

    files: list[str] = []
    unread: list[dict[str, Any]] = []
    wires: list[int] = []
    captured_at: dict[int, str] = {}
    names: dict[str, str] = {}
    for wire, capture in enumerate(manifest.captures):
        for file in capture.files:
            place = str(store.path / file) if isinstance(store, LocalStore) else store.locate(file)
            if why := why_unreadable(place):
                unread.append({"file": place, "reason": why, "count": 1})
                continue
            captured_at[len(files)] = capture.service
            wires.append(wire)
            files.append(place)
        names |= dict.fromkeys(capture.addresses, capture.service)
    if not files and not unread:
        return None
    calls = calls_of(sockets.to_pylist() if sockets is not None else ())
    used = used_of(resources) if resources is not None else {}
    hints = hints_of(manifest.contender.pairing)
    return Captures(files, wires, captured_at, names, hints, calls, used, beside_run=True, unread=unread)


def used_of(resources: pa.Table) -> Used:
    """Rows of `resources` added up over the whole run."""
    sums = resources.group_by("service").aggregate([("cpu_percent", "mean"), ("rss_bytes", "max")])
    return {row["service"]: (row["cpu_percent_mean"], row["rss_bytes_max"]) for row in sums.to_pylist()}


def calls_of(sockets: Iterable[Mapping[str, Any]]) -> dict[Call, list[Caller]]:
    """Rows of `sockets` by connection, each of its holders once, the earliest first."""
    seen: dict[Call, dict[str, Caller]] = {}
    for row in sockets:
        call = ((row["address"], row["port"]), (row["peer_address"], row["peer_port"]))
        holders = seen.setdefault(call, {})
        known = holders.get(row["service"], Caller(row["service"], row["first_ns"], row["last_ns"]))
        first_ns, last_ns = min(known.first_ns, row["first_ns"]), max(known.last_ns, row["last_ns"])
        holders[row["service"]] = Caller(row["service"], first_ns, last_ns)
    return {call: sorted(holders.values(), key=lambda one: one.first_ns) for call, holders in seen.items()}


def hints_of(pairing: PairingFacts | None) -> Hints | None:
    """What a contender's file says about pairing, as dissectors read it."""
    if pairing is None:
        return None
    return Hints(pairing.type, pairing.id, pairing.answers, frozenset(pairing.unanswered))


def with_key_log(hints: Hints | None, path: Path) -> Hints:
    """The same, with what a key log says about TLS connections."""
    # Imported only for those who have one: it takes a while.
    from battlebrokers.dissect.tls_secrets import parse_key_log

    return replace(hints or Hints(), tls_secrets=parse_key_log(path.read_bytes()))


def decode(
    spark: SparkSession, captures: Captures, target: Store, on_progress: Progress = lambda *_: None
) -> dict[str, Any]:
    """Write the tables of what was captured and a summary; returns the summary."""
    wake_workers(spark)
    began = time.monotonic()
    target.delete("decoded")
    places = {table.name: table.folder for table in _WRITTEN}
    # Who decodes into a run's folder keeps the run's own tables of these names.
    if not captures.beside_run and target.read("manifest.json") is None:
        places |= {name: table.folder for name, table in ALONE.items()}
    for place in places.values():
        target.delete(place)
    plain, defects = prepared(captures.files, target)
    work = _Work(spark, captures, plain, {name: target.locate(place) for name, place in places.items()})
    counts = work.decode(on_progress)
    work.add_up(on_progress)
    defects += [*_damages(captures.files, counts), *captures.unread]
    summary = _summary(counts) | {"defects": defects, "seconds": round(time.monotonic() - began, 3)}
    target.write(SUMMARY, msgspec.json.encode(summary))
    return summary


class _Work:
    """The Spark jobs of one decoding."""

    def __init__(self, spark: SparkSession, captures: Captures, plain: Sequence[str], folders: dict[str, str]) -> None:
        self._context = spark.sparkContext
        self._captures = captures
        self._plain = plain
        self._folders = folders
        self._parts = file_parts(plain, PART_BYTES)
        self._shares = _shares(sum(_size(path) for path in plain))
        self._followers = max(min(self._shares, _LEAST_TASKS), self._shares // _SHARES_FOLLOWED)
        self._tasks = len(self._parts) + self._shares + 3 * self._followers + 1

    def decode(self, on_progress: Progress) -> Counts:
        """Captures to packets, streams, messages and exchanges."""
        captures = self._captures
        wires = captures.wires or range(len(self._plain))
        packets = PacketStage(self._plain, list(wires), self._folders[PACKETS.name], self._shares)
        names = {respelled(place): service for place, service in captures.names.items()}
        around = Surroundings(self._plain, captures.captured_at, names, captures.hints, captures.calls)
        streams = StreamStage(around, self._folders)
        planned = self._context.parallelize(self._parts, max(1, len(self._parts)))
        found = _moved(planned.mapPartitionsWithIndex(packets), self._shares).mapPartitionsWithIndex(streams)
        counts = Counts()
        with self._telling("decoding", 0, on_progress):
            for one in found.collect():
                counts.add(one)
        return counts

    def add_up(self, on_progress: Progress) -> None:
        """What was decoded to hops, and the sums of responses and traffic."""
        left_out = self._context.broadcast(self._twins())
        wires = WireStage(self._folders, left_out, self._followers)
        tasks = self._context.parallelize(range(self._shares), self._followers)
        found = _moved(tasks.mapPartitionsWithIndex(wires), self._followers)
        legs = _moved(found.mapPartitionsWithIndex(HopStage(self._folders[HOPS.name])), 1)
        with self._telling("following", len(self._parts) + self._shares, on_progress):
            legs.mapPartitions(SumStage(self._folders, self._captures.used)).collect()
            self._tell_followed()
        left_out.destroy()

    def _tell_followed(self) -> None:
        passages = read_file(self._folders[PASSAGES.name], 0, ["sender"])
        senders = frozenset(name for batch in passages for name in batch["sender"].to_pylist())
        stage = FollowedStage(self._folders[HOPS.name], self._folders[FOLLOWED.name], senders)
        self._context.parallelize(range(self._followers), self._followers).mapPartitions(stage).collect()

    def _telling(self, name: str, done: int, on_progress: Progress) -> StageProgress:
        planned = self._tasks - done
        return StageProgress(self._context, planned, lambda now, _: on_progress(name, done + now, self._tasks))

    def _twins(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The conversations that were seen at both ends and are counted at the other one."""
        if len(self._plain) < 2:
            return np.empty(0, dtype=np.int64)
        schema = pa.schema([STREAMS.arrow_schema().field(name) for name in TWIN_COLUMNS])
        rows = [
            batch.select(schema.names)
            for task in range(self._shares)
            for batch in read_file(self._folders[STREAMS.name], task, schema.names)
        ]
        found = twins(pa.Table.from_batches(rows, schema))
        return keys(numbers(found["stream"]), numbers(found["epoch"]))


def _moved(values: Any, tasks: int) -> Any:
    """Pairs of a task's number and a value, brought to that task."""
    return values.partitionBy(tasks, _itself)


def _itself(task: int) -> int:
    return task


def _size(path: str) -> int:
    with RandomFile(path) as file:
        return file.size


def _shares(size_bytes: int) -> int:
    """In how many shares conversations are followed; whatever machine does it, the same captures give the same."""
    return max(1, size_bytes // _SHARE_BYTES, min(_LEAST_TASKS, size_bytes // _LEAST_SHARE_BYTES))


def wake_workers(spark: SparkSession) -> None:
    """Have Spark start its Python workers, which is a part of its start and takes a second."""
    parallel = spark.sparkContext.defaultParallelism
    spark.sparkContext.parallelize(range(parallel), parallel).count()


def _damages(files: Sequence[str], counts: Counts) -> Iterable[dict[str, Any]]:
    for number, file in enumerate(files):
        places = sum(read.damages for read in counts.read if read.file == number)
        size = sum(read.damaged_bytes for read in counts.read if read.file == number)
        if places:
            yield {"file": file, "reason": f"{places} damaged places, {size} bytes skipped", "count": places}


def _summary(counts: Counts) -> dict[str, Any]:
    """The numbers everybody asks first, under their stable names."""
    messages: dict[str, dict[str, int]] = {}
    for (protocol, kind), number in sorted(counts.messages.items()):
        messages.setdefault(protocol, {})[kind] = number
    exchanges = {
        protocol: {name: counts.exchanges[protocol, name] for name in ("answered", "unanswered", "uncertain")}
        for protocol in sorted({protocol for protocol, _ in counts.exchanges})
    }
    return {
        "packets": sum(read.packets for read in counts.read),
        "streams": counts.streams,
        "messages": messages,
        "exchanges": exchanges,
        "tcp": {name: counts.totals[_TCP.get(name, name)] for name in _TCP_NAMES},
        "malformed": counts.totals["malformed"],
        "undecoded_bytes": counts.totals["undecoded_bytes"],
        "unread_packets": dict(sum((read.faults for read in counts.read), Counter())),
    }


_TCP_NAMES = (
    "retransmissions", "fast_retransmissions", "out_of_order", "spurious", "duplicate_acks", "zero_windows",
    "lost_segments",
)  # fmt: skip
_TCP = {"spurious": "spurious_retransmissions"}
"""Where a name of the summary is not that of the column."""
