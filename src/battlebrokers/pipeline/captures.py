"""From capture files to packets, streams, messages and exchanges: the Spark side of `bb pcap` and of captured runs.

Called by the analyst. Headers travel through Spark, payloads stay in the capture and are read where they are needed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from battlebrokers.pipeline.conform import conform
from battlebrokers.pipeline.conversations import FILE_SHIFT, WANTED, Surroundings, as_structs, converse, result_ddl
from battlebrokers.pipeline.sources.capture import CaptureSource, prepared
from battlebrokers.pipeline.steps.hops import hops
from battlebrokers.pipeline.steps.responses import responses
from battlebrokers.pipeline.steps.talked import asked, talked
from battlebrokers.pipeline.steps.traffic import traffic
from battlebrokers.pipeline.store import LocalStore, Store
from battlebrokers.pipeline.without_pandas import show_pandas
from battlebrokers.tables import EXCHANGES, HOPS, MESSAGES, PACKETS, RESPONSES, STREAMS, TRAFFIC, Table
from battlebrokers.tables.manifest import Manifest

Progress = Callable[[str, int, int], None]
SUMMARY = "decoded/summary.json"
_STEPS = 8
_PACKETS_PER_PARTITION = 250_000
_ABSENT: dict[str, bool | float | int | str] = {
    "seq": 0,
    "ack": 0,
    "flags": 0,
    "window": 0,
    "window_shift": -1,
    "mss": 0,
    "payload_at": 0,
}
"""What stands for a header field a packet does not have."""


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
    hints: Any = None


def captures_of(manifest: Manifest, store: Store) -> Captures | None:
    """What a run captured, if it did."""
    files: list[str] = []
    wires: list[int] = []
    captured_at: dict[int, str] = {}
    names: dict[str, str] = {}
    for wire, capture in enumerate(manifest.captures):
        for file in capture.files:
            captured_at[len(files)] = capture.service
            wires.append(wire)
            files.append(str(store.path / file) if isinstance(store, LocalStore) else store.locate(file))
        names |= dict.fromkeys(capture.addresses, capture.service)
    return Captures(files, wires, captured_at, names) if files else None


def decode(
    spark: SparkSession, captures: Captures, target: Store, on_progress: Progress = lambda *_: None
) -> dict[str, Any]:
    """Write the tables of the decoded layer and a summary; returns the summary."""
    began = time.monotonic()
    target.delete("decoded")
    plain, defects = prepared(captures.files, target)
    on_progress("captures", 1, _STEPS)
    spark.dataSource.register(CaptureSource)
    wires = captures.wires or range(len(plain))
    reader = spark.read.format("capture").option("wires", ",".join(map(str, wires)))
    _write(reader.load(list(plain)), PACKETS, target)
    packets = _table(spark, target, PACKETS)
    damaged = packets.where("fault = 'record'").groupBy("file").agg(F.count("*"), F.sum("original_bytes")).collect()
    defects += [_damage(captures.files[file], places, size) for file, places, size in damaged]
    count = packets.count() - sum(places for _, places, _ in damaged)
    on_progress("packets", 2, _STEPS)
    around = Surroundings(plain, captures.captured_at, captures.names, captures.hints)
    told = _conversations(packets, count, around).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        for place, table in enumerate((STREAMS, MESSAGES, EXCHANGES)):
            _write(told.where(F.col(table.name).isNotNull()).select(f"{table.name}.*"), table, target)
            on_progress(table.name, 3 + place, _STEPS)
    finally:
        told.unpersist()
    _tell_wires(spark, target, on_progress)
    summary = _summary(spark, target, count) | {"defects": defects, "seconds": round(time.monotonic() - began, 3)}
    target.write(SUMMARY, msgspec.json.encode(summary))
    return summary


def _damage(file: str, places: int, size: int) -> dict[str, Any]:
    return {"file": file, "reason": f"{places} damaged places, {size} bytes skipped", "count": places}


def _conversations(packets: DataFrame, count: int, around: Surroundings) -> DataFrame:
    parallel = packets.sparkSession.sparkContext.defaultParallelism
    low = "struct(source, source_port) < struct(destination, destination_port)"
    told = packets.where("stream IS NOT NULL AND (fault IS NULL OR fault = 'truncated')").fillna(_ABSENT)
    place = f"shiftleft(CAST(file AS BIGINT), {FILE_SHIFT}) | payload_at"
    narrow = told.withColumns({"low": F.expr(low), "payload_at": F.expr(place)}).select(*WANTED)

    def body(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return as_structs(converse(batches, around))

    show_pandas()
    partitions = max(parallel, count // _PACKETS_PER_PARTITION)
    together = narrow.repartition(partitions, "stream").sortWithinPartitions("stream", "captured_ns", "file", "at")
    return together.mapInArrow(body, result_ddl())


def _tell_wires(spark: SparkSession, target: Store, on_progress: Progress) -> None:
    """What the decoded tables add up to, between services."""
    streams, messages, exchanges = (_table(spark, target, table) for table in (STREAMS, MESSAGES, EXCHANGES))
    spoken = talked(messages, streams)
    made = (
        (HOPS, hops(spoken)),
        (RESPONSES, responses(asked(exchanges, streams))),
        (TRAFFIC, traffic(spoken, exchanges)),
    )
    for place, (table, frame) in enumerate(made):
        _write(frame, table, target)
        on_progress(table.name, 6 + place, _STEPS)


def _table(spark: SparkSession, target: Store, table: Table) -> DataFrame:
    return spark.read.schema(table.spark_ddl()).parquet(target.locate(table.folder))


def _write(frame: DataFrame, table: Table, target: Store) -> None:
    writer = conform(frame, table).write.mode("overwrite").option("compression", "zstd")
    writer.option("parquet.compression.codec.zstd.level", "1").parquet(target.locate(table.folder))


def _summary(spark: SparkSession, target: Store, packets: int) -> dict[str, Any]:
    """The numbers everybody asks first, under their stable names."""
    streams = _table(spark, target, STREAMS)
    totals = {name: F.sum(column).alias(name) for name, column in _TOTALS.items()}
    (sums,) = streams.agg(F.count("*").alias("streams"), *totals.values()).collect()
    messages: dict[str, dict[str, int]] = {}
    for row in (
        _table(spark, target, MESSAGES).groupBy("protocol", "kind").count().orderBy("protocol", "kind").collect()
    ):
        messages.setdefault(row["protocol"], {})[row["kind"]] = row["count"]
    exchanges: dict[str, dict[str, int]] = {}
    answered = F.col("outcome") != "unanswered"
    counted = _table(spark, target, EXCHANGES).groupBy("protocol").agg(
        F.sum((answered & F.col("certain")).cast("long")).alias("answered"),
        F.sum((~answered).cast("long")).alias("unanswered"),
        F.sum((answered & ~F.col("certain")).cast("long")).alias("uncertain"),
    )  # fmt: skip
    for row in counted.orderBy("protocol").collect():
        exchanges[row["protocol"]] = {name: row[name] or 0 for name in ("answered", "unanswered", "uncertain")}
    found = {name: sums[name] or 0 for name in _TOTALS}
    return {
        "packets": packets,
        "streams": sums["streams"],
        "messages": messages,
        "exchanges": exchanges,
        "tcp": {name: found[name] for name in _TCP},
        "malformed": found["malformed"],
        "undecoded_bytes": found["undecoded_bytes"],
    }


_TCP = (
    "retransmissions", "fast_retransmissions", "out_of_order", "spurious", "duplicate_acks", "zero_windows",
    "lost_segments",
)  # fmt: skip
_TOTALS = {name: "spurious_retransmissions" if name == "spurious" else name for name in _TCP} | {
    "malformed": "malformed",
    "undecoded_bytes": "undecoded_bytes",
}
