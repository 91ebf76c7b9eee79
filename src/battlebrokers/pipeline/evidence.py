"""The recorded side of a run, opened for Spark: whole segments only; broken ones are named, never hidden.

Called by the graph. A killed run may lack tables, phases and the end of a file: all of that is normal here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from battlebrokers.errors import InvalidManifestError, RunFolderError
from battlebrokers.pipeline.store import LocalStore, Store
from battlebrokers.pipeline.timeframe import Timeframe
from battlebrokers.tables import DELIVERIES, PUBLISHES, RECORDED, Table
from battlebrokers.tables.manifest import Manifest
from battlebrokers.tables.manifest_checks import decode_manifest, span_ns

_MAGIC = b"PAR1"
_FOLDERS = tuple(table.folder for table in RECORDED)
_NUMBERED = re.compile(r"(?P<writer>.+)-(?P<number>\d+)\.parquet")
_COUNTERS = {PUBLISHES.name: "sent", DELIVERIES.name: "received"}
"""What a worker that came to its end says of the rows it wrote."""


_MOMENTS = {PUBLISHES.name: ("planned_ns", "sent_ns"), DELIVERIES.name: ("received_ns",)}
"""Columns that say where on the run's time axis a row belongs: each second between the first and the last is a row."""
_ANOTHER_TIME = "its times are not of this run"


class Defect(msgspec.Struct, frozen=True):
    """A segment that could not be read, and why; kept in `measures/defects.json`."""

    file: str
    reason: str


class Evidence:
    """One run's manifest and readable segments."""

    def __init__(self, store: Store, spark: SparkSession) -> None:
        self.store = store
        self.defects: list[Defect] = []
        self.manifest = _read_manifest(store)
        self.timeframe = Timeframe.of(self.manifest)
        self._span_ns = span_ns(self.manifest)
        self._spark = spark
        self._segments: dict[str, list[str]] = {}
        self._whole: set[str] = set()
        self._rows: dict[str, int] = {}
        for table in RECORDED:
            self._open(table)
        self._refuse_if_gone()
        self._refuse_if_apart()

    @property
    def finished(self) -> bool:
        """Whether the run came to its planned end; if not, what was on its way then is nobody's loss."""
        return self.manifest.state == "finished"

    def rows(self, table: Table) -> int:
        """How many rows the readable segments hold."""
        if table.name not in self._rows:
            self._rows[table.name] = self.frame(table).count() if self._segments[table.name] else 0
        return self._rows[table.name]

    def frame(self, table: Table) -> DataFrame:
        """The table as recorded; without rows if nothing was."""
        segments = self._segments[table.name]
        if not segments:
            return self._spark.createDataFrame(table.arrow_schema().empty_table())
        # The folder as a whole is listed once; a long list of files would be looked up one by one.
        places = [table.folder] if table.name in self._whole else segments
        return (
            self._spark.read.schema(table.spark_ddl())
            .option("pathGlobFilter", "*.parquet")
            .parquet(*[self.store.locate(place) for place in places])
        )

    def arrow(self, table: Table, columns: Sequence[str]) -> pa.Table:
        """A small table in the driver's memory."""
        segments = self._segments[table.name]
        schema = pa.schema([table.arrow_schema().field(name) for name in columns])
        if not segments:
            return schema.empty_table()
        if isinstance(self.store, LocalStore):
            files = [str(self.store.path / segment) for segment in segments]
            # Segments may hold words as dictionaries; reading with the table's schema evens that out.
            return ds.dataset(files, schema=table.arrow_schema(), format="parquet").to_table(columns=list(columns))
        return self.frame(table).select(*columns).toArrow().cast(schema)

    def inspect_deeply(self) -> bool:
        """Read every segment to its end; whether that brought new defects to light."""
        known = len(self.defects)
        for table in RECORDED:
            self._keep_sound(table, self._segments[table.name], self._read_through)
        return len(self.defects) > known

    def _open(self, table: Table) -> None:
        segments = self.store.segments(table.folder)
        self._whole.add(table.name)
        self.defects += _gaps(segments)
        if not segments and (counted := _counted(self.manifest, table)):
            self.defects.append(Defect(table.folder, f"nothing is here, but the workers counted {counted}"))
        self._keep_sound(table, segments, self._look_at)

    def _refuse_if_gone(self) -> None:
        """Analysing nothing would put emptiness in the place of figures that came from evidence."""
        counted = sum(_counted(self.manifest, table) for table in RECORDED)
        if counted and not any(self._segments.values()) and not any(map(self.store.segments, _FOLDERS)):
            raise RunFolderError(
                f"{self.store.address} has no evidence any more: its workers counted {counted} messages, and "
                "recorded/ is missing or empty",
                hint="Bring recorded/ back if there is a copy; what was computed from it before stays as it is.",
            )

    def _refuse_if_apart(self) -> None:
        """No recorded time near the phases: then the manifest is wrong, and every second would be counted from it."""
        apart = [defect for defect in self.defects if defect.reason.startswith(_ANOTHER_TIME)]
        if apart and not any(self._rows.get(name) for name in _MOMENTS):
            raise InvalidManifestError(
                f"{self.store.address}/manifest.json is invalid: its phases do not fit the evidence; {apart[0].file}: "
                f"{apart[0].reason}",
                hint="No run writes this. Bring back the manifest as it was written.",
            )

    def _keep_sound(self, table: Table, segments: list[str], look: Callable[[Table, str], str | int]) -> None:
        """Keep the segments that pass; a text is the reason why one does not, a number its rows."""
        with ThreadPoolExecutor(max_workers=4) as readers:
            findings = list(readers.map(lambda segment: look(table, segment), segments))
        sound = []
        rows = 0
        for segment, finding in zip(segments, findings, strict=True):
            if isinstance(finding, str):
                self.defects.append(Defect(segment, finding))
                self._whole.discard(table.name)
            else:
                sound.append(segment)
                rows += finding
        self._segments[table.name] = sound
        if isinstance(self.store, LocalStore):
            self._rows[table.name] = rows

    def _look_at(self, table: Table, segment: str) -> str | int:
        """Only the footer: cheap, and enough to find what a kill leaves behind."""
        if not isinstance(self.store, LocalStore):
            return _end_is_missing(self.store, segment) or 0
        try:
            with pq.ParquetFile(self.store.path / segment) as file:
                other = _differs(file.schema_arrow, table) or _of_another_time(file.metadata, table, self._span_ns)
                return other or int(file.metadata.num_rows)
        except (OSError, pa.ArrowException) as error:
            return _in_short(error)

    def _read_through(self, table: Table, segment: str) -> str | int:
        try:
            if isinstance(self.store, LocalStore):
                with pq.ParquetFile(self.store.path / segment) as file:
                    return sum(int(batch.num_rows) for batch in file.iter_batches(columns=table.column_names))
            frame = self._spark.read.schema(table.spark_ddl()).parquet(self.store.locate(segment))
            frame.write.format("noop").mode("overwrite").save()
        except (OSError, pa.ArrowException, PySparkException) as error:
            return _in_short(error)
        return 0


def _read_manifest(store: Store) -> Manifest:
    raw = store.read("manifest.json")
    if raw is None:
        raise RunFolderError(
            f"{store.address} is not a run folder: it has no manifest.json", hint="`bb list` shows the runs here."
        )
    return decode_manifest(raw, f"{store.address}/manifest.json")


def _counted(manifest: Manifest, table: Table) -> int:
    """How many rows of a table the workers say they made; 0 for one nobody counts, or if nobody lived to say."""
    counter = _COUNTERS.get(table.name, "")
    return sum(worker.counters.get(counter, 0) for worker in manifest.workers)


def _gaps(segments: Iterable[str]) -> Iterator[Defect]:
    """Each writer numbers its segments without gaps: one that is not there was lost, and what it held with it."""
    numbers = defaultdict(list)
    for segment in segments:
        if named := _NUMBERED.fullmatch(segment):
            numbers[named["writer"]].append(int(named["number"]))
    for writer, found in sorted(numbers.items()):
        for before, after in pairwise([min(0, *found), *sorted(found)]):
            if after - before > 1:
                further = after - before - 2
                reason = f"it is missing, and {further} after it" if further else "it is missing"
                yield Defect(f"{writer}-{before + 1:05d}.parquet", reason)


def _differs(found: pa.Schema, table: Table) -> str:
    """Why a segment is not one of this table's; empty if it is."""
    for wanted in table.arrow_schema():
        place = found.get_field_index(wanted.name)
        if place < 0 and wanted.nullable:
            continue  # older than the column: nobody knows
        if place < 0:
            return f"it has no column {wanted.name}"
        kind = found.field(place).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if kind != wanted.type:
            return f"its column {wanted.name} is {kind}, not {wanted.type}"
    return ""


def _of_another_time(metadata: pq.FileMetaData, table: Table, span_ns: tuple[int, int]) -> str:
    """Why a segment's times cannot be of this run; empty if they can, or if the file does not tell them."""
    for name in _MOMENTS.get(table.name, ()):
        place = metadata.schema.names.index(name)
        for group in range(metadata.num_row_groups):
            told = metadata.row_group(group).column(place).statistics
            if told is None or not told.has_min_max:
                continue
            if told.min < span_ns[0] or told.max > span_ns[1]:
                return f"{_ANOTHER_TIME}: {name} goes from {told.min} to {told.max}, the run to {span_ns[1]}"
    return ""


def _end_is_missing(store: Store, segment: str) -> str:
    return "" if store.tail(segment, len(_MAGIC)) == _MAGIC else "its end is missing or damaged"


def _in_short(error: Any) -> str:
    first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return first_line[:300]
