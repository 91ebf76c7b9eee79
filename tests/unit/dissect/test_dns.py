"""DNS: by id and question, in datagrams and over TCP."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.conversation import CLIENT, SERVER, Lost, heard, summary
from support.examples import examples

A, AAAA = 1, 28


def encoded(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def query(identity: int, name: str, kind: int = A) -> bytes:
    return pack(">HHHHHH", identity, 0x0100, 1, 0, 0, 0) + encoded(name) + pack(">HH", kind, 1)


def response(identity: int, name: str, kind: int = A, result: int = 0) -> bytes:
    record = b"\xc0\x0c" + pack(">HHIH", kind, 1, 60, 4) + b"\x7f\0\0\1"
    return pack(">HHHHHH", identity, 0x8180 | result, 1, 1, 0, 0) + encoded(name) + pack(">HH", kind, 1) + record


def framed(data: bytes) -> bytes:
    return pack(">H", len(data)) + data


TURNS = [
    (CLIENT, query(7, "a.example")), (CLIENT, query(8, "b.example", AAAA)),
    (SERVER, response(8, "B.example", AAAA, 3)), (SERVER, response(7, "a.example")),
]  # fmt: skip


def test_answers_are_found_by_id_and_question():
    said = heard(TURNS, 53, transport="udp", protocol="dns")
    assert said.pairs == [("QUERY A", "NOERROR"), ("QUERY AAAA", "NXDOMAIN")]
    assert [row.found.name for row in said.messages] == ["a.example", "b.example", "B.example", "a.example"]
    assert [row.found.failed for row in said.messages] == [False, False, True, False]


@examples(40)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.integers(1, 20))
def test_over_tcp_any_segmentation_gives_the_same_messages(cut, window):
    turns = [(side, framed(data)) for side, data in TURNS]
    whole = heard(turns, 53, protocol="dns-tcp")
    assert whole.pairs == [("QUERY A", "NOERROR"), ("QUERY AAAA", "NXDOMAIN")]
    assert {row.found.protocol for row in whole.messages} == {"dns"}
    assert summary(heard(turns, 53, cut=cut, window=window)) == summary(whole)


def test_over_tcp_reading_begins_again_after_a_gap():
    turns = [(side, framed(data)) for side, data in TURNS]
    said = heard([*turns[:2], (SERVER, framed(response(1, "x.y"))[:9]), (SERVER, Lost(11)), *turns[2:]], 53)
    assert said.pairs == [("QUERY A", "NOERROR"), ("QUERY AAAA", "NXDOMAIN")]


def test_the_same_question_once_more_is_one_request():
    said = heard([TURNS[0], TURNS[0], TURNS[3], TURNS[3]], 53, transport="udp")
    assert said.pairs == [("QUERY A", "NOERROR")]
    assert len(said.messages) == 4


def test_an_error_without_a_question_is_found_by_id():
    refused = pack(">HHHHHH", 7, 0x8001, 0, 0, 0, 0)
    said = heard([TURNS[0], (SERVER, refused)], 53, transport="udp")
    assert said.pairs == [("QUERY A", "FORMERR")]
    assert said.messages[1].found.name == "a.example"


@pytest.mark.parametrize("name", [b"\xc0\x0c", b"\x3f" + b"a", b"\xc0", b"\x01a" * 200 + b"\0"])
def test_names_that_lead_nowhere_are_counted(name):
    bad = pack(">HHHHHH", 1, 0x0100, 1, 0, 0, 0) + name + pack(">HH", A, 1)
    said = heard([TURNS[0], (CLIENT, bad)], 53, transport="udp")
    assert said.stream.malformed == 1
    assert said.stream.undecoded_bytes == len(bad)
