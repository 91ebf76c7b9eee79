from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from battlebrokers.analysis.columns import (
    distinct,
    floats_of,
    group_codes,
    int64_array,
    numbers_of,
    ordered_groups,
    scalar_of,
    sums_by,
    text_scalar,
)


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


@pytest.mark.parametrize("size", [10, 10_000_000], ids=["counted in a table", "sorted"])
def test_different_codes_are_found_whether_dense_or_sparse(size):
    found, places = distinct(np.array([7, 3, 7, 9]), size)
    assert (found.tolist(), places.tolist()) == ([3, 7, 9], [1, 0, 1, 2])
    none, nowhere = distinct(np.empty(0, np.int64), 0)
    assert (none.tolist(), nowhere.tolist()) == ([], [])


def test_null_is_a_group_of_its_own_and_comes_last():
    rows = pa.table({"a": ["b", None, "a", None], "n": [1, 2, 3, 4]})
    assert ordered_groups(rows, ["a"])[1] == [("a",), ("b",), (None,)]
    assert sums_by(rows, ["a"], ["n"]) == [{"a": "a", "n": 3}, {"a": "b", "n": 1}, {"a": None, "n": 6}]


def test_sums_are_those_of_arrow_itself():
    dice = np.random.default_rng(5)
    rows = pa.table({name: dice.integers(0, 7, 2000) for name in "abn"} | {"kept": dice.integers(0, 2, 2000) == 1})
    arrows = rows.group_by(["a", "b"]).aggregate([("n", "sum"), ("kept", "sum")])
    wanted = arrows.sort_by([("a", "ascending"), ("b", "ascending")]).to_pylist()
    ours = sums_by(rows, ["a", "b"], ["n", "kept"])
    assert [(row["a"], row["b"], row["n_sum"], row["kept_sum"]) for row in wanted] == [tuple(r.values()) for r in ours]


def test_nothing_has_no_groups():
    empty = pa.table({"a": pa.array([], pa.string()), "n": pa.array([], pa.int64())})
    assert sums_by(empty, ["a"], ["n"]) == []


def test_nulls_are_not_numbers():
    assert np.isnan(floats_of(pa.chunked_array([[1, None]], pa.int64()))).tolist() == [False, True]
    assert floats_of(pa.array([], pa.int64())).tolist() == []


@pytest.mark.parametrize(
    ("value", "kind"), [("x", pa.string()), (3, pa.int8()), (True, pa.bool_()), (False, pa.bool_())]
)
def test_a_scalar_has_the_type_of_the_column_it_is_compared_with(value, kind):
    assert scalar_of(value, kind).equals(pa.scalar(value, kind))


def test_reporting_a_run_does_not_load_pandas(make_run, tmp_path):
    folder = make_run(expect=["lost == 0"]).lifelike(rate=20, lost_share=0.02).write()
    program = (
        "import sys; from pathlib import Path; from battlebrokers.tables.run_folder import RunFolder; "
        "from battlebrokers.analysis.conclusion import draw_conclusion; "
        "from battlebrokers.report.html import render_report; from battlebrokers.report.export import write_csv; "
        f"told = draw_conclusion(RunFolder(Path({str(folder.path)!r}))); assert told.summary.messages.lost; "
        f"assert 'Ledger' in render_report([told, told]); write_csv(told.facts, Path({str(tmp_path / 'csv')!r})); "
        "sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parent, check=False).returncode == 0


def test_groups_with_an_empty_name_are_sorted_among_the_others():
    rows = pa.table({"fleet": ["b", "", None, "a", ""], "n": pa.array([1, 2, 3, 4, 5], pa.int64())})
    assert sums_by(rows, ["fleet"], ["n"]) == [
        {"fleet": "", "n": 7}, {"fleet": "a", "n": 4}, {"fleet": "b", "n": 1}, {"fleet": None, "n": 3},
    ]  # fmt: skip
