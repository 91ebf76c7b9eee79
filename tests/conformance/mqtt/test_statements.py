"""The table of statements is complete: every number of both specifications once, and every test it names exists."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from support.mqtt_statements import TABLE, Statement, conformance_page, read_statements

ROOT = Path(__file__).resolve().parents[3]
ROWS = read_statements(TABLE.read_text("utf-8"))

OLD = {
    "1.5.3": 3, "2.2.2": 2, "2.3.1": 7, "3.1.0": 2, "3.1.2": 24, "3.1.3": 11, "3.1.4": 5, "3.2.0": 1, "3.2.2": 6,
    "3.3.1": 12, "3.3.2": 3, "3.3.4": 1, "3.3.5": 2, "3.6.1": 1, "3.8.1": 1, "3.8.3": 4, "3.8.4": 6, "3.9.3": 2,
    "3.10.1": 1, "3.10.3": 2, "3.10.4": 6, "3.12.4": 1, "3.14.1": 1, "3.14.4": 3, "4.1.0": 2, "4.3.1": 1, "4.3.2": 2,
    "4.3.3": 2, "4.4.0": 1, "4.5.0": 2, "4.6.0": 6, "4.7.1": 3, "4.7.2": 1, "4.7.3": 4, "4.8.0": 2, "6.0.0": 4,
    "7.0.0": 2, "7.1.1": 1, "7.1.2": 1,
}  # fmt: skip
"""How many statements each section of 3.1.1 has; they are numbered from 1. The text writes 3.1.2-7 as 3.1.2.7 and
3.8.3-4 as 3-8.3-4."""
NEW = {
    "1.5.4": 3, "1.5.5": 1, "1.5.7": 1, "2.1.3": 1, "2.2.1": 6, "2.2.2": 1, "3.1.0": 2, "3.1.2": 30, "3.1.3": 12,
    "3.1.4": 6, "3.2.0": 2, "3.2.2": 22, "3.3.1": 13, "3.3.2": 20, "3.3.4": 10, "3.4.2": 3, "3.5.2": 3, "3.6.1": 1,
    "3.6.2": 3, "3.7.2": 3, "3.8.1": 1, "3.8.3": 5, "3.8.4": 8, "3.9.2": 2, "3.9.3": 2, "3.10.1": 1, "3.10.3": 2,
    "3.10.4": 6, "3.11.2": 2, "3.11.3": 2, "3.12.4": 1, "3.14.0": 1, "3.14.1": 1, "3.14.2": 4, "3.14.4": 3,
    "3.15.1": 1, "3.15.2": 3, "4.1.0": 2, "4.2.0": 1, "4.3.1": 1, "4.3.2": 5, "4.3.3": 13, "4.4.0": 2, "4.5.0": 2,
    "4.6.0": 6, "4.7.0": 1, "4.7.1": 2, "4.7.2": 1, "4.7.3": 4, "4.8.2": 6, "4.9.0": 3, "4.12.0": 7, "4.12.1": 2,
    "4.13.1": 1, "4.13.2": 1, "6.0.0": 4,
}  # fmt: skip
"""The same for MQTT 5, whose appendix writes 4.2-1 as 4.2.0-1."""
MISSING = {"2.2.1-1"}
"""A number MQTT 5 does not give to any statement."""


def numbers_of(sections: dict[str, int]) -> set[str]:
    return {f"{section}-{number}" for section, count in sections.items() for number in range(1, count + 1)}


@pytest.mark.parametrize(("version", "expected"), [("old", numbers_of(OLD)), ("new", numbers_of(NEW) - MISSING)])
def test_every_number_of_the_specification_is_there_once(version: str, expected: set[str]):
    told = Counter(number for row in ROWS for number in getattr(row, version))
    assert set(told) == expected
    assert [number for number, times in told.items() if times > 1] == []


def test_the_specifications_have_so_many_statements():
    assert len(numbers_of(OLD)) == 141
    assert len(numbers_of(NEW) - MISSING) == 251


@cache
def functions_of(file: str) -> frozenset[str]:
    """The tests of one file."""
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: ",".join((*row.old, *row.new)))
def test_a_statement_that_binds_clients_says_what_we_do_and_which_test_shows_it(row: Statement):
    assert row.old or row.new
    assert row.whom in {"client", "both", "server"}
    assert row.words
    if row.whom != "server":
        assert row.conduct != "-"
        assert row.tests or row.untested
    for file, named in row.tests:
        test, _, case = named.rstrip("]").partition("[")
        assert test in functions_of(file), f"{file} has no {test}"
        assert not case or f'"{case}": ' in (ROOT / file).read_text("utf-8"), f"{test} has no case {case!r}"


def test_no_test_is_missing():
    assert [number for row in ROWS if row.untested for number in (*row.old, *row.new)] == []


def test_the_page_shows_every_number():
    page = conformance_page(TABLE.read_text("utf-8"))
    for row in ROWS:
        for number in (*row.old, *row.new):
            assert f"MQTT-{number} " in page or f"MQTT-{number}," in page
