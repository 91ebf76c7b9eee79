"""The Spark data source `capture`: packets of pcap and pcapng files, read in parallel.

`spark.read.format("capture").load([paths])`. Large files are cut at exact record boundaries; a task holds one chunk of
its part. Damaged places are rows, too: those with the fault `record`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from battlebrokers.dissect.boundaries import PART_BYTES, parts
from battlebrokers.dissect.frames import packets
from battlebrokers.dissect.parts import Part, chunks, walker
from battlebrokers.pipeline.sources.files import RandomFile
from battlebrokers.tables.packets import PACKETS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from battlebrokers.pipeline.store import Store

_BATCH_PACKETS = 65_536


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
    """One part of one file."""

    def __init__(self, capture: _Capture, part: Part) -> None:
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
                found = parts(file.read, file.size, self._part_bytes)
            if found is None:
                raise ValueError(f"{capture.path} is no capture")
            planned += [CapturePart(capture, part) for part in found]
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The packets of one part."""
        if isinstance(partition, CapturePart):
            yield from _read(partition.capture, partition.part)


def _read(capture: _Capture, part: Part) -> Iterator[pa.RecordBatch]:
    # Spark compares schemas strictly, and its own columns may all be null.
    schema = pa.schema([field.with_nullable(True) for field in PACKETS.arrow_schema()])
    with RandomFile(capture.path) as file:
        for data, at, records in chunks(file.read, part, walker(part.layout)):
            for start in range(0, max(1, len(records)), _BATCH_PACKETS):
                some: Any = records.part(start, start + _BATCH_PACKETS)
                batch = packets(data, at, some, capture.number, capture.wire)
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def prepared(files: Sequence[str], target: Store) -> tuple[list[str], list[dict[str, Any]]]:
    """The plain files to load instead of these, in the same order, and their defects (`file`, `reason`, `count`).

    Called on the driver. Packed captures are unpacked into the target; what is no capture is an `InputError`.
    """
    # Not at the top: workers import this module, too, and need none of it.
    from battlebrokers.pipeline.sources.unpacking import unpacked

    return unpacked(files, target)
