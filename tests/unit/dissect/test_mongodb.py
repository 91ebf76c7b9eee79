"""MongoDB: commands and replies, sequences, chains, compression, the old operations."""

from __future__ import annotations

import zlib
from struct import pack

from hypothesis import given
from hypothesis import strategies as st

from support.conversation import CLIENT, SERVER, Lost, heard, summary
from support.examples import examples

PORT = 27017


def value(name: str, content: object) -> bytes:
    label = name.encode() + b"\0"
    match content:
        case bool():
            return b"\x08" + label + bytes([content])
        case float():
            return b"\x01" + label + pack("<d", content)
        case int():
            return b"\x10" + label + pack("<i", content)
        case str():
            return b"\x02" + label + pack("<i", len(content.encode()) + 1) + content.encode() + b"\0"
        case bytes():
            return b"\x05" + label + pack("<iB", len(content), 0) + content
        case list():
            return b"\x04" + label + document({str(place): item for place, item in enumerate(content)})
        case dict():
            return b"\x03" + label + document(content)
    raise TypeError(content)


def document(fields: dict[str, object]) -> bytes:
    inside = b"".join(value(name, content) for name, content in fields.items())
    return pack("<i", len(inside) + 5) + inside + b"\0"


def packed(operation: int, identity: int, answers: int, body: bytes) -> bytes:
    return pack("<iiii", len(body) + 16, identity, answers, operation) + body


def message(identity: int, fields: dict[str, object], answers: int = 0, flags: int = 0, sequence: bytes = b"") -> bytes:
    body = pack("<I", flags) + b"\0" + document(fields)
    if sequence:
        inside = b"documents\0" + sequence
        body += b"\1" + pack("<i", len(inside) + 4) + inside
    return packed(2013, identity, answers, body + (b"\1\2\3\4" if flags & 1 else b""))


OK, FAILED = {"ok": 1.0}, {"ok": 0.0, "errmsg": "no", "code": 59}
TALK = [
    (CLIENT, packed(2004, 1, 0, pack("<i", 0) + b"admin.$cmd\0" + pack("<ii", 0, -1) + document({"isMaster": 1}))),
    (SERVER, packed(1, 100, 1, pack("<iqii", 8, 0, 0, 1) + document(OK))),
    (CLIENT, message(2, {"insert": "t", "$db": "shop"}, flags=1, sequence=document({"a": 1}) + document({"a": b"x"}))),
    (CLIENT, message(3, {"find": "t", "filter": {}, "$db": "shop"})),
    (SERVER, message(101, {"cursor": {"firstBatch": [{"a": 1}] * 20}, "ok": 1.0}, 3)),
    (SERVER, message(102, {"n": 2, "ok": 1}, 2)),
    (CLIENT, message(4, {"nonsense": 1, "$db": "shop"})),
    (SERVER, message(103, FAILED, 4)),
    (CLIENT, message(5, {"insert": "t", "$db": "shop", "writeConcern": {"w": 0}}, flags=2)),
]  # fmt: skip


def test_a_whole_conversation_is_told_and_paired():
    said = heard(TALK, PORT, protocol="mongodb")
    assert said.stream.malformed == said.stream.undecoded_bytes == 0
    assert said.pairs == [("isMaster", "reply"), ("insert", "reply"), ("find", "reply"), ("nonsense", "reply")]
    assert [row.response.found.failed for row in sorted(said.exchanges, key=lambda row: row.request_number)] == [
        False
    ] * 3 + [True]
    names = {told.found.kind: told.found.name for told in said.messages}
    assert names["insert"] == names["find"] == "shop.t"
    assert {row.rule for row in said.exchanges} == {"id"}


@examples(60)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=8), st.integers(1, 40))
def test_any_segmentation_and_window_gives_the_same_messages(cut, window):
    assert summary(heard(TALK, PORT, cut=cut, window=window)) == summary(heard(TALK, PORT))


def test_a_chain_of_replies_is_one_answer():
    said = heard(
        [
            (CLIENT, message(7, {"getMore": 9, "collection": "t", "$db": "shop"}, flags=1 << 16)),
            (SERVER, message(20, OK, 7, flags=2) + message(21, OK, 20, flags=2) + message(22, OK, 21)),
        ],
        PORT,
    )  # fmt: skip
    assert said.pairs == [("getMore", "reply")]
    assert said.exchanges[0].response.found.correlation == "21"
    assert said.exchanges[0].response_bytes == 3 * len(message(20, OK, 7))
    assert said.messages[0].found.name == "shop.t"


def test_a_chain_without_end_is_answered_by_its_first_reply():
    said = heard(
        [
            (CLIENT, message(7, {"hello": 1, "$db": "admin"})),
            (SERVER, message(20, OK, 7, flags=2) + message(21, OK, 20, flags=2)),
        ],
        PORT,
    )  # fmt: skip
    assert said.exchanges[0].response.found.correlation == "7"


def test_zlib_is_opened_and_other_compression_counted():
    inside = message(1, {"ping": 1, "$db": "x"})[16:]
    small = zlib.compress(inside)
    said = heard(
        [
            (CLIENT, packed(2012, 8, 0, pack("<iiB", 2013, len(inside), 2) + small)),
            (CLIENT, packed(2012, 9, 0, pack("<iiB", 2013, len(inside), 1) + b"snappy")),
            (SERVER, message(30, OK, 9)),
            (SERVER, message(31, OK, 8)),
            (CLIENT, packed(2012, 10, 0, pack("<iiB", 2013, len(inside), 2) + b"not zlib")),
        ],
        PORT,
    )
    assert said.pairs == [("ping", "reply"), ("OP_COMPRESSED", "reply"), ("OP_COMPRESSED", "")]
    assert said.stream.malformed == 1


def test_a_huge_message_is_counted_without_being_held():
    big = message(2, {"insert": "t", "$db": "shop"}, sequence=document({"a": b"x" * 900_000}))
    said = heard([(CLIENT, big), (SERVER, message(102, OK, 2)), *TALK[3:5]], PORT)
    assert said.pairs == [("insert", "reply"), ("find", "reply")]
    assert said.messages[0].found.payload_bytes > 900_000
    assert said.stream.malformed == said.stream.undecoded_bytes == 0


def test_reading_begins_again_after_a_gap_and_after_nonsense():
    said = heard([*TALK[:2], (SERVER, TALK[4][1][:50]), (SERVER, Lost(300)), *TALK[2:]], PORT)
    assert said.pairs == heard(TALK, PORT).pairs
    said = heard([*TALK[:2], (SERVER, b"\xee" * 21), *TALK[2:]], PORT)
    assert said.stream.malformed == 1
    assert said.pairs == heard(TALK, PORT).pairs


@given(st.binary(max_size=200))
def test_documents_that_are_none_are_survived(inside):
    body = pack("<I", 0) + b"\0" + pack("<i", len(inside) + 4) + inside
    said = heard([TALK[3], (CLIENT, packed(2013, 9, 0, body)), TALK[4]], PORT)
    assert len(said.messages) == 3
