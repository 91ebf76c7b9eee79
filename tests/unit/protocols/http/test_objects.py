"""Pieces of a stream: lines, objects side by side, events, in whatever chunks they come."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.protocols.http.head import BODY_LIMIT_BYTES, Malformed
from battlebrokers.protocols.http.objects import Objects, objects_in
from support.examples import examples

documents = st.dictionaries(st.text(max_size=4), st.one_of(st.text(max_size=8), st.lists(st.integers(), max_size=3)))


@examples(150)
@given(st.lists(documents, max_size=6), st.lists(st.integers(0, 300), max_size=8), st.booleans())
def test_objects_are_found_whatever_chunks_they_come_in(said: list[object], cuts: list[int], with_line_ends: bool):
    data = b"".join(json.dumps(each).encode() + (b"\n" if with_line_ends else b"") for each in said)
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    objects = Objects()
    found: list[bytes] = []
    for begin, end in zip(places, [*places[1:], len(data)], strict=True):
        found += objects.feed(data[begin:end])
    assert [json.loads(each) for each in found] == said


@examples(150)
@given(st.lists(st.binary(max_size=40), max_size=6), st.booleans())
def test_any_bytes_are_taken_without_an_exception(chunks: list[bytes], are_events: bool):
    objects = Objects(are_events=are_events)
    for chunk in chunks:
        assert all(isinstance(each, bytes) for each in objects.feed(chunk))


@pytest.mark.parametrize("data", [b"{", b"{} x", b"\xff{}", b"[" * 100_000, b'{"a": '])
def test_what_is_not_only_objects_is_none(data: bytes):
    assert objects_in(data) is None


def test_a_piece_without_an_end_is_not_held_for_ever():
    objects = Objects()
    objects.feed(bytes(BODY_LIMIT_BYTES))
    with pytest.raises(Malformed, match="a piece of a stream"):
        objects.feed(b"x")


def test_only_the_data_of_events_counts():
    assert Objects(are_events=True).feed(b': hi\r\nevent: x\r\nid: 1\r\ndata: {"a": 1}\r\n\r\ndata:{}\n') == [
        b'{"a": 1}',
        b"{}",
    ]


def test_a_piece_is_no_longer_than_it_may_be():
    objects = Objects(limit_bytes=100)
    objects.feed(b"x" * 100)
    with pytest.raises(Malformed, match="more than 100 bytes"):
        objects.feed(b"x")
