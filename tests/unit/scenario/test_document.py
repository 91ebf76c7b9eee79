from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.scenario.document import LARGEST_BYTES, parse_value, read_document
from support.examples import examples


def mistakes(text: str) -> list[str]:
    return [str(mistake) for mistake in read_document(text, "f.yaml").mistakes]


def test_values_come_with_their_lines() -> None:
    document = read_document("a: 1\nb:\n  c: x\n  d:\n    - 2.5\n    - true\n", "f.yaml")
    assert document.data == {"a": 1, "b": {"c": "x", "d": [2.5, True]}}
    assert document.mistakes == []
    assert document.line_of(("b", "d", 1)) == 6
    assert document.line_of(("b", "c")) == 3
    assert document.line_of(("b", "absent", "deeper")) == 2


def test_plain_words_stay_words() -> None:
    text = "a: yes\nb: 3.1.1\nc: 2020-01-01\nd: 1:30\ne: .inf\nf: 012\ng: 0x10\nh: 1_000\ni: >-\n  two\n  lines\n"
    assert read_document(text, "").data == {
        "a": "yes", "b": "3.1.1", "c": "2020-01-01", "d": "1:30", "e": ".inf", "f": 12, "g": 16, "h": 1000,
        "i": "two lines",
    }  # fmt: skip


def test_anchors_and_merges_work() -> None:
    document = read_document("a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}\nc: *x\n", "")
    assert document.data == {"a": {"p": 1, "q": 2}, "b": {"p": 1, "q": 3}, "c": {"p": 1, "q": 2}}
    assert document.mistakes == []


def test_duplicate_keys_name_both_lines() -> None:
    assert mistakes("a: 1\nb: 2\na: 3\n") == ["f.yaml:3: a: `a` is said twice (first in line 1)"]


def test_a_key_without_value_is_a_mistake() -> None:
    assert mistakes("a:\nb: ~\nc: 1\n") == [
        "f.yaml:1: a: `a` has no value (give it one, or leave the key out)",
        "f.yaml:2: b: `b` has no value (give it one, or leave the key out)",
    ]


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        ("- a\n", "is not a mapping"),
        ("just words", "is not a mapping"),
        ("a: [1, 2", "is not valid YAML"),
        ("a:\n\tb: 1\n", "a tab indents this line"),
        ('a: "x', "is not valid YAML"),
        ("a: *nobody\n", "undefined alias"),
        ("a: 1\n---\nb: 2\n", "second document"),
        ("a: !!python/object:os.system x\n", "tag"),
        ("a: !secret x\n", "tag"),
        ("\x00\x01\x02", "is not text"),
        pytest.param("[" * 10_000, "nested too deeply", marks=pytest.mark.slow, id="brackets"),
        pytest.param("[" * 100_000, "nested more than", marks=pytest.mark.slow, id="endless brackets"),
        pytest.param("a: [" + "x," * 100_000, "holds more than", marks=pytest.mark.slow, id="endless values"),
        ("{a: " * 200 + "1" + "}" * 200, "nested"),
        ("a: &a [*a]\n", "levels deep"),
        ("a: &a {b: *a}\n", "levels deep"),
        (BOMB, "unfolds to more than"),
        ("a: " + "x" * LARGEST_BYTES, "is larger than"),
        ("? [a, b]\n: 1\n", "a key must be a word"),
        ("<<: 5\na: 1\n", "<< needs a mapping"),
        ("a: &a {<<: *a}\n", "merges itself"),
        ("%YAML 9.9\n---\na: 1\n", "YAML"),
        ("a: 1\n b: 2\n", "is not valid YAML"),
    ],
)
def test_hostile_input_gives_a_clear_mistake(text: str, part: str) -> None:
    assert any(part in mistake for mistake in mistakes(text)), mistakes(text)


@given(st.one_of(st.text(max_size=200), st.text(alphabet="ab:&*<>[]{}-? \n\t|'\"!%#,~0.", max_size=80)))
@examples(300)
def test_no_text_crashes_the_reader(text: str) -> None:
    document = read_document(text, "f.yaml")
    assert document.mistakes or isinstance(document.data, dict)
    parse_value(text)


def test_a_value_on_the_command_line_is_read_as_yaml() -> None:
    assert parse_value("5") == 5
    assert parse_value("5s") == "5s"
    assert parse_value("[a, b]") == ["a", "b"]
    assert parse_value("{a: 1}") == {"a": 1}
    assert parse_value("null") is None
    assert parse_value("") is None
    assert parse_value("lost == 0") == "lost == 0"
    assert parse_value('{"broken') == '{"broken'
