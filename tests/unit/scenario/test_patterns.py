from __future__ import annotations

import pytest

from battlebrokers.errors import QuantityError
from battlebrokers.scenario.patterns import DEVICE_VARIABLES, compile_pattern, nearest

VALUES = {"device": "air-1", "fleet": "air", "index": "1", "number": "0", "category": "gas", "run": "abcd"}


def test_variables_are_filled_in() -> None:
    assert compile_pattern("100%/{fleet}/{device}", DEVICE_VARIABLES).render(VALUES) == "100%/air/air-1"


def test_a_range_stands_for_several_texts() -> None:
    pattern = compile_pattern("{fleet}/{int:1..2}/{int:8..9}", DEVICE_VARIABLES, ranges=True)
    assert pattern.expand(VALUES) == ["air/1/8", "air/1/9", "air/2/8", "air/2/9"]


def test_other_braces_are_plain_text() -> None:
    assert compile_pattern('{"a": {}} {A} {1}', DEVICE_VARIABLES).render(VALUES) == '{"a": {}} {A} {1}'


@pytest.mark.parametrize(
    "text", ["{devcie}", "{int}", "{int:5..1}", "{int:a..b}", "{int:1..99999}", "{device:3}", "{env:HOME}"]
)
def test_unknown_variables_are_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        compile_pattern(text, DEVICE_VARIABLES, ranges=True)


def test_the_nearest_variable_is_named() -> None:
    with pytest.raises(QuantityError) as caught:
        compile_pattern("{devcie}", DEVICE_VARIABLES)
    assert caught.value.hint == "did you mean `device`?"


def test_secrets_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BB_TEST_SECRET", "s3cret")
    assert (
        compile_pattern("{env:BB_TEST_SECRET}-{index}", DEVICE_VARIABLES, environment=True).render(VALUES) == "s3cret-1"
    )
    with pytest.raises(QuantityError, match="no BB_TEST_ABSENT"):
        compile_pattern("{env:BB_TEST_ABSENT}", DEVICE_VARIABLES, environment=True)


def test_without_a_near_word_all_are_named() -> None:
    assert nearest("zzz", ("tcp", "tls")) == "valid: `tcp`, `tls`"
    assert nearest("zzz", ()) == ""
