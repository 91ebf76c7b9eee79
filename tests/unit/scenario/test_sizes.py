from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.errors import QuantityError
from battlebrokers.scenario.nodes import SizePlan
from battlebrokers.scenario.sizes import draw_size, mean_size, parse_size, size_text

KINDS = [30, "180..400", "normal 256KiB ± 64KiB", [30, "4KiB"], "normal 20 +- 10"]


def test_the_ways_to_write_a_size() -> None:
    assert parse_size("2KiB") == SizePlan("fixed", 2048, 2048)
    assert parse_size("180B..4KiB") == SizePlan("uniform", 180, 4096)
    assert parse_size([30, "1KiB"]) == SizePlan("choice", 30, 1024, choices=(30, 1024))
    for sign in ("±", "+-", "+/-"):
        normal = parse_size(f"normal 256KiB {sign} 64KiB")
        assert (normal.kind, normal.mean, normal.spread) == ("normal", 262144, 65536)


@pytest.mark.parametrize("value", KINDS)
def test_a_size_kept_as_text_reads_the_same(value: object) -> None:
    assert parse_size(size_text(value)) == parse_size(value)


@given(st.sampled_from(KINDS), st.integers(0, 2**62), st.integers(0, 2**32))
def test_drawn_sizes_stay_in_their_limits(value: object, seed: int, seq: int) -> None:
    plan = parse_size(value)
    size = draw_size(plan, seed, seq)
    assert plan.low <= size <= plan.high
    assert size == draw_size(plan, seed, seq)


@pytest.mark.parametrize("value", KINDS)
def test_drawn_sizes_have_the_mean_they_should(value: object) -> None:
    plan = parse_size(value)
    drawn = [draw_size(plan, 3, seq) for seq in range(4000)]
    assert sum(drawn) / len(drawn) == pytest.approx(mean_size(plan), rel=0.15)


def test_a_payload_meant_to_hold_a_header_always_does() -> None:
    assert parse_size("normal 20 ± 10").low == 16


@pytest.mark.parametrize(
    "value", [-1, "-1", "5..1", [], True, None, {}, "normal 5", "300MB", "x" * 9999, "1..2..3", [30, "x"], 1.5]
)
def test_wrong_sizes_are_refused(value: object) -> None:
    with pytest.raises(QuantityError):
        parse_size(value)
