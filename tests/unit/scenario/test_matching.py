from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.scenario.matching import Matching
from battlebrokers.scenario.nodes import FilterPlan
from battlebrokers.scenario.topics import filter_matches

TOPICS = ("city/air/1", "city/air/2", "city/water/1", "$SYS/load", "air")
LEVEL = st.sampled_from(["a", "b", "", "$x"])


def test_a_filter_means_the_topics_of_the_plan_it_matches_in_their_order() -> None:
    matching = Matching((*TOPICS, "city/air/1"))
    assert matching.topics == TOPICS
    assert matching.matched_by("city/+/1") == ("city/air/1", "city/water/1")
    assert matching.matched_by("#") == ("city/air/1", "city/air/2", "city/water/1", "air")
    assert matching.matched_by("city/air/2") == ("city/air/2",)
    assert matching.matched_by("nowhere") == ()


def test_overlapping_filters_become_one_subscription_with_the_highest_qos() -> None:
    asked = [FilterPlan("city/air/+", 0, None), FilterPlan("city/+/1", 1, None), FilterPlan("nowhere/#", 1, None)]
    assert Matching(TOPICS).spelled_out(asked) == {
        FilterPlan("city/air/1", 1, None): "city/+/1",
        FilterPlan("city/air/2", 0, None): "city/air/+",
        FilterPlan("city/water/1", 1, None): "city/+/1",
    }


def test_a_shared_group_is_a_subscription_of_its_own() -> None:
    asked = [FilterPlan("air", 0, None), FilterPlan("air", 0, "crew")]
    assert set(Matching(TOPICS).spelled_out(asked)) == set(asked)


@given(
    st.lists(st.lists(LEVEL, min_size=1, max_size=4).map("/".join), max_size=8),
    st.lists(LEVEL | st.just("+"), max_size=3),
    st.sampled_from(["", "#", "+", "a"]),
)
def test_exactly_the_topics_that_a_broker_would_match(topics: list[str], begin: list[str], end: str) -> None:
    topic_filter = "/".join([*begin, end] if end else begin)
    expected = {topic for topic in topics if filter_matches(topic_filter, topic)}
    found = Matching(topics).matched_by(topic_filter)
    assert set(found) == expected
    assert len(found) == len(expected)
