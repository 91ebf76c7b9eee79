"""Kafka: requests and responses by correlation id, records in batches, old and compact layouts."""

from __future__ import annotations

import gzip
import tracemalloc
from itertools import pairwise
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.dissect.kafka_packing import LARGEST_OPENED_BYTES
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


def records_of(said) -> list[tuple[str, int]]:
    return [(row.found.name, row.found.payload_bytes) for row in said.messages if row.found.kind == "Record"]


def test_batches_that_cannot_be_read_are_counted_as_undecoded():
    old = pack(">qi", 0, 60) + pack(">Ibb", 0, 1, 0) + b"\0" * 54
    damaged, unknown = batch(b"x", attributes=2), batch(b"x", attributes=5)
    turns = [(CLIENT, produce(7, 1, damaged + old + unknown + batch(b"y"))), (SERVER, produced(7, 1))]
    said = heard(turns, PORT)
    assert said.kinds == ["Produce", "Record", "ProduceResponse"]
    assert said.stream.undecoded_bytes == len(damaged + old + unknown)
    assert said.stream.malformed == 0


def test_marks_of_transactions_are_no_records_and_a_batch_that_was_cut_off_comes_again():
    content = batch(b"commit", attributes=0x20) + batch(b"y") + batch(b"cut off")[:-3]
    said = heard([(CLIENT, fetch(11, 1)), (SERVER, fetched(11, 1, content))], PORT)
    assert records_of(said) == [("sensors", 1)]
    assert said.stream.undecoded_bytes == 0


def test_a_batch_whose_records_make_no_sense_is_told_up_to_there():
    good = batch(b"one", b"two")
    said = heard([(CLIENT, produce(7, 1, good[:-1] + b"\xff" + batch(b"next")))], PORT)
    assert [size for _, size in records_of(said)] == [3, 3, 4]
    broken = bytearray(batch(b"one", b"two" * 9))
    broken[-29] = 0x7E  # how long the second value is
    said = heard([(CLIENT, produce(7, 1, bytes(broken) + batch(b"next")))], PORT)
    assert [size for _, size in records_of(said)] == [3, 4]
    assert said.stream.undecoded_bytes > 27


def huge() -> list[tuple[int, bytes]]:
    """A Produce and a Fetch far beyond what anybody waits for, and something behind them."""
    values = [bytes([place % 251]) * 1000 for place in range(700)]
    packed = gzipped(*(bytes([place]) * 2000 for place in range(200)))
    batches = batch(*values) + packed + batch(b"x" * 600_000, b"small") + batch(b"last")
    return [
        (CLIENT, produce(9, 1, batches) + fetch(12, 2)), (SERVER, produced(9, 1) + fetched(12, 2, batches)),
        (CLIENT, request(HEARTBEAT, 3, 3)), (SERVER, response(3, pack(">ih", 0, 0))),
    ]  # fmt: skip


def gzipped(*values: bytes, times: int = 1) -> bytes:
    plain = batch(*values, attributes=1)
    plain = plain[:57] + pack(">i", times * len(values)) + plain[61:]
    packed = gzip.compress(plain[61:] * times)
    return plain[:8] + pack(">i", 49 + len(packed)) + plain[12:61] + packed


@pytest.mark.parametrize(("cut", "window"), [([1448], 100), ([1448, 37], 7), ([60_000], 1000), ([9000, 1], 64)])
def test_every_record_of_a_huge_message_is_told(cut, window):
    said = heard(huge(), PORT, cut=cut, window=window)
    assert said.stream.malformed == said.stream.undecoded_bytes == 0
    kinds = [("Produce", "ProduceResponse"), ("Fetch", "FetchResponse"), ("Heartbeat", "HeartbeatResponse")]
    assert said.pairs == kinds
    sizes = [1000] * 700 + [2000] * 200 + [600_000, 5, 4]
    for sender, kind in ((CLIENT, "Produce"), (SERVER, "FetchResponse")):
        own = [row.found for row in said.messages if row.found.sender == sender]
        records = [row for row in own if row.kind == "Record"]
        assert [row.payload_bytes for row in records] == sizes
        (carrier,) = [row for row in own if row.kind == kind]
        assert carrier.payload_bytes == sum(sizes)
        assert all(carrier.start < row.start < row.end <= carrier.end for row in records)
        # Packed records share the bytes of their batch: together they are no longer than it is.
        places = [(row.start, row.end) for row in records]
        assert all(before[1] <= after[0] for before, after in pairwise(places))


def test_a_failure_far_behind_in_an_answer_is_told():
    def partition(error: int, records: bytes) -> bytes:
        return pack(">ihqqqii", 0, error, 9, 9, 0, -1, -1) + pack(">i", len(records)) + records

    body = pack(">ihii", 0, 0, 0, 1) + name("sensors", flexible=False) + pack(">i", 2)
    body += partition(0, batch(b"x" * 900_000)) + partition(6, b"")
    said = heard([(CLIENT, fetch(11, 2)), (SERVER, response(2, body))], PORT, cut=[1448], window=50)
    assert said.stream.undecoded_bytes == 0
    assert [row.response.found.failed for row in said.exchanges] == [True]


def test_bytes_that_stand_for_gigabytes_stay_closed():
    bomb = gzipped(bytes(40 << 20))
    assert len(bomb) < 100_000
    tracemalloc.start()
    try:
        said = heard([(CLIENT, produce(7, 1, bomb + batch(b"next")))], PORT)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert records_of(said) == [("sensors", 4)]
    assert said.stream.undecoded_bytes == len(bomb)
    assert peak_bytes < 3 * LARGEST_OPENED_BYTES
    many = gzipped(b"", times=50_000)
    said = heard([(CLIENT, produce(7, 1, many))], PORT)
    assert said.kinds.count("Record") <= 256 + len(many)
    assert 0 < said.stream.undecoded_bytes < len(many)


def test_what_a_gap_takes_from_a_huge_message_is_counted_and_reading_goes_on_behind_it():
    (_, asked), (_, answered), *rest = huge()
    turns = [(CLIENT, asked[:400_000]), (CLIENT, Lost(5000)), (CLIENT, asked[405_000:]), (SERVER, answered), *rest]
    said = heard(turns, PORT, cut=[1448])
    assert 300 < len([row for row in said.messages if row.found.sender == CLIENT and row.found.kind == "Record"]) < 700
    assert said.stream.undecoded_bytes > 100_000
    assert ("Heartbeat", "HeartbeatResponse") in said.pairs


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
