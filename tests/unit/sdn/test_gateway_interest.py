"""Who wants a topic: filters as in MQTT, compared with the plainest way to find out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.sdn.gateway.interest import Interest
from battlebrokers.sdn.gateway.retained import Retained
from support.examples import examples

_LEVEL = st.sampled_from(["a", "b", "", "$x"])
_TOPICS = st.lists(_LEVEL, min_size=1, max_size=3).map("/".join).filter(bool)
_FILTERS = st.one_of(
    _TOPICS,
    st.tuples(st.lists(st.sampled_from(["a", "b", "+", "", "$x"]), max_size=3), st.booleans())
    .map(lambda made: "/".join([*made[0], *(["#"] if made[1] else [])]))
    .filter(bool),
)


def plainly(wanted: list[str], levels: list[str]) -> bool:
    """The rule of MQTT, level by level."""
    if not wanted:
        return not levels
    if wanted[0] == "#":
        return True
    return bool(levels) and wanted[0] in ("+", levels[0]) and plainly(wanted[1:], levels[1:])


def matches(topic_filter: str, topic: str) -> bool:
    return not (topic[0] == "$" and topic_filter[0] in "+#") and plainly(topic_filter.split("/"), topic.split("/"))


@given(
    st.lists(st.tuples(st.sampled_from("xyz"), _FILTERS, st.booleans()), max_size=30), st.lists(_TOPICS, max_size=10)
)
@examples(200)
def test_everybody_who_wants_a_topic_is_found_once(changes: list[tuple[str, str, bool]], topics: list[str]) -> None:
    interest: Interest[str] = Interest()
    model: set[tuple[str, str]] = set()
    for who, topic_filter, wanted in changes:
        there = (who, topic_filter) in model
        if wanted:
            assert interest.add(who, topic_filter) is not there
            model.add((who, topic_filter))
        else:
            assert interest.remove(who, topic_filter) is there
            model.discard((who, topic_filter))
        for topic in topics:
            expected = {one for one, known in model if matches(known, topic)}
            found = interest.listeners(topic)
            assert sorted(found) == sorted(expected)
            assert interest.wants(topic) is bool(expected)
    interest.forget("x")
    assert interest.count("x") == 0
    assert all("x" not in interest.listeners(topic) for topic in topics)


@given(st.lists(st.tuples(_TOPICS, st.binary(max_size=2)), max_size=30), _FILTERS)
@examples(200)
def test_the_last_retained_message_of_each_topic_is_kept(said: list[tuple[str, bytes]], topic_filter: str) -> None:
    retained = Retained(1000)
    model: dict[str, bytes] = {}
    for topic, payload in said:
        retained.set(topic, payload)
        model[topic] = payload
    expected = {topic: payload for topic, payload in model.items() if payload and matches(topic_filter, topic)}
    assert dict(retained.matching(topic_filter, 0.0)) == expected


def test_retained_messages_are_bounded_and_expire() -> None:
    retained = Retained(2)
    for topic in ("a", "b", "c"):
        retained.set(topic, b"x", 10.0)
    assert [topic for topic, _ in retained.matching("#", 9.0)] == ["b", "c"]
    assert list(retained.matching("#", 10.0)) == []
