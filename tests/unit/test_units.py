from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.errors import BattleError, ExitCode, QuantityError
from battlebrokers.units import (
    duration_text,
    format_count,
    format_duration,
    format_percent,
    format_rate,
    format_size,
    parse_count,
    parse_duration_ns,
    parse_percent,
    parse_rate,
    parse_rate_per_s,
    parse_size_bytes,
)

PARSERS = (parse_duration_ns, parse_rate, parse_size_bytes, parse_count, parse_percent)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("10ms", 10_000_000),
        ("1.5s", 1_500_000_000),
        ("1m30s", 90_000_000_000),
        ("2h", 7_200_000_000_000),
        ("250µs", 250_000),
        ("250us", 250_000),
        (" 5 s ", 5_000_000_000),
        ("0", 0),
        (0, 0),
        (0.0, 0),
        ("0s", 0),
    ],
)
def test_durations_are_exact_nanoseconds(text: object, ns: int) -> None:
    assert parse_duration_ns(text) == ns


@pytest.mark.parametrize(
    ("text", "per_s"), [("100/s", 100), ("5k/s", 5000), ("20/min", 1 / 3), ("1.5M/s", 1.5e6), ("0/s", 0)]
)
def test_rates_are_per_second(text: str, per_s: float) -> None:
    assert parse_rate_per_s(text) == pytest.approx(per_s)


def test_a_third_per_second_stays_exact() -> None:
    assert parse_rate("20/min") * 3 == 1


@pytest.mark.parametrize(
    ("text", "size"),
    [(30, 30), ("30B", 30), ("2KiB", 2048), ("1MB", 1_000_000), ("1.5KiB", 1536), ("30 bytes", 30), (0, 0)],
)
def test_sizes_are_bytes(text: object, size: int) -> None:
    assert parse_size_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "count"),
    [(50, 50), ("10k", 10_000), ("1M", 1_000_000), ("50 messages", 50), ("1 000", 1000), ("1.5k", 1500)],
)
def test_counts_are_whole_numbers(text: object, count: int) -> None:
    assert parse_count(text) == count


def test_a_percentage_is_a_fraction() -> None:
    assert parse_percent("0.01%") == 0.0001


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("bad", ["", "abc", "-5s", "5 parsecs", True, None, [], {}, "1e999s", "9" * 5000, "\x00", "٣s"])
def test_nonsense_is_refused_with_a_clear_error(parse: object, bad: object) -> None:
    with pytest.raises(QuantityError) as caught:
        parse(bad)  # type: ignore[operator]
    assert isinstance(caught.value, BattleError)
    assert isinstance(caught.value, ValueError)
    assert caught.value.exit_code == ExitCode.INVALID_INPUT
    assert len(caught.value.message) < 200


def test_a_number_without_unit_is_told_which_unit_it_may_mean() -> None:
    with pytest.raises(QuantityError, match="5 has no unit") as duration:
        parse_duration_ns(5)
    assert '"5s"' in duration.value.hint
    with pytest.raises(QuantityError, match="5k has no unit") as rate:
        parse_rate("5k")
    assert '"5k/s"' in rate.value.hint


@given(st.one_of(st.text(), st.integers(), st.floats(), st.none(), st.booleans()))
def test_parsers_only_ever_raise_quantity_errors(value: object) -> None:
    for parse in PARSERS:
        try:
            parse(value)
        except QuantityError:
            continue


@given(st.integers(0, 2**61))
def test_duration_text_parses_back_to_the_same_duration(duration_ns: int) -> None:
    assert parse_duration_ns(duration_text(duration_ns)) == duration_ns


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 s"),
        (850, "850 ns"),
        (31_200_000, "31.2 ms"),
        (999_600, "1 ms"),
        (4_500_000_000, "4.5 s"),
        (90e9, "90 s"),
        (125e9, "2 min 5 s"),
        (1800e9, "30 min"),
        (7500e9, "2 h 5 min"),
        (-5e6, "-5 ms"),
        (math.inf, "∞"),
    ],
)
def test_durations_for_people(ns: float, text: str) -> None:
    assert format_duration(ns) == text


def test_sizes_counts_rates_and_percentages_for_people() -> None:
    assert format_size(30) == "30 B"
    assert format_size(3481) == "3.4 KiB"
    assert format_size(1048576) == "1 MiB"
    assert format_count(1203114) == "1 203 114"
    assert format_count(0.5) == "0.5"
    assert format_rate(12031.4) == "12 031/s"
    assert format_percent(0.0001) == "0.01 %"


@given(st.floats(allow_nan=False), st.sampled_from([format_duration, format_size, format_count, format_rate]))
def test_formatters_take_any_number(value: float, show: object) -> None:
    assert show(value)  # type: ignore[operator]
