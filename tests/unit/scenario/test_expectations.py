from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.errors import QuantityError
from battlebrokers.scenario.expectations import METRICS, Expectation, parse_expectation


@pytest.mark.parametrize(
    ("text", "metric", "op", "value", "kind", "relative_to"),
    [
        ("delivery_p99 < 50ms", "delivery_p99", "<", 5e7, "duration", None),
        ("connect_p95<=1s", "connect_p95", "<=", 1e9, "duration", None),
        ("lost == 0", "lost", "==", 0, "count", None),
        ("lost < 5k", "lost", "<", 5000, "count", None),
        ("lost < 0.01%", "lost", "<", 0.0001, "fraction", "expected"),
        ("sent >= 99% of planned", "sent", ">=", 0.99, "fraction", "planned"),
        ("sent >= 99%", "sent", ">=", 0.99, "fraction", "planned"),
        ("acked >= 0.999 sent", "acked", ">=", 0.999, "fraction", "sent"),
        ("sent_rate >= 0.99 planned", "sent_rate", ">=", 0.99, "fraction", "planned"),
        ("delivered_rate >= 1000/s", "delivered_rate", ">=", 1000, "rate", None),
        ("delivered_rate >= 99% of expected", "delivered_rate", ">=", 0.99, "fraction", "expected"),
        ("duplicates != 1", "duplicates", "!=", 1, "count", None),
    ],
)  # fmt: skip
def test_expectations_are_read(
    text: str, metric: str, op: str, value: float, kind: str, relative_to: str | None
) -> None:
    found = parse_expectation(text)
    assert (found.metric, found.op, found.value, found.kind, found.relative_to) == (
        metric,
        op,
        value,
        kind,
        relative_to,
    )


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("los == 0", "`lost`"),
        ("delivery_p98 < 5ms", "`delivery_p9"),
        ("delivery_p99 < 5", '"5ms"'),
        ("sent_rate > 5", '"5/s"'),
        ("lost < 1 of expcted", "`expected`"),
        ("lost = 0", "lost == 0"),
    ],
)
def test_mistakes_come_with_the_nearest_valid_word(text: str, hint: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse_expectation(text)
    assert hint in caught.value.hint


@given(st.one_of(st.text(), st.integers(), st.none()))
def test_nonsense_is_never_a_crash(value: object) -> None:
    with pytest.raises(QuantityError):
        parse_expectation(value)


@given(st.sampled_from(METRICS), st.text(max_size=20))
def test_nonsense_on_the_right_is_never_a_crash(metric: str, right: str) -> None:
    with suppress(QuantityError):
        assert isinstance(parse_expectation(f"{metric} < {right}"), Expectation)


def test_delivery_is_another_word_for_response() -> None:
    assert parse_expectation("delivery_p99 < 1s").latency == ("response", "p99")
    assert parse_expectation("lag_max < 1s").latency == ("lag", "max")
    assert parse_expectation("connect_failures == 0").latency is None


def test_an_expectation_can_be_judged() -> None:
    assert parse_expectation("sent >= 99% of planned").holds(990, base=1000)
    assert not parse_expectation("sent >= 99% of planned").holds(989, base=1000)
    assert parse_expectation("lost == 0").holds(0)
    assert not parse_expectation("delivery_p99 < 50ms").holds(float("inf"))
