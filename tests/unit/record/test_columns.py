from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from battlebrokers.record.columns import column, known_or_null, numbers, words


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float64()])
def test_numbers_keep_their_values_and_take_the_wanted_type(kind):
    array = numbers(np.array([1, 2, 127]), kind)
    array.validate(full=True)
    assert array.type == kind
    assert array.to_pylist() == [1, 2, 127]


def test_every_other_row_of_a_structured_array_can_become_a_column():
    rows = np.zeros(9, dtype=[("a", "<i8"), ("b", "u1")])
    rows["b"] = range(9)
    assert numbers(rows["b"][::2], pa.int8()).to_pylist() == [0, 2, 4, 6, 8]


def test_negative_numbers_become_null():
    array = known_or_null(np.array([3, -1, 0, -1, 7]), pa.int16())
    array.validate(full=True)
    assert array.to_pylist() == [3, None, 0, None, 7]
    assert array.null_count == 2


def test_flags_become_booleans():
    flags = np.arange(19) % 3 == 0
    assert numbers(flags, pa.bool_()).to_pylist() == flags.tolist()


def test_words_are_named_by_their_place_and_negative_places_are_null():
    array = words(["a", "bäh", ""], np.array([1, -1, 0, 2, 1]))
    array.validate(full=True)
    assert array.to_pylist() == ["bäh", None, "a", "", "bäh"]


def test_no_rows_make_an_empty_column():
    assert words([], np.empty(0, dtype=np.int32)).to_pylist() == []
    assert column((), pa.field("x", pa.string())).to_pylist() == []
    assert column((), pa.field("x", pa.int64())).to_pylist() == []


def test_python_values_with_none_become_columns_of_their_field():
    assert column(("x", None, "y", "x"), pa.field("t", pa.string())).to_pylist() == ["x", None, "y", "x"]
    assert column((1, None, 3), pa.field("n", pa.int16())).to_pylist() == [1, None, 3]
    assert column((True, None, False), pa.field("f", pa.bool_())).to_pylist() == [True, None, False]
    assert column((1.5, None), pa.field("f", pa.float64())).to_pylist() == [1.5, None]


def test_text_that_is_no_unicode_is_recorded_all_the_same():
    assert column(("\ud800x",), pa.field("t", pa.string())).to_pylist() == ["?x"]


def test_recording_a_run_never_imports_pandas(tmp_path):
    # Importing pandas takes a second or more, in the middle of a load.
    program = """
import sys, numpy as np
from pathlib import Path
from battlebrokers.record.recorder import Recorder
recorder = Recorder(Path(sys.argv[1]), "w")
recorder.nodes([("device", 0, "d-0", "d", "mqtt", None)])
recorder.publishes.add(1, 0, recorder.topic_id("t"), 0, 1, 1, 8, 1, 1, 2, 0, 0)
recorder.deliveries.add(2, 0, 0, 0, 1, -1, 8, 10, 0)
recorder.operation(("client", 0, "connect", 1, 2, "ok", None, "", None, None, None, None, True, False, None, 1))
recorder.finish(3)
assert not recorder.failure, recorder.failure
assert "pandas" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
