"""The facts of one run: its manifest, its measures and what was recorded beside them, read into memory.

Called once per run by `summary`, `findings` and the report. Reads Parquet with pyarrow; computes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from battlebrokers.analysis.columns import scalar_of
from battlebrokers.analysis.stored import is_decoded
from battlebrokers.analysis.table_checks import MOST_ROWS, refuse_impossible, within_run
from battlebrokers.clock import SECOND_NS
from battlebrokers.errors import RunFolderError
from battlebrokers.tables import measures, operations, resources
from battlebrokers.tables.base import Table
from battlebrokers.tables.manifest import Manifest, Phase
from battlebrokers.tables.run_folder import RunFolder
from battlebrokers.tables.slots import SLOTS

MEASURE = "measure"
"""The phase whose messages the summary counts."""
LOAD_PHASES = ("warm_up", "measure", "cool_down")


Decoding = Literal["none", "never", "half", "whole"]
"""`none`: nothing was captured; `half`: it was begun, and ended before all was written."""


class Defect(msgspec.Struct, frozen=True):
    """A recorded file the pipeline could not read."""

    file: str
    reason: str


class _Decoded(msgspec.Struct, frozen=True):
    """What we want of `decoded/summary.json`."""

    defects: tuple[Defect, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything analysis and report know about a run."""

    folder: RunFolder
    manifest: Manifest
    latencies: pa.Table
    ledger: pa.Table
    timeline: pa.Table
    slots: pa.Table
    """Empty for runs analysed by a version that did not have them."""
    publishing: pa.Table
    failures: pa.Table
    actions: pa.Table
    balance: pa.Table
    services: pa.Table
    resources: pa.Table
    clocks: pa.Table
    nodes: pa.Table
    operations: pa.Table
    defects: tuple[Defect, ...] = ()
    decoding: Decoding = "none"
    """How far what was captured has been decoded."""
    capture_defects: tuple[Defect, ...] = ()
    """Captured files that could not be read to their end."""

    @property
    def measure(self) -> Phase | None:
        """The measure phase, if the run reached it."""
        return self.manifest.phase(MEASURE)

    @property
    def measure_s(self) -> float:
        """How long it lasted."""
        return phase_ns(self.measure) / SECOND_NS if self.measure else 0.0

    @property
    def load_start_ns(self) -> int:
        """When the first load phase began: second 0 of every `second` column."""
        return _load_start_ns(self.manifest)

    @property
    def measure_seconds(self) -> range:
        """The `second` values of the measure phase."""
        if self.measure is None:
            return range(0)
        start_ns = self.measure.start_ns - self.load_start_ns
        first = start_ns // SECOND_NS
        return range(first, max(first + 1, -(-(start_ns + phase_ns(self.measure)) // SECOND_NS)))


def read_facts(folder: RunFolder) -> Facts:
    """Read a run that has been analysed; a clear error if it has not."""
    manifest = folder.read_manifest()
    if not folder.table(measures.LATENCIES).is_dir() and not folder.table(measures.PUBLISHING).is_dir():
        raise RunFolderError(
            f"{folder.path} has no measures yet",
            hint=f"`bb analyze {folder.path}` computes them from what was recorded.",
        )
    if unwritten := [table.name for table in _TOLD if not _is_written(folder.table(table))]:
        # A table that is not there would be told as nothing sent, or nothing lost.
        raise RunFolderError(
            f"{folder.path} was analysed only in part: {', '.join(unwritten)} missing",
            hint=f"`bb analyze {folder.path}` does it again; what was recorded is untouched.",
        )
    told = {table.name: _measures(folder, table) for table in _TOLD}
    refuse_impossible(folder, manifest, _load_start_ns(manifest), told)
    return Facts(
        folder=folder,
        manifest=manifest,
        **told,
        slots=_measures(folder, SLOTS),
        resources=within_run(manifest, _recorded(folder, resources.RESOURCES), "sampled_ns"),
        clocks=_recorded(folder, resources.CLOCKS),
        nodes=_recorded(folder, operations.NODES),
        operations=_recorded(folder, operations.OPERATIONS),
        defects=_defects(folder),
        decoding=_decoding(folder, manifest),
        capture_defects=_capture_defects(folder),
    )


_TOLD = (
    measures.LATENCIES, measures.LEDGER, measures.TIMELINE, measures.PUBLISHING, measures.FAILURES, measures.ACTIONS,
    measures.BALANCE, measures.SERVICES,
)  # fmt: skip


def _is_written(place: Path) -> bool:
    """Whether a table is whole: Spark makes its folder first, and takes its scaffold away last."""
    return place.is_dir() and not (place / "_temporary").exists()


def _load_start_ns(manifest: Manifest) -> int:
    starts = [phase.start_ns for phase in manifest.phases if phase.name in LOAD_PHASES]
    return min(starts, default=manifest.started_ns)


def phase_ns(phase: Phase) -> int:
    """How long a phase lasted; 0 for one whose end nobody lived to write down."""
    return max(0, phase.end_ns - phase.start_ns)


def where(rows: pa.Table, **equal: str | int | bool) -> pa.Table:
    """The rows whose columns equal the given values."""
    for name, value in equal.items():
        rows = rows.filter(pc.equal(rows[name], scalar_of(value, rows.schema.field(name).type)))
    return rows


def total(rows: pa.Table, column: str) -> int:
    """The sum of an integer column; 0 without rows."""
    return int(pc.sum(rows[column]).as_py() or 0)


def _measures(folder: RunFolder, table: Table) -> pa.Table:
    path = folder.table(table)
    schema = table.arrow_schema()
    if not path.is_dir():
        return pa.Table.from_batches([], schema=schema)
    try:
        return pa.concat_tables(
            [pa.Table.from_batches([], schema=schema), *(_read_file(file, schema) for file in _files(path))]
        )
    except (pa.ArrowException, OSError, KeyError) as error:  # KeyError: an older version wrote fewer columns
        raise RunFolderError(
            f"{path} cannot be read: {next(iter(str(error).strip().splitlines()), type(error).__name__)}",
            hint=f"`bb analyze {folder.path}` rebuilds everything after `recorded/`.",
        ) from error


def _recorded(folder: RunFolder, table: Table) -> pa.Table:
    """What can be read; a run that was killed may leave a damaged file, and the rest is still true."""
    schema = table.arrow_schema()
    pieces = [pa.Table.from_batches([], schema=schema)]
    for path in _files(folder.table(table)):
        try:
            found = _opened(path).read()
            for field in schema:
                if field.nullable and field.name not in found.column_names:  # older than the column
                    found = found.append_column(field, pa.nulls(found.num_rows, field.type))
            pieces.append(found.select(schema.names).cast(schema))
        except (pa.ArrowException, OSError):
            continue
    return pa.concat_tables(pieces)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))


def _read_file(path: Path, schema: pa.Schema) -> pa.Table:
    # Not `pyarrow.dataset`: it loads pandas, which would cost every `bb` command a second.
    return _opened(path).read().select(schema.names).cast(schema)


def _opened(path: Path) -> pq.ParquetFile:
    """A file of a small table; one that claims more rows than any run has would not fit into memory."""
    file = pq.ParquetFile(path)
    if file.metadata.num_rows > MOST_ROWS:
        raise pa.ArrowInvalid(f"{path.name} has {file.metadata.num_rows} rows, more than the {MOST_ROWS} of any run")
    return file


def _decoding(folder: RunFolder, manifest: Manifest) -> Decoding:
    if is_decoded(folder):
        return "whole"
    if (folder.path / "decoded").is_dir():
        return "half"
    return "never" if any(capture.files for capture in manifest.captures) else "none"


def _capture_defects(folder: RunFolder) -> tuple[Defect, ...]:
    path = folder.decoded_summary_path
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Decoded).defects
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.MsgspecError) as error:
        return (Defect(file=str(path.relative_to(folder.path)), reason=f"cannot be read: {error}"),)


def _defects(folder: RunFolder) -> tuple[Defect, ...]:
    path = folder.path / "measures" / "defects.json"
    try:
        return tuple(msgspec.json.decode(path.read_bytes(), type=list[Defect]))
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.MsgspecError) as error:
        return (Defect(file=path.name, reason=f"cannot be read: {error}"),)
