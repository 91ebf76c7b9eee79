"""Plain MQTT packets read many at once tell the same as one by one, whatever stands between them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.dissect.many_runs import ManyRuns
from battlebrokers.dissect.protocols.mqtt import _Mqtt
from battlebrokers.tables.message_header import HEADER, VERSION
from support.conversation import CLIENT, SERVER, Heard, Lost, heard, summary
from support.examples import examples
from unit.dissect.test_mqtt import CONNACK, CONNACK_5, SUBACK, SUBSCRIBE, ack, connect, packet, publish

BOTH = st.sampled_from((CLIENT, SERVER))
OURS = st.builds(lambda device, seq: HEADER.pack(VERSION << 24 | device, seq, 7), st.integers(0, 9), st.integers(0, 99))
PAYLOADS = st.one_of(
    st.binary(max_size=40), OURS, st.just(b'{"id": "0b5c2f0e-5a34-4a3c-9f64-6f3a3d6f0a11"}'),
    st.integers(100, 20_000).map(lambda size: b"\xb1" * size),
)  # fmt: skip
IDS = st.integers(0, 3)


def packets(version: int) -> st.SearchStrategy[bytes]:
    """One packet each, mostly plain."""
    explained = (b"\x03\x23\x00\x01", b"\x0e\x02\0\0\0\x3c\x09\0\x01\xff\x08\0\x02re")
    properties = st.sampled_from((b"\x00",) * 4 + explained) if version == 5 else st.just(b"")
    topics = st.sampled_from(("a", "a/b", "", "ä/ö", "t" * 300))
    published = st.builds(
        lambda topic, payload, qos, number, extra, dup: publish(topic, payload, qos, number, version, extra, dup),
        topics, PAYLOADS, st.integers(0, 2), IDS, properties, st.booleans(),
    )  # fmt: skip
    acks = st.builds(
        ack, st.integers(4, 7), IDS, st.sampled_from((b"",) * 4 + (b"\x00", b"\x80", b"\x97\x05\x1f\0\x02no"))
    )
    odd = st.sampled_from((SUBSCRIBE, SUBACK, b"\xc0\x00", b"\xd0\x00", packet(0x30, b""), packet(0x36, b"\x00\x01a")))
    broken = st.binary(min_size=1, max_size=5)
    return st.one_of(published, published, published, acks, acks, acks, odd, broken)


@st.composite
def conversations(draw) -> tuple[list[tuple[int, bytes | Lost]], list[int]]:
    """Turns of both sides after a beginning, and how they are cut into segments."""
    version = draw(st.sampled_from((4, 5)))
    turns: list[tuple[int, bytes | Lost]] = [(CLIENT, connect(version=version))]
    turns.append((SERVER, CONNACK_5 if version == 5 else CONNACK))
    plain = st.lists(st.tuples(BOTH, packets(version)), min_size=1, max_size=30)
    for _ in range(draw(st.integers(1, 4))):
        some = draw(plain)
        # Many alike are what is read at once.
        turns += some * draw(st.sampled_from((1, 1, 3)))
        if draw(st.booleans()):
            turns.append((draw(BOTH), draw(st.one_of(st.just(Lost(5)), packets(version).map(lambda one: one[:3])))))
    cut = draw(st.sampled_from(([1 << 20], [1 << 20], [1400], [7, 1 << 20], [50, 3, 1 << 20])))
    return turns, cut


def one_by_one(monkeypatch: pytest.MonkeyPatch, turns: list[tuple[int, bytes | Lost]], **how: object) -> Heard:
    with monkeypatch.context() as patch:
        patch.setattr(ManyRuns, "can_follow", lambda *_: False)
        return heard(turns, 1883, **how)


@examples(400)
@given(conversations(), st.sampled_from((1 << 30, 40, 70)))
def test_many_at_once_is_the_same_as_one_by_one(told, window):
    turns, cut = told
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("battlebrokers.dissect.many_runs.WORTH_IT_PIECES", 2)
        monkeypatch.setattr("battlebrokers.dissect.many_runs.ONE_BY_ONE", 3)
        fast = heard(turns, 1883, cut=cut, window=window)
        slow = one_by_one(monkeypatch, turns, cut=cut, window=window)
    assert summary(fast) == summary(slow)
    assert [(one.found, one.detail) for one in fast.messages] == [(one.found, one.detail) for one in slow.messages]
    assert [(one.first_ns, one.last_ns) for one in fast.messages] == [
        (one.first_ns, one.last_ns) for one in slow.messages
    ]
    assert fast.pairs == slow.pairs
    streams = (fast.stream, slow.stream)
    assert len({(one.malformed, one.undecoded_bytes, one.gap_bytes, one.delivered_bytes) for one in streams}) == 1


def test_plain_packets_are_read_at_once(monkeypatch):
    """The quick way is taken: nothing of a plain conversation is left to the slow one after its beginning."""
    shown = Counter()
    feed, feed_runs = _Mqtt.feed, _Mqtt.feed_runs

    def one(self, sender, data, at):
        shown["one by one"] += len(data)
        return feed(self, sender, data, at)

    def many(self, spoken):
        read = feed_runs(self, spoken)
        shown["at once"] += sum(spoken.said(read))
        return read

    monkeypatch.setattr(_Mqtt, "feed", one)
    monkeypatch.setattr(_Mqtt, "feed_runs", many)
    turns = [(CLIENT, connect()), (SERVER, CONNACK)]
    for number in range(1, 3000):
        turns += [(CLIENT, publish("a/b", b"x" * 50, 1, number % 60_000)), (SERVER, ack(4, number % 60_000))]
    said = heard(turns, 1883)
    assert said.pairs.count(("PUBLISH", "PUBACK")) == 2999
    assert shown["at once"] > 20 * shown["one by one"]


def test_a_dissector_that_fails_on_many_is_asked_one_by_one(monkeypatch):
    def many(self, spoken):
        raise ValueError("no")

    monkeypatch.setattr(_Mqtt, "feed_runs", many)
    turns = [(CLIENT, connect()), (SERVER, CONNACK), *[(CLIENT, publish("a", b"x" * 900))] * 100]
    assert heard(turns, 1883).kinds.count("PUBLISH") == 100
