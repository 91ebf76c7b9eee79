from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from battlebrokers.analysis.stored import is_stored, pieces, whole
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
