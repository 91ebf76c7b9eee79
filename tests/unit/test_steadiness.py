"""Tests that fail beside others are repeated by themselves: which of them are excused, and which fail the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.steadiness import (
    MAX_REPEATED,
    MAX_UNSTEADY,
    Failure,
    append_failure,
    describe,
    judge,
    read_failures,
    without_group,
)

REPOSITORY = Path(__file__).parents[2]


def _failures(count: int) -> list[Failure]:
    return [Failure(f"tests/test_a.py::test_{number}", "call", f"assert {number} == 0") for number in range(count)]


def test_three_unsteady_tests_are_accepted_and_a_fourth_fails_the_run() -> None:
    assert judge(_failures(MAX_UNSTEADY), lambda _: True).passed
    outcome = judge(_failures(MAX_UNSTEADY + 1), lambda _: True)
    assert not outcome.passed
    assert "4 tests are unsteady; more than 3 fail the run" in describe(outcome)


def test_a_test_that_fails_again_fails_the_run() -> None:
    outcome = judge(_failures(2), lambda node_id: node_id.endswith("_0"))
    assert [failure.node_id for failure in outcome.unsteady] == ["tests/test_a.py::test_0"]
    assert [failure.node_id for failure in outcome.broken] == ["tests/test_a.py::test_1"]
    assert not outcome.passed


def test_an_unsteady_test_is_listed_with_its_first_failure() -> None:
    text = describe(judge(_failures(1), lambda _: True))
    assert "unsteady: tests/test_a.py::test_0" in text
    assert "assert 0 == 0" in text


def test_left_over_processes_and_unreadable_test_files_are_never_excused() -> None:
    left = Failure("tests/test_a.py::test_last", "teardown", "processes left running by tests (now killed):\n12 sh")
    unreadable = Failure("tests/test_b.py", "collect", "ImportError")
    outcome = judge([left, unreadable], lambda _: pytest.fail("nothing of this may be repeated"))
    assert outcome.broken == (left, unreadable)


def test_many_failures_are_not_repeated() -> None:
    outcome = judge(_failures(MAX_REPEATED + 1), lambda _: pytest.fail("a broken change is not repeated"))
    assert len(outcome.broken) == MAX_REPEATED + 1


def test_the_first_failure_of_a_test_is_kept_unless_a_later_one_is_never_excused(tmp_path: Path) -> None:
    path = tmp_path / "failures"
    first, second = Failure("a", "call", "first"), Failure("a", "teardown", "second")
    left = Failure("b", "teardown", "processes left running by tests")
    for failure in (first, second, Failure("b", "call", "excusable"), left):
        append_failure(path, failure)
    assert read_failures(path) == [first, left]


@pytest.mark.parametrize(
    ("node_id", "plain"),
    [
        ("tests/test_a.py::test_b", "tests/test_a.py::test_b"),
        ("tests/test_a.py::test_b@spark of pipeline", "tests/test_a.py::test_b"),
        ("tests/test_a.py::test_b[x@y]", "tests/test_a.py::test_b[x@y]"),
        ("tests/test_a.py::test_b[x@y]@network", "tests/test_a.py::test_b[x@y]"),
    ],
)
def test_the_xdist_group_is_no_part_of_a_test_id(node_id: str, plain: str) -> None:
    assert without_group(node_id) == plain


UNSTEADY = """
import os, pytest
@pytest.mark.xdist_group("shared")
def test_fails_beside_others():
    assert "PYTEST_XDIST_WORKER" not in os.environ, "beside others"
def test_passes():
    pass
"""


@pytest.mark.slow
def test_a_real_run_beside_others_and_by_itself(tmp_path: Path) -> None:
    file = tmp_path / "test_unsteady.py"
    file.write_text(UNSTEADY)
    failures = tmp_path / "failures"
    around = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    around["PYTHONPATH"] = f"{REPOSITORY / 'tests'}{os.pathsep}{REPOSITORY}"
    around["PYTEST_ADDOPTS"] = f"-p no:cacheprovider -p conftest --rootdir {tmp_path} -c /dev/null"
    first = ["-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", f"--record-failures={failures}", str(file)]
    done = subprocess.run([sys.executable, *first], cwd=tmp_path, env=around, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    assert [failure.node_id for failure in read_failures(failures)] == ["test_unsteady.py::test_fails_beside_others"]
    again = [sys.executable, "-m", "support.steadiness", str(failures)]
    repeated = subprocess.run(again, cwd=tmp_path, env=around, capture_output=True, text=True)
    assert repeated.returncode == 0, repeated.stdout + repeated.stderr
    assert "every test passes, 1 of them unsteady" in repeated.stdout
    assert "beside others" in repeated.stdout
