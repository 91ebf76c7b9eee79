from __future__ import annotations

import gc
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.pipeline.topic_match import FilterTree, match_topics


@pytest.mark.parametrize(
    ("topic_filter", "topic", "matches"),
    [
        ("sport/tennis", "sport/tennis", True),
        ("sport/tennis", "sport/tennis/player", False),
        ("sport/#", "sport", True),
        ("sport/#", "sport/tennis/player", True),
        ("sport/#", "sports", False),
        ("#", "anything/at/all", True),
        ("#", "/", True),
        ("+", "finance", True),
        ("+", "/finance", False),
        ("/+", "/finance", True),
        ("+/+", "/finance", True),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("sport/+/player", "sport/tennis/player", True),
        ("sport/+/player", "sport/tennis/coach", False),
        ("+/tennis/#", "sport/tennis", True),
        ("#", "$SYS/broker/uptime", False),
        ("+/broker/uptime", "$SYS/broker/uptime", False),
        ("$SYS/#", "$SYS/broker/uptime", True),
        ("$SYS/+/uptime", "$SYS/broker/uptime", True),
        ("a/#", "a/$b", True),
        ("", "", True),
        ("a//b", "a//b", True),
        ("a/+/b", "a//b", True),
    ],
)
def test_filters_match_as_the_standard_says(topic_filter: str, topic: str, matches: bool) -> None:
    assert FilterTree([topic_filter]).matching(topic) == ([0] if matches else [])


def _by_definition(topic_filter: str, topic: str) -> bool:
    if topic.startswith("$") and topic_filter[:1] in {"#", "+"}:
        return False
    pattern = re.escape(topic_filter).replace(r"\+", "[^/]*")
    if topic_filter == "#":
        pattern = ".*"
    elif topic_filter.endswith("/#"):
        pattern = pattern.removesuffix(r"/\#") + "(/.*)?"
    return re.fullmatch(pattern, topic) is not None


WORDS = st.sampled_from(["a", "b", "", "$x"])


@given(
    st.lists(st.lists(st.one_of(WORDS, st.just("+")), min_size=1, max_size=4).map("/".join), max_size=6),
    st.lists(st.booleans(), min_size=6, max_size=6),
    st.lists(WORDS, min_size=1, max_size=5).map("/".join),
)
def test_the_tree_agrees_with_a_regular_expression(filters: list[str], hashes: list[bool], topic: str) -> None:
    wild = [one + "/#" if hash_ else one for one, hash_ in zip(filters, hashes, strict=False)]
    assert FilterTree(wild).matching(topic) == [n for n, one in enumerate(wild) if _by_definition(one, topic)]


def test_pairs_name_topics_and_filters_by_their_place() -> None:
    found = match_topics(["a/b", "c", "a/d"], ["a/+", "c", "x/#", "#"])
    assert found == [(0, 0), (0, 3), (1, 1), (1, 3), (2, 0), (2, 3)]


def test_many_topics_and_many_filters_cost_little_more_than_reading_them() -> None:
    exact = [f"city/{n % 100}/{n}" for n in range(20_000)]
    wildcards = [f"other/{n}/+/x/#" for n in range(2_000)]
    few = [f"city/{n}/+" for n in range(100)]

    def cost(topics: list[str], filters: list[str]) -> float:
        """The least of three, of this thread alone; looking for garbage in all that other tests left counts nowhere."""
        found = []
        gc.disable()
        try:
            for _ in range(3):
                began = time.thread_time()
                match_topics(topics, filters)
                found.append(time.thread_time() - began)
        finally:
            gc.enable()
        return min(found)

    baseline = cost(exact, few)
    # Comparing every topic with every filter would cost hundreds of times as much.
    assert cost(exact, exact + wildcards + few) < 20 * baseline
