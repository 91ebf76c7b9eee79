from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.errors import QuantityError
from battlebrokers.scenario.topics import TopicChooser, check_filter, check_share, check_topic, filter_matches


@pytest.mark.parametrize(
    ("topic_filter", "topic", "matches"),
    [
        ("sport/tennis/player1", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/#", "sport", True),
        ("#", "a/b/c", True),
        ("#", "/", True),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("#", "$SYS/uptime", False),
        ("+/uptime", "$SYS/uptime", False),
        ("$SYS/#", "$SYS/uptime", True),
        ("$SYS/+", "$SYS/uptime", True),
        ("a/b", "a/B", False),
    ],
)
def test_filters_match_as_mqtt_says(topic_filter: str, topic: str, matches: bool) -> None:
    assert filter_matches(topic_filter, topic) is matches


@pytest.mark.parametrize("topic", ["", "a/+", "#", "a#b", "a\0b", "$SYS/x", "x" * 65_536, "\ud800"])
def test_invalid_topics_are_refused(topic: str) -> None:
    with pytest.raises(QuantityError):
        check_topic(topic)


@pytest.mark.parametrize("topic_filter", ["", "a/#/b", "a#", "a+/b", "+a", "a\0", "$share/group/a", "\udfff"])
def test_invalid_filters_are_refused(topic_filter: str) -> None:
    with pytest.raises(QuantityError):
        check_filter(topic_filter)


@pytest.mark.parametrize("topic_filter", ["#", "+", "+/+/#", "/", "a//b", "$SYS/#", "größe/+"])
def test_valid_filters_are_taken(topic_filter: str) -> None:
    check_filter(topic_filter)


def test_a_shared_group_is_a_plain_word() -> None:
    check_share("crew")
    for group in ("", "a/b", "a+", "#"):
        with pytest.raises(QuantityError):
            check_share(group)


def test_one_topic_needs_no_choice() -> None:
    assert TopicChooser(("a",), "random", 1).choose(5, 10) == 0


def test_round_robin_goes_round() -> None:
    assert TopicChooser(("a", "b", "c"), "round-robin", 1).choose(2, 5).tolist() == [2, 0, 1, 2, 0]  # type: ignore[union-attr]


@given(st.integers(0, 2**62), st.integers(0, 1000), st.integers(1, 50), st.integers(2, 9))
def test_random_choice_depends_on_seed_and_number_only(seed: int, first: int, count: int, topics: int) -> None:
    chooser = TopicChooser(tuple("abcdefghi"[:topics]), "random", seed)
    whole = chooser.choose(0, first + count)
    assert isinstance(whole, np.ndarray)
    assert chooser.choose(first, count).tolist() == whole[first:].tolist()  # type: ignore[union-attr]
    assert ((whole >= 0) & (whole < topics)).all()


def test_random_choice_uses_all_topics_alike() -> None:
    chosen = TopicChooser(tuple("abcd"), "random", 9).choose(0, 40_000)
    assert np.bincount(chosen, minlength=4).min() > 9_500
