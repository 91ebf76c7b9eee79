"""Files that tasks write: whole or not there, one per task however often it runs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from battlebrokers.pipeline.stages.table_files import TableFile, read_file
from battlebrokers.tables import TRAFFIC


def _rows(count: int) -> pa.RecordBatch:
    row = {"sender": "a", "receiver": "b", "protocol": "mqtt", "part": "other", "messages": 1, "bytes": 2}
    return pa.RecordBatch.from_pylist([{"second": n, **row} for n in range(count)], schema=TRAFFIC.arrow_schema())


def _read(folder: Path, task: int) -> list[int]:
    return [second for batch in read_file(folder.as_uri(), task, ["second"]) for second in batch["second"].to_pylist()]


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    with TableFile(tmp_path.as_uri(), TRAFFIC, 3) as file:
        file.write(_rows(2))
        file.write(_rows(3))
    assert _read(tmp_path, 3) == [0, 1, 0, 1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["part-00003.parquet"]


def test_a_task_that_runs_again_replaces_its_file(tmp_path: Path) -> None:
    for count in (5, 2):
        with TableFile(str(tmp_path), TRAFFIC, 1) as file:
            file.write(_rows(count))
    assert _read(tmp_path, 1) == [0, 1]


def test_a_task_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with TableFile(str(tmp_path), TRAFFIC, 1) as file:
            for _ in range(6):
                file.write(_rows(50_000))
            raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_without_rows_only_the_first_task_writes_a_file(tmp_path: Path) -> None:
    for task in (0, 1):
        with TableFile(str(tmp_path), TRAFFIC, task):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["part-00000.parquet"]
    assert _read(tmp_path, 0) == _read(tmp_path, 1) == []
