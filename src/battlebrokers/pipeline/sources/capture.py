"""The Spark data source `capture`: packets of pcap and pcapng files, read in parallel.

`spark.read.format("capture").load([paths])`. Large files are cut at exact record boundaries; a task holds one chunk of
its part. A packed file is one part: the task unpacks it first. Damaged places are rows, too: the fault is `record`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from battlebrokers.dissect.boundaries import PART_BYTES, parts
from battlebrokers.dissect.frames import packets
from battlebrokers.dissect.parts import Part, chunks, walker
from battlebrokers.dissect.records import Damage, Records
from battlebrokers.pipeline.sources.files import RandomFile
from battlebrokers.pipeline.sources.packed import packing_of, unpack
from battlebrokers.tables.packets import PACKETS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from battlebrokers.pipeline.store import Store

_BATCH_PACKETS = 65_536
_FRONT_BYTES = 4
"""Enough to tell how a file is packed."""


class CaptureSource(DataSource):
    """Options: `wires` (per file the number of its wire, by comma), `partBytes` (about the size of a partition)."""

    @classmethod
    def name(cls) -> str:
        """What `spark.read.format` is told."""
        return "capture"

    def schema(self) -> str:
        """That of the table of packets."""
        return PACKETS.spark_ddl()

    def reader(self, schema: StructType) -> CaptureReader:  # noqa: ARG002 - it is our own
        """Reads the files that were given, in their order."""
        paths = json.loads(self.options["paths"]) if "paths" in self.options else [self.options["path"]]
        wires = [int(wire) for wire in self.options.get("wires", "").split(",") if wire]
        return CaptureReader(paths, wires or list(range(len(paths))), int(self.options.get("partBytes", PART_BYTES)))


@dataclass(frozen=True, slots=True)
class _Capture:
    """One of the files."""

    number: int
    wire: int
    path: str


class CapturePart(InputPartition):
    """One part of one file, or all of a packed one."""

    def __init__(self, capture: _Capture, part: Part | None) -> None:
        super().__init__(None)
        self.capture = capture
        self.part = part


class CaptureReader(DataSourceReader):
    """Plans on the driver, reads in the workers."""

    def __init__(self, paths: list[str], wires: list[int], part_bytes: int) -> None:
        self._captures = [
            _Capture(number, wire, path) for number, (wire, path) in enumerate(zip(wires, paths, strict=True))
        ]
        self._part_bytes = part_bytes

    def partitions(self) -> list[InputPartition]:
        """The parts of all files."""
        planned: list[InputPartition] = []
        for capture in self._captures:
            with RandomFile(capture.path) as file:
                packed = packing_of(file.read(0, _FRONT_BYTES)) is not None
                found: Sequence[Part | None] = [None] if packed else _parts(capture, file, self._part_bytes)
            planned += [CapturePart(capture, part) for part in found]
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The packets of one part."""
        if not isinstance(partition, CapturePart):
            return
        capture, part = partition.capture, partition.part
        if part is not None:
            with RandomFile(capture.path) as file:
                yield from _read(capture, file, part)
            return
        with _unpacked(capture) as (file, whole):
            for part in _parts(capture, file, file.size):
                yield from _read(capture, file, part)
            if not whole:
                yield _rows(b"", file.size, _damaged(file.size), capture)


def _parts(capture: _Capture, file: RandomFile, part_bytes: int) -> Sequence[Part]:
    found = parts(file.read, file.size, part_bytes)
    if found is None:
        raise ValueError(f"{capture.path} is no capture")
    return found


@contextmanager
def _unpacked(capture: _Capture) -> Iterator[tuple[RandomFile, bool]]:
    """What a packed file holds, among Spark's temporary files as long as it is read, and whether that is all of it."""
    with RandomFile(capture.path) as file:
        packing = packing_of(file.read(0, _FRONT_BYTES))
    if packing is None:
        raise ValueError(f"{capture.path} has changed while it was read")
    scratch = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    with NamedTemporaryFile(prefix="bb-capture-", dir=scratch or None) as plain:
        wrong = unpack(capture.path, packing, plain)
        plain.flush()
        with RandomFile(plain.name) as file:
            yield file, not wrong


def _read(capture: _Capture, file: RandomFile, part: Part) -> Iterator[pa.RecordBatch]:
    for data, at, records in chunks(file.read, part, walker(part.layout)):
        for start in range(0, max(1, len(records)), _BATCH_PACKETS):
            yield _rows(data, at, records.part(start, start + _BATCH_PACKETS), capture)


def _rows(data: bytes, at: int, records: Records, capture: _Capture) -> pa.RecordBatch:
    # Spark compares schemas strictly, and its own columns may all be null.
    schema = pa.schema([field.with_nullable(True) for field in PACKETS.arrow_schema()])
    batch = packets(data, at, records, capture.number, capture.wire)
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _damaged(at: int) -> Records:
    """No record, but that something is wrong there."""
    none = np.empty(0, dtype=np.int64)
    return Records(none, none, none, none, none, none, none, (Damage(at, 0),))


def prepared(files: Sequence[str], target: Store) -> tuple[list[str], list[dict[str, Any]]]:
    """The plain files to load instead of these, in the same order, and their defects (`file`, `reason`, `count`).

    Called on the driver. Packed captures are unpacked into the target; what is no capture is an `InputError`.
    """
    # Not at the top: workers import this module, too, and need none of it.
    from battlebrokers.pipeline.sources.unpacking import unpacked

    return unpacked(files, target)
