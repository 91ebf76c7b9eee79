"""Whether measures and samples fit the run they are said to be of: their seconds and counts size charts and lists.

Called by `facts` for every run it reads. Measures that no analysis has written are refused, samples of another time
are left out. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from battlebrokers.analysis.columns import int64_array
from battlebrokers.clock import SECOND_NS
from battlebrokers.errors import RunFolderError
from battlebrokers.tables.manifest import Manifest
from battlebrokers.tables.manifest_checks import span_ns
from battlebrokers.tables.measures import BUCKET_LOST, BUCKET_TINY, LATENCIES, bucket_of
from battlebrokers.tables.run_folder import RunFolder

LARGEST_COUNT = 10**15
MOST_ROWS = 20_000_000
_LARGEST_BUCKET = bucket_of(float(1 << 63))
_SPARSE, _FEW_S = 50, 200_000
"""The timeline has a row for each second: a span of more seconds than this for each of its seconds is made up."""


def refuse_impossible(
    folder: RunFolder, manifest: Manifest, load_start_ns: int, measures: Mapping[str, pa.Table]
) -> None:
    """Refuse measures with seconds outside the run, or counts that no run reaches; the error names them."""
    low_ns, high_ns = span_ns(manifest)
    borders = (low_ns - load_start_ns) // SECOND_NS, (high_ns - load_start_ns) // SECOND_NS
    mistakes = [f"{name}: {mistake}" for name, rows in measures.items() for mistake in _mistakes(name, rows, *borders)]
    if mistakes:
        raise RunFolderError(
            f"the measures in {folder.path} are invalid: {'; '.join(mistakes[:4])}",
            hint=f"`bb analyze {folder.path}` computes them anew from what was recorded.",
        )


def within_run(manifest: Manifest, rows: pa.Table, column: str) -> pa.Table:
    """The rows whose moment lies in the run, or near it."""
    low, high = int64_array(span_ns(manifest))
    at = rows[column]
    return rows.filter(pc.and_(pc.greater_equal(at, low), pc.less_equal(at, high)))


def _mistakes(name: str, rows: pa.Table, first: int, last: int) -> Iterator[str]:
    if not rows.num_rows:
        return
    if "second" in rows.column_names:
        low, high = _borders(rows, "second")
        if low < first or high > last:
            yield f"seconds {low} to {high} of a run from second {first} to {last}"
        elif high - low > _SPARSE * pc.count_distinct(rows["second"]).as_py() + _FEW_S:
            yield f"seconds {low} to {high} with hardly any in between"
    if name == LATENCIES.name:
        finite = rows.filter(pc.not_equal(rows["bucket"], int64_array([BUCKET_LOST]).cast(pa.int32())[0]))
        low, high = _borders(finite, "bucket") if finite.num_rows else (0, 0)
        if low < BUCKET_TINY or high > _LARGEST_BUCKET:
            yield f"buckets {low} to {high}"
    for field in rows.schema:
        if field.type == pa.int64() and not field.name.endswith("_ns") and rows[field.name].null_count < rows.num_rows:
            low, high = _borders(rows, field.name)
            if low < -LARGEST_COUNT or high > LARGEST_COUNT:
                yield f"{field.name} from {low} to {high}"
        elif field.type == pa.float64() and pc.all(pc.is_finite(rows[field.name])).as_py() is False:
            yield f"{field.name} is not a number, or infinite"


def _borders(rows: pa.Table, column: str) -> tuple[int, int]:
    found = pc.min_max(rows[column]).as_py()
    return int(found["min"]), int(found["max"])
