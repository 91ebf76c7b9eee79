from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from battlebrokers.analysis.stored import group_codes, int64_array, is_stored, numbers_of, pieces, text_scalar, whole
from battlebrokers.errors import RunFolderError
from battlebrokers.tables import HOPS, STREAMS
from battlebrokers.tables.run_folder import RunFolder
from support.wires import START_NS, Wires, small_system


def test_pieces_are_the_table(tmp_path):
    folder = small_system().write(tmp_path)
    parts = list(pieces(folder, HOPS, ("trace", "sender")))
    assert len(parts) == 2
    assert sum(part.num_rows for part in parts) == whole(folder, HOPS).num_rows == 398
    assert parts[0].column_names == ["trace", "sender"]


def test_a_table_that_is_not_there_is_empty(tmp_path):
    folder = RunFolder(tmp_path)
    assert not is_stored(folder, STREAMS)
    assert whole(folder, STREAMS).num_rows == 0
    assert list(pieces(folder, STREAMS)) == []


def test_an_older_file_without_a_column_is_a_clear_error(tmp_path):
    folder = Wires().write(tmp_path)
    pq.write_table(pa.table({"stream": [1]}), folder.table(STREAMS) / "part-00000.parquet")
    with pytest.raises(RunFolderError, match="cannot be read"):
        whole(folder, STREAMS)


def test_arrays_and_scalars_are_what_arrow_would_make():
    assert int64_array([3, -1]).to_pylist() == [3, -1]
    assert int64_array([]).to_pylist() == []
    assert text_scalar("grün").as_py() == "grün"
    assert text_scalar("").as_py() == ""
    assert numbers_of(pa.chunked_array([[1, 2], [3]])).tolist() == [1, 2, 3]
    assert numbers_of(pa.array([0, 1, 2]).slice(1)).tolist() == [1, 2]


def test_groups_are_numbered_and_named():
    rows = pa.table({"a": ["x", "y", "x", "x"], "b": [1, 1, 1, 2]})
    groups, keys = group_codes(rows, ["a", "b"])
    assert [keys[number] for number in groups.tolist()] == [("x", 1), ("y", 1), ("x", 1), ("x", 2)]
    assert np.bincount(groups).tolist() == [2, 1, 1]
    assert group_codes(rows.slice(0, 0), ["a"])[1] == []


def test_looking_at_captures_does_not_load_pandas(tmp_path):
    wires = small_system()
    wires.stream(99, None, None, None, first_ns=START_NS)
    wires.write(tmp_path)
    program = (
        "import sys; from pathlib import Path; from battlebrokers.analysis.wire import read_wire; "
        "from battlebrokers.tables.run_folder import RunFolder; "
        f"assert read_wire(RunFolder(Path({str(tmp_path)!r}))).followed == 100; "
        "sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parent, check=False).returncode == 0
