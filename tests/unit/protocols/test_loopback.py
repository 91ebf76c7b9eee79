from __future__ import annotations

import numpy as np
import pytest

from battlebrokers.protocols.base import Endpoint, LinkOptions, Outgoing, Subscription
from battlebrokers.protocols.loopback import LoopbackLink, filter_matches
from support.links import Ear, until


@pytest.mark.parametrize(
    ("pattern", "topic", "matches"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/c", False),
        ("a/b", "a/b/c", False),
        ("a/b/c", "a/b", False),
        ("a/+", "a/b", True),
        ("a/+", "a", False),
        ("a/+", "a/b/c", False),
        ("+/+", "/b", True),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("#", "a/b", True),
        ("#", "$SYS/x", False),
        ("+/x", "$SYS/x", False),
        ("$SYS/#", "$SYS/x", True),
    ],
)
def test_filters_match_as_mqtt_says(pattern: str, topic: str, matches: bool):
    assert filter_matches(pattern.encode().split(b"/"), topic.encode().split(b"/")) is matches


def link(name: str, place: int) -> tuple[LoopbackLink, Ear]:
    ear = Ear()
    return LoopbackLink(Endpoint("memory", "memory", place), LinkOptions(name), ear), ear


async def test_places_do_not_hear_each_other_and_nothing_is_kept():
    here, ear = link("a", 1)
    there, other = link("b", 2)
    await here.open()
    await there.open()
    await here.subscribe([Subscription("#")])
    await there.subscribe([Subscription("#")])
    here.publish(Outgoing(b"t", np.ones((3, 2), np.uint8), 1, False, 5))
    assert here.unacknowledged == 3
    await until(lambda: ear.acked)
    assert ear.acked == [5, 6, 7]
    assert ear.payloads == [b"\1\1"] * 3
    assert not other.messages
    await here.close()
    await here.open()
    there.abort()
    here.publish(Outgoing(b"t", [b"x"], 0, False, 0))
    await until(lambda: here.unacknowledged == 0)
    assert len(ear.messages) == 3
    await here.close()


async def test_the_last_link_of_a_place_may_be_taken_over():
    older, ear = link("same", 3)
    newer, _ = link("same", 3)
    another, heard = link("another", 3)
    for each in (older, newer, another):
        await each.open()
    assert ear.closings
    await another.subscribe([Subscription("t")])
    newer.publish(Outgoing(b"t", [b"x"], 0, False, 0))
    await until(lambda: heard.messages)
    newer.abort()
    another.abort()
