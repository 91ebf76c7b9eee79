from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.pacing.schedule import NEVER, Schedule
from battlebrokers.scenario.nodes import PacePlan
from battlebrokers.scenario.paces import messages_until, parse_pace, placed, stagger_ns
from support.examples import examples

SECOND_NS = 1_000_000_000
FOREVER = 2**62

PACES = st.sampled_from(
    ["10ms", "3/s", "7k/s", "1s..2s", "0s..5ms", "poisson 20ms", "burst 10 every 100ms", "burst 3 every 7ms",
     "ramp 10/s..100/s over 3s", "ramp 0/s..200/s over 1s", "ramp 100/s..0/s over 2s", "ramp 50/s..50/s over 1s"]
)  # fmt: skip
SEEDS = st.integers(0, 2**63 - 1)


def everything(schedule: Schedule) -> np.ndarray:
    return schedule.take(NEVER - 1, 10**9)


@given(PACES, SEEDS, st.integers(0, 4 * SECOND_NS))
@examples(60)
def test_times_never_go_back_and_end_before_the_load_does(text: str, seed: int, until_ns: int) -> None:
    times = everything(Schedule(parse_pace(text), seed, None, until_ns))
    assert (np.diff(times) >= 0).all()
    assert ((times >= 0) & (times < until_ns)).all()


@given(PACES, SEEDS, st.lists(st.tuples(st.integers(0, SECOND_NS // 2), st.integers(1, 200)), max_size=30))
@examples(60)
def test_taking_in_pieces_gives_the_same_as_taking_all(text: str, seed: int, pieces: list[tuple[int, int]]) -> None:
    pace = parse_pace(text)
    whole = everything(Schedule(pace, seed, None, 4 * SECOND_NS))
    schedule = Schedule(pace, seed, None, 4 * SECOND_NS)
    taken: list[int] = []
    now_ns = 0
    for step_ns, limit in pieces:
        now_ns += step_ns
        peeked = schedule.peek_ns
        part = schedule.take(now_ns, limit).tolist()
        assert len(part) <= limit
        assert (part[0] == peeked) if part else (peeked > now_ns)
        assert all(time <= now_ns for time in part)
        taken += part
    taken += everything(schedule).tolist()
    assert taken == whole.tolist()
    assert schedule.peek_ns == NEVER


@given(PACES, SEEDS, st.lists(st.integers(0, SECOND_NS // 20), max_size=80))
@examples(60)
def test_taking_the_only_one_due_wherever_possible_gives_the_same_as_taking_all(
    text: str, seed: int, steps_ns: list[int]
) -> None:
    pace = parse_pace(text)
    whole = everything(Schedule(pace, seed, None, 4 * SECOND_NS)).tolist()
    schedule = Schedule(pace, seed, None, 4 * SECOND_NS)
    taken: list[int] = []
    now_ns = 0
    for step_ns in steps_ns:
        now_ns += step_ns
        only_ns = schedule.take_only(now_ns)
        if only_ns == NEVER:
            taken += schedule.take(now_ns, 10**9).tolist()
        else:
            taken.append(only_ns)
        assert taken == [time for time in whole if time <= now_ns]
    assert taken + everything(schedule).tolist() == whole


@given(PACES, SEEDS, st.integers(0, 50))
@examples(40)
def test_at_most_is_kept(text: str, seed: int, at_most: int) -> None:
    pace = parse_pace(text)
    limited = everything(Schedule(pace, seed, at_most, 4 * SECOND_NS))
    whole = everything(Schedule(pace, seed, None, 4 * SECOND_NS))
    assert limited.tolist() == whole[:at_most].tolist()


@given(PACES, SEEDS)
@examples(20)
def test_the_same_seed_gives_the_same_times(text: str, seed: int) -> None:
    one, two = (everything(Schedule(parse_pace(text), seed, None, SECOND_NS)) for _ in range(2))
    assert one.tolist() == two.tolist()


@pytest.mark.parametrize("text", ["poisson 1ms", "0s..2ms"])
def test_other_seeds_give_other_times(text: str) -> None:
    one, two = (everything(Schedule(parse_pace(text), seed, None, SECOND_NS)) for seed in (1, 2))
    assert one.tolist() != two.tolist()


@pytest.mark.parametrize("text", ["3/s", "7/s", "100/s", "5k/s", "1s", "1/min", "burst 10 every 1s"])
def test_steady_rates_are_exact_over_any_length(text: str) -> None:
    pace = parse_pace(text)
    for minutes in (1, 7):
        until_ns = minutes * 60 * SECOND_NS
        assert len(everything(Schedule(pace, 0, None, until_ns))) == round(messages_until(pace, until_ns))


@pytest.mark.parametrize(
    "text",
    ["poisson 2ms", "1ms..3ms", "ramp 100/s..900/s over 5s", "ramp 0/s..1k/s over 10s", "ramp 1k/s..0/s over 10s"],
)
def test_counts_follow_the_expected_number(text: str) -> None:
    pace = parse_pace(text)
    expected = messages_until(pace, 10 * SECOND_NS)
    found = [len(everything(Schedule(pace, seed, None, 10 * SECOND_NS))) for seed in range(5)]
    assert np.mean(found) == pytest.approx(expected, rel=0.03)


def test_gaps_of_a_uniform_pace_stay_in_their_range_and_fill_it() -> None:
    gaps = np.diff(everything(Schedule(parse_pace("20ms..60ms"), 5, None, 100 * SECOND_NS))) / 1e6
    assert 20 <= gaps.min() < 21
    assert 59 < gaps.max() <= 60


def test_gaps_of_a_poisson_pace_are_exponential() -> None:
    gaps = np.diff(everything(Schedule(parse_pace("poisson 5ms"), 5, None, 100 * SECOND_NS))) / 5e6
    assert gaps.mean() == pytest.approx(1, abs=0.03)
    assert gaps.std() == pytest.approx(1, abs=0.05)
    assert (gaps > 1).mean() == pytest.approx(np.exp(-1), abs=0.02)


def test_a_ramp_doubles_the_rate_it_should_double() -> None:
    times = everything(Schedule(parse_pace("ramp 100/s..200/s over 10s"), 0, None, 20 * SECOND_NS))
    per_second = np.bincount(times // SECOND_NS, minlength=20)
    assert per_second[0] == pytest.approx(105, abs=1)
    assert per_second[9] == pytest.approx(195, abs=1)
    assert (abs(per_second[11:] - 200) <= 1).all()


def test_a_burst_speaks_at_one_moment() -> None:
    assert everything(Schedule(parse_pace("burst 3 every 1s"), 0, None, 2 * SECOND_NS)).tolist() == [
        0,
        0,
        0,
        *[SECOND_NS] * 3,
    ]


def test_start_and_offset_move_everything() -> None:
    pace = placed(parse_pace("1s"), offset_ns=7, start_ns=100)
    assert Schedule(pace, 0, None, FOREVER).take(3 * SECOND_NS, 2).tolist() == [107, 107 + SECOND_NS]


@pytest.mark.parametrize("text", ["1s", "100/s", "1s..3s", "poisson 1s", "burst 10 every 1s", "ramp 1/s..3/s over 5s"])
def test_staggered_devices_take_turns(text: str) -> None:
    pace = parse_pace(text)
    devices = 500
    times = np.concatenate(
        [
            everything(Schedule(placed(pace, stagger_ns(pace, i, devices, i), 0), i, None, 10 * SECOND_NS))
            for i in range(devices)
        ]
    )
    per_100ms = np.bincount(times // (SECOND_NS // 10), minlength=100)
    assert per_100ms.max() < 3 * max(per_100ms.mean(), 50)


def test_staggered_random_intervals_start_in_steady_state() -> None:
    pace = parse_pace("1s..3s")
    devices = 2000
    times = np.concatenate(
        [
            everything(Schedule(placed(pace, stagger_ns(pace, i, devices, i), 0), i, None, 10 * SECOND_NS))
            for i in range(devices)
        ]
    )
    per_second = np.bincount(times // SECOND_NS, minlength=10)
    assert per_second == pytest.approx(np.full(10, devices / 2), rel=0.1)


def test_a_device_that_slept_catches_up_with_everything() -> None:
    schedule = Schedule(parse_pace("1ms"), 0, None, FOREVER)
    assert len(schedule.take(100 * SECOND_NS, 10**9)) == 100_001


def test_an_exhausted_schedule_says_never() -> None:
    schedule = Schedule(parse_pace("1s"), 0, 0, FOREVER)
    assert schedule.peek_ns == NEVER
    assert len(schedule.take(NEVER, 10)) == 0
    assert Schedule(parse_pace("1s"), 0, None, 0).peek_ns == NEVER


def test_what_was_taken_is_not_changed_by_taking_more() -> None:
    schedule = Schedule(parse_pace("1ms"), 0, None, FOREVER)
    first = schedule.take(50_000_000, 5)
    kept = first.tolist()
    schedule.take(SECOND_NS, 500)
    assert first.tolist() == kept


def test_a_steady_schedule_is_small() -> None:
    schedule = Schedule(parse_pace("1s"), 0, None, FOREVER)
    for _ in range(100):
        schedule.take(schedule.peek_ns, 1)
    block = schedule._block
    own = sys.getsizeof(schedule) + sys.getsizeof(block) + (0 if block.base is None else sys.getsizeof(block.base))
    assert own < 600


def test_never_is_a_rate_of_zero() -> None:
    assert parse_pace("ramp 0/s..1/s over 1s") == PacePlan("ramp", NEVER, SECOND_NS, ramp_ns=SECOND_NS)
