from __future__ import annotations

import pytest

from battlebrokers import tables
from battlebrokers.analysis.delays import read_asked
from battlebrokers.analysis.kinds import read_kinds
from battlebrokers.analysis.passages import read_passages
from support.wires import START_NS, US, Wires, small_system


def kinds_of(wires, path):
    folder = wires.write(path)
    found = read_kinds(folder, read_asked(folder), read_passages(folder))
    return {(k.sender, k.receiver, k.protocol, k.kind): k for k in found}


def channels():
    """The gateway publishes to three Redis channels, `air` most; Redis pushes what is in `air` to the dispatcher."""
    w = Wires()
    w.stream(1, "gateway", "redis", "redis")
    w.stream(2, "dispatcher", "redis", "redis")
    for channel, count, took_us in (("air", 6, 100), ("noise", 3, 400), ("water", 1, 900), ("light", 1, 900)):
        w.said(1, "redis", count, kind="PUBLISH", name=channel, bytes=90, payload_bytes=40)
        for _ in range(count):
            w.asked(1, "redis", "answered", 1, kind="PUBLISH", name=channel, answer="INTEGER", asked_ns=START_NS,
                    answered_ns=START_NS + took_us * US)  # fmt: skip
    w.said(1, "redis", 11, kind="INTEGER", sender="server", bytes=4)
    w.said(2, "redis", 6, kind="message", name="air", sender="server", bytes=100)
    w.response("gateway", "redis", "redis", "PUBLISH", 11, [100, 100, 100, 400, 900, 900, 900])
    for number in range(5):
        w.leg(number, 1, "gateway", "redis", 0, 10, protocol="redis", kind="PUBLISH", name="air")
        w.leg(number, 2, "redis", "dispatcher", 20, 30, protocol="redis", kind="message", name="air")
    return w


def test_each_kind_is_counted_between_the_services_that_said_it(tmp_path):
    found = kinds_of(channels(), tmp_path)
    published = found["gateway", "redis", "redis", "PUBLISH"]
    assert (published.all.n, published.all.bytes, published.all.payload_bytes) == (11, 990, 440)
    assert (published.all.p50_ns, published.all.p99_ns) == (100_000, 900_000)
    assert found["redis", "dispatcher", "redis", "message"].all.n == 6
    assert list(found) == [key for key, _ in sorted(found.items(), key=lambda one: (-one[1].all.n, one[0]))]


def test_requests_answers_and_pushes_are_told_apart(tmp_path):
    parts = {key[3]: kind.part for key, kind in kinds_of(channels(), tmp_path).items()}
    assert parts == {"PUBLISH": "request", "INTEGER": "response", "message": "other"}


def test_the_most_frequent_names_are_told_with_their_own_delays(tmp_path):
    published = kinds_of(channels(), tmp_path)["gateway", "redis", "redis", "PUBLISH"]
    assert [(one.name, one.n) for one in published.names] == [("air", 6), ("noise", 3), ("light", 1)]
    assert published.more_names == 1
    assert published.names[0].p50_ns == pytest.approx(100_000, rel=0.02)
    assert published.names[1].p99_ns == pytest.approx(400_000, rel=0.02)


def test_followed_messages_are_counted_by_kind_and_name(tmp_path):
    found = kinds_of(channels(), tmp_path)
    published = found["gateway", "redis", "redis", "PUBLISH"]
    assert (published.all.followed, published.names[0].followed, published.names[1].followed) == (5, 5, 0)
    assert found["redis", "dispatcher", "redis", "message"].all.followed == 5


def test_kinds_without_a_name_have_none(tmp_path):
    assert kinds_of(channels(), tmp_path)["redis", "gateway", "redis", "INTEGER"].names == ()


def test_of_many_names_the_frequent_ones_are_told_and_the_others_counted(tmp_path):
    w = Wires()
    w.stream(1, None, "redis", "redis")
    for number in range(200):
        w.said(1, "redis", 1, kind="SET", name=f"key:{number}")
    w.said(1, "redis", 300, kind="SET", name="hot")
    (kind,) = kinds_of(w, tmp_path).values()
    assert (kind.all.n, kind.names[0].name, kind.names[0].n) == (500, "hot", 300)
    assert kind.more_names + len(kind.names) == 201


def test_messages_of_both_sides_add_up_to_all(tmp_path):
    wires = small_system()
    found = kinds_of(wires, tmp_path)
    assert sum(kind.all.n for kind in found.values()) == len(wires.rows[tables.MESSAGES.name])


def test_messages_of_no_known_stream_are_left_out(tmp_path):
    wires = Wires()
    wires.said(1, "redis", 3, kind="SET")
    assert kinds_of(wires, tmp_path) == {}


def test_nothing_said_is_no_kind(tmp_path):
    assert kinds_of(Wires(), tmp_path) == {}
