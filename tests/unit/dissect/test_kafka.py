"""Kafka: requests and responses by correlation id, records in batches, old and compact layouts."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.conversation import CLIENT, SERVER, Lost, heard, summary
from support.examples import examples

PORT = 9092
PRODUCE, FETCH, METADATA, HEARTBEAT, API_VERSIONS = 0, 1, 3, 12, 18


def unsigned(number: int) -> bytes:
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


def signed(number: int) -> bytes:
    return unsigned(number << 1 if number >= 0 else (-number << 1) - 1)


def request(api: int, version: int, correlation: int, body: bytes = b"", *, flexible: bool = False) -> bytes:
    inside = pack(">hhih", api, version, correlation, 4) + b"test" + (b"\0" if flexible else b"") + body
    return pack(">i", len(inside)) + inside


def response(correlation: int, body: bytes = b"", *, flexible: bool = False) -> bytes:
    inside = pack(">i", correlation) + (b"\0" if flexible else b"") + body
    return pack(">i", len(inside)) + inside


def batch(*values: bytes, attributes: int = 0) -> bytes:
    records = b""
    for place, value in enumerate(values):
        inside = b"\0" + signed(0) + signed(place) + signed(-1) + signed(len(value)) + value + signed(0)
        records += signed(len(inside)) + inside
    rest = pack(">ibIhiqqqhii", 0, 2, 0, attributes, len(values) - 1, 0, 0, -1, -1, -1, len(values)) + records
    return pack(">qi", 0, len(rest)) + rest


def name(text: str, *, flexible: bool) -> bytes:
    return (unsigned(len(text) + 1) if flexible else pack(">h", len(text))) + text.encode()


def count(number: int, *, flexible: bool) -> bytes:
    return unsigned(number + 1) if flexible else pack(">i", number)


def produce(version: int, correlation: int, records: bytes, acks: int = -1) -> bytes:
    flexible = version >= 9
    end = b"\0" if flexible else b""
    body = (b"\0" if flexible else b"\xff\xff") + pack(">hi", acks, 1000) + count(1, flexible=flexible)
    body += name("sensors", flexible=flexible) + count(1, flexible=flexible) + pack(">i", 0)
    body += count(len(records), flexible=flexible) + records + end * 3
    return request(PRODUCE, version, correlation, body, flexible=flexible)


def produced(version: int, correlation: int, error: int = 0) -> bytes:
    flexible = version >= 9
    body = count(1, flexible=flexible) + name("sensors", flexible=flexible) + count(1, flexible=flexible)
    body += pack(">ihqqq", 0, error, 5, -1, 0) + (b"\1\0\0\0" if flexible else b"") + pack(">i", 0)
    return response(correlation, body, flexible=flexible)


def fetch(version: int, correlation: int) -> bytes:
    flexible = version >= 12
    end = b"\0" if flexible else b""
    body = pack(">iiiibii", -1, 500, 1, 1 << 20, 0, 0, -1) + count(1, flexible=flexible)
    body += name("sensors", flexible=flexible) + count(0, flexible=flexible) + end + count(0, flexible=flexible)
    return request(FETCH, version, correlation, body + name("", flexible=flexible) + end, flexible=flexible)


def fetched(version: int, correlation: int, records: bytes, error: int = 0) -> bytes:
    flexible = version >= 12
    body = pack(">ihi", 0, 0, 0) + count(1, flexible=flexible) + name("sensors", flexible=flexible)
    body += count(1, flexible=flexible) + pack(">ihqqq", 0, error, 9, 9, 0) + count(-1, flexible=flexible)
    body += pack(">i", -1) + count(len(records), flexible=flexible) + records + (b"\0" * 3 if flexible else b"")
    return response(correlation, body, flexible=flexible)


def talk(produce_version: int = 7, fetch_version: int = 11):
    return [
        (CLIENT, request(API_VERSIONS, 3, 1, b"\5test\5test\0", flexible=True)),
        (SERVER, response(1, pack(">h", 0) + b"\1" + pack(">i", 0) + b"\0")),
        (CLIENT, produce(produce_version, 2, batch(b"one", b"two" * 100))),
        (CLIENT, fetch(fetch_version, 3) + produce(produce_version, 4, batch(b"unheard"), acks=0)),
        (SERVER, produced(produce_version, 2)),
        (SERVER, fetched(fetch_version, 3, batch(b"one") + batch(b"two" * 100))),
        (CLIENT, request(HEARTBEAT, 3, 5) + request(77, 0, 6, flexible=True) + request(999, 1, 7, b"?")),
        (SERVER, response(5, pack(">ih", 0, 27)) + response(6, b"\0") + response(7)),
    ]  # fmt: skip


@pytest.mark.parametrize(("produce_version", "fetch_version"), [(7, 11), (9, 12), (3, 11), (12, 12)])
def test_a_whole_conversation_is_told_and_paired(produce_version, fetch_version):
    said = heard(talk(produce_version, fetch_version), PORT, protocol="kafka")
    assert said.stream.malformed == said.stream.undecoded_bytes == 0
    assert said.pairs == [
        ("ApiVersions", "ApiVersionsResponse"), ("Produce", "ProduceResponse"), ("Fetch", "FetchResponse"),
        ("Heartbeat", "HeartbeatResponse"), ("ShareGroupDescribe", "ShareGroupDescribeResponse"),
        ("Api999", "Api999Response"),
    ]  # fmt: skip
    records = [told.found for told in said.messages if told.found.kind == "Record"]
    assert sorted((row.sender, row.payload_bytes, row.name) for row in records) == [
        (CLIENT, 3, "sensors"), (CLIENT, 7, "sensors"), (CLIENT, 300, "sensors"), (SERVER, 3, "sensors"),
        (SERVER, 300, "sensors"),
    ]  # fmt: skip
    assert len({row.fingerprint for row in records}) == 3
    assert [row.found.kind for row in said.messages if row.found.failed] == ["HeartbeatResponse"]
    assert {row.found.name for row in said.messages if row.found.kind in ("Produce", "Fetch")} == {"sensors"}


@examples(60)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=8), st.integers(1, 40))
def test_any_segmentation_and_window_gives_the_same_messages(cut, window):
    assert summary(heard(talk(), PORT, cut=cut, window=window)) == summary(heard(talk(), PORT))


def test_errors_in_produce_and_fetch_responses_count():
    said = heard(
        [
            (CLIENT, produce(7, 1, batch(b"x")) + fetch(11, 2)),
            (SERVER, produced(7, 1, error=6) + fetched(11, 2, b"", error=3)),
        ],
        PORT,
    )
    assert [row.response.found.failed for row in said.exchanges] == [True, True]


def test_compressed_and_old_batches_are_counted_but_not_opened():
    old = pack(">qi", 0, 60) + pack(">Ibb", 0, 1, 0) + b"\0" * 54
    said = heard([(CLIENT, produce(7, 1, batch(b"x", attributes=2) + old)), (SERVER, produced(7, 1))], PORT)
    assert said.kinds == ["Produce", "ProduceResponse"]


def test_a_huge_request_is_told_as_far_as_it_is_shown():
    values = [bytes([place % 251]) * 1000 for place in range(700)]
    said = heard([(CLIENT, produce(7, 1, batch(*values))), (SERVER, produced(7, 1)), (CLIENT, fetch(11, 2))], PORT)
    assert said.pairs == [("Produce", "ProduceResponse"), ("Fetch", "")]
    assert 200 < said.kinds.count("Record") < 300
    assert said.stream.malformed == said.stream.undecoded_bytes == 0


def test_an_answer_to_nobody_is_told():
    said = heard([talk()[0], (SERVER, response(99))], PORT)
    assert said.kinds[-1] == "Response"


def test_reading_begins_again_after_a_gap_and_after_nonsense():
    turns = talk()
    said = heard([*turns[:2], (CLIENT, turns[2][1][:50]), (CLIENT, Lost(300)), *turns[2:]], PORT)
    assert said.pairs == heard(turns, PORT).pairs
    said = heard([*turns[:2], (CLIENT, b"\xee" * 21), *turns[2:]], PORT)
    assert said.stream.malformed == 1
    assert said.pairs == heard(turns, PORT).pairs


@given(st.integers(0, 13), st.binary(max_size=300))
def test_bodies_that_are_none_are_survived(version, body):
    flexible = version >= 9
    said = heard([(CLIENT, request(PRODUCE, version, 1, body, flexible=flexible)), (SERVER, response(1, body))], PORT)
    assert next(kind for kind in said.kinds if kind != "Record") == "Produce"
