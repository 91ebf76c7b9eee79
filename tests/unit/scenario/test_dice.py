from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.scenario import dice

SEEDS = st.integers(0, 2**63 - 1)


@given(SEEDS, st.integers(0, 2**40), st.integers(0, 40), st.integers(1, 2**32))
def test_one_by_one_and_in_blocks_are_the_same(seed: int, first: int, count: int, limit: int) -> None:
    places = range(first, first + count)
    assert dice.rolls(seed, first, count).tolist() == [dice.roll(seed, n) for n in places]
    assert dice.belows(seed, first, count, limit).tolist() == [dice.below(seed, n, limit) for n in places]
    assert dice.units(seed, first, count).tolist() == [dice.unit(seed, n) for n in places]


def test_seeds_are_the_same_on_every_machine() -> None:
    assert dice.seed_of(7, "air", 0) == 4473163838728536121
    assert dice.roll(7, 0) == 7191089600892374487
    assert len({dice.seed_of(7, "air", n) for n in range(1000)}) == 1000
    assert 0 <= dice.seed_of("x") < 2**63


def test_rolls_are_even() -> None:
    units = dice.units(3, 0, 100_000)
    assert abs(units.mean() - 0.5) < 0.01
    assert np.histogram(units, bins=10, range=(0, 1))[0].min() > 9_000


def test_branches_are_different_streams() -> None:
    assert len({dice.branch(5, n) for n in range(5)} | {5}) == 6


@given(st.lists(st.tuples(SEEDS, st.integers(0, 2**32 - 1), st.integers(1, 2**32)), max_size=20))
def test_many_seeds_at_once_roll_what_each_rolls_alone(thrown: list[tuple[int, int, int]]) -> None:
    seeds, places, limits = (np.array([one[n] for one in thrown], np.int64) for n in range(3))
    assert dice.belows_at(seeds, places, limits).tolist() == [dice.below(*one) for one in thrown]
