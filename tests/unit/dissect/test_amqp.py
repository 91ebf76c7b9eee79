"""AMQP 0-9-1: methods, contents, confirms, acknowledgements."""

from __future__ import annotations

from struct import pack

from hypothesis import given
from hypothesis import strategies as st

from support.conversation import CLIENT, SERVER, Lost, heard, summary
from support.examples import examples

PORT = 5672


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def method(channel: int, group: int, number: int, arguments: bytes = b"") -> bytes:
    return frame(1, channel, pack(">HH", group, number) + arguments)


def short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def content(channel: int, body: bytes, cut: int = 1000) -> bytes:
    parts = [frame(3, channel, body[at : at + cut]) for at in range(0, len(body), cut)]
    return frame(2, channel, pack(">HHQH", 60, 0, len(body), 0)) + b"".join(parts)


def publish(channel: int, body: bytes, key: str = "k", exchange: str = "x") -> bytes:
    return method(channel, 60, 40, b"\0\0" + short(exchange) + short(key) + b"\0") + content(channel, body)


def deliver(channel: int, tag: int, body: bytes, consumer: str = "c") -> bytes:
    return method(channel, 60, 60, short(consumer) + pack(">QB", tag, 0) + short("x") + short("k")) + content(
        channel, body
    )


def ack(channel: int, tag: int, multiple: int = 0, number: int = 80) -> bytes:
    return method(channel, 60, number, pack(">QB", tag, multiple))


OPENING = [
    (CLIENT, b"AMQP\0\0\x09\x01"),
    (SERVER, method(0, 10, 10, b"\0\x09\0\0\0\0" + b"\0\0\0\0" * 2)),
    (CLIENT, method(0, 10, 11, b"\0\0\0\0" + short("PLAIN"))),
    (SERVER, method(0, 10, 30, pack(">HIH", 2047, 131072, 60))),
    (CLIENT, method(0, 10, 31, pack(">HIH", 2047, 131072, 60)) + method(0, 10, 40, short("/") + b"\0\0")),
    (SERVER, method(0, 10, 41, b"\0")),
    (CLIENT, method(1, 20, 10, b"\0")),
    (SERVER, method(1, 20, 11, b"\0\0\0\0")),
]
CONFIRM = [(CLIENT, method(1, 85, 10, b"\0")), (SERVER, method(1, 85, 11))]
CONSUME = [
    (CLIENT, method(1, 60, 20, b"\0\0" + short("q") + short("c") + b"\0" + b"\0\0\0\0")),
    (SERVER, method(1, 60, 21, short("c"))),
]
TALK = [
    *OPENING,
    (CLIENT, method(1, 50, 10, b"\0\0" + short("q") + b"\0" + b"\0\0\0\0")),
    (SERVER, method(1, 50, 11, short("q") + b"\0" * 8)),
    *CONSUME, *CONFIRM,
    (CLIENT, publish(1, b"a" * 2500) + publish(1, b"b") + publish(1, b"")),
    (SERVER, deliver(1, 1, b"a" * 2500) + ack(1, 2, 1) + deliver(1, 2, b"b") + ack(1, 3)),
    (CLIENT, ack(1, 2, 1) + frame(8, 0, b"")),
    (SERVER, deliver(1, 3, b"")),
    (CLIENT, ack(1, 3, 0, 90)),
    (CLIENT, method(0, 10, 50, pack(">H", 200) + short("bye") + b"\0\0\0\0")),
    (SERVER, method(0, 10, 51)),
]  # fmt: skip
PAIRS = {
    ("Connection.Start", "Connection.StartOk"), ("Connection.Tune", "Connection.TuneOk"),
    ("Connection.Open", "Connection.OpenOk"), ("Channel.Open", "Channel.OpenOk"),
    ("Queue.Declare", "Queue.DeclareOk"), ("Basic.Consume", "Basic.ConsumeOk"), ("Confirm.Select", "Confirm.SelectOk"),
    ("Basic.Publish", "Basic.Ack"), ("Basic.Deliver", "Basic.Ack"), ("Basic.Deliver", "Basic.Reject"),
    ("Connection.Close", "Connection.CloseOk"),
}  # fmt: skip


def test_a_whole_conversation_is_told_and_paired():
    said = heard(TALK, PORT, protocol="amqp")
    assert said.stream.malformed == said.stream.undecoded_bytes == 0
    assert set(said.pairs) == PAIRS
    assert said.pairs.count(("Basic.Publish", "Basic.Ack")) == 3
    assert said.pairs.count(("Basic.Deliver", "Basic.Ack")) == 2
    assert said.kinds.count("Heartbeat") == said.kinds.count("ProtocolHeader") == 1
    published = [told.found for told in said.messages if told.found.kind == "Basic.Publish"]
    assert [(row.name, row.payload_bytes) for row in published] == [("x/k", 2500), ("x/k", 1), ("x/k", 0)]
    delivered = [told.found for told in said.messages if told.found.kind == "Basic.Deliver"]
    assert [row.fingerprint for row in delivered] == [row.fingerprint for row in published]


def test_answers_are_those_with_the_right_tag():
    said = heard(TALK, PORT)
    rows = [row for row in said.exchanges if row.request.found.kind == "Basic.Publish"]
    assert [row.response.found.correlation for row in rows] == ["1:2", "1:2", "1:3"]
    assert {row.rule for row in rows} == {"id"}
    rejected = next(row for row in said.exchanges if row.response.found.kind == "Basic.Reject")
    assert rejected.request.found.correlation == "1:3"
    assert rejected.response.found.failed


@examples(60)
@given(st.lists(st.integers(1, 3000), min_size=1, max_size=8), st.integers(1, 40))
def test_any_segmentation_and_window_gives_the_same_messages(cut, window):
    assert summary(heard(TALK, PORT, cut=cut, window=window)) == summary(heard(TALK, PORT))


def test_a_channel_closed_by_an_error_answers_the_method_it_names():
    missing = b"\0\0" + short("nope") + b"\x01\0\0\0\0"
    error = pack(">H", 404) + short("NOT_FOUND") + pack(">HH", 50, 10)
    said = heard(
        [
            *OPENING,
            (CLIENT, method(1, 50, 10, missing)),
            (SERVER, method(1, 20, 40, error)),
            (CLIENT, method(1, 20, 41)),
        ],
        PORT,
    )
    assert ("Queue.Declare", "Channel.Close") in said.pairs
    assert ("Channel.Close", "Channel.CloseOk") in said.pairs
    assert [told.found.name for told in said.messages if told.found.failed] == ["NOT_FOUND"]


def test_a_channel_number_used_again_counts_its_tags_anew():
    close = pack(">H", 200) + short("") + b"\0\0\0\0"
    once = [
        *OPENING[-2:], *CONFIRM, (CLIENT, publish(1, b"one")), (SERVER, ack(1, 1)),
        (CLIENT, method(1, 20, 40, close)), (SERVER, method(1, 20, 41)),
    ]  # fmt: skip
    said = heard([*OPENING[:-2], *once, *once], PORT)
    rows = [row for row in said.exchanges if row.request.found.kind == "Basic.Publish"]
    assert len(rows) == 2
    assert all(row.response is not None and row.response.first_ns > row.request.last_ns for row in rows)
    assert rows[1].request.first_ns > rows[0].response.last_ns


def test_methods_that_want_no_answer_and_consumers_that_never_acknowledge_open_nothing():
    said = heard(
        [
            *OPENING,
            (CLIENT, method(1, 50, 10, b"\0\0" + short("q") + b"\x10\0\0\0\0")),
            (CLIENT, method(1, 60, 20, b"\0\0" + short("q") + short("c") + b"\x02\0\0\0\0")),
            (SERVER, method(1, 60, 21, short("c")) + deliver(1, 1, b"x")),
            (CLIENT, publish(1, b"x")),
        ],
        PORT,
    )
    assert all(answer for _, answer in said.pairs)
    assert ("Basic.Consume", "Basic.ConsumeOk") in said.pairs


def test_a_get_is_answered_by_its_content_or_by_nothing_there():
    get = method(1, 60, 70, b"\0\0" + short("q") + b"\x01")
    got = method(1, 60, 71, pack(">QB", 1, 0) + short("x") + short("k") + pack(">I", 0)) + content(1, b"hello")
    said = heard([*OPENING, (CLIENT, get + get), (SERVER, got + method(1, 60, 72, b"\0"))], PORT)
    assert said.pairs[-2:] == [("Basic.Get", "Basic.GetOk"), ("Basic.Get", "Basic.GetEmpty")]


def test_a_huge_body_is_counted_without_being_held():
    body = b"z" * 700_000
    big = method(1, 60, 40, b"\0\0" + short("x") + short("k") + b"\0")
    big += frame(2, 1, pack(">HHQH", 60, 0, len(body), 0)) + frame(3, 1, body)
    said = heard([*OPENING, *CONFIRM, (CLIENT, big + publish(1, b"after")), (SERVER, ack(1, 2, 1))], PORT)
    sizes = [told.found.payload_bytes for told in said.messages if told.found.kind == "Basic.Publish"]
    assert sizes == [700_000, 5]
    assert said.pairs.count(("Basic.Publish", "Basic.Ack")) == 2
    assert said.stream.malformed == said.stream.undecoded_bytes == 0


def test_after_a_gap_reading_begins_again_at_a_frame():
    rest = [(CLIENT, publish(1, b"c")), (CLIENT, method(1, 60, 10, b"\0" * 7)), (SERVER, method(1, 60, 11))]
    said = heard([*OPENING, (CLIENT, publish(1, b"x" * 5000)[:1500]), (CLIENT, Lost(4000)), *rest], PORT)
    assert said.kinds.count("Basic.Publish") == 2
    assert said.pairs[-1] == ("Basic.Qos", "Basic.QosOk")
    assert [row.certain for row in said.exchanges if row.request.found.kind == "Basic.Qos"] == [False]


def test_a_broken_frame_is_counted_and_the_next_one_found():
    bad = bytearray(publish(1, b"x"))
    bad[-1] = 0
    said = heard([*OPENING, (CLIENT, bytes(bad) + publish(1, b"y"))], PORT)
    assert said.stream.malformed == 1
    assert said.kinds.count("Basic.Publish") == 2


def test_another_version_is_named_and_left_alone():
    said = heard([(CLIENT, b"AMQP\0\x01\0\0" + b"\0" * 50), (SERVER, b"AMQP\0\x01\0\0")], PORT)
    assert said.kinds[0] == "ProtocolHeader"
    assert said.stream.protocol == "amqp1"
