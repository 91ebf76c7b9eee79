from __future__ import annotations

import contextlib

import pytest
from aiocoap import Message as TheirMessage
from aiocoap.numbers.codes import Code
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.errors import InputError
from battlebrokers.protocols.coap.message import (
    CON,
    MalformedMessage,
    block_option,
    encoded_options,
    head,
    option_number,
    option_value,
    path_options,
    read,
    read_block,
    status_of,
    topic_options,
    uint,
)
from support.examples import examples


def theirs(options: list[tuple[int, bytes]], payload: bytes = b"") -> TheirMessage:
    data = head(CON, 3, 7, b"tok") + encoded_options(options) + (b"\xff" + payload if payload else b"")
    return TheirMessage.decode(data)


@examples(100)
@given(st.binary(max_size=8), st.integers(0, 65_535), st.binary(max_size=50))
def test_what_we_write_aiocoap_reads_and_what_it_writes_we_read(token: bytes, message_id: int, payload: bytes):
    ours = head(CON, 3, message_id, token) + (b"\xff" + payload if payload else b"")
    got = TheirMessage.decode(ours)
    assert (got.mid, got.token, got.payload, got.code) == (message_id, token, payload, Code.PUT)
    made = TheirMessage(code=Code.CONTENT, payload=payload, uri_path=["a", "b"], observe=5, etag=b"e")
    made.mtype, made.mid, made.token = 0, message_id, token
    back = read(made.encode())
    assert (back.code, back.status, back.message_id, back.token, back.payload) == (69, 205, message_id, token, payload)
    assert back.options == {4: [b"e"], 6: [b"\x05"], 11: [b"a", b"b"]}


@examples(500)
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_called_malformed(data: bytes):
    with contextlib.suppress(MalformedMessage):
        message = read(data)
        assert len(message.payload) < max(1, len(data))


@pytest.mark.parametrize(
    "data",
    [b"", b"\x40", b"\x80\x01\x00\x01", b"\x4f\x01\x00\x01" + b"x" * 20, b"\x44\x01\x00\x01ab", b"\x40\x00\x00\x01x"],
)
def test_what_is_no_coap_is_said_to_be_none(data: bytes):
    with pytest.raises(MalformedMessage):
        read(data)


def test_paths_and_topics_become_options():
    assert theirs(path_options("/a%20b/c?x=1&y")).opt.uri_path == ("a b", "c")
    assert theirs(path_options("/a?x=1&y=%26")).opt.uri_query == ("x=1", "y=&")
    assert path_options("") == path_options("/") == []
    assert theirs(topic_options("", "a/b")).opt.uri_path == ("a", "b")
    assert theirs(topic_options("/r/", "/a%20/b")).opt.uri_path == ("r", "a%20", "b")
    assert theirs(topic_options("/r", "a//b")).opt.uri_path == ("r", "a", "", "b")


def test_options_have_names_and_numbers():
    assert option_number("279") == 279
    assert option_number("content-format") == option_number("Content_Format") == 12
    with pytest.raises(InputError, match="no option 'colour'"):
        option_number("colour")
    assert option_value(279, b"Cme") == b"Cme"
    assert option_value(271, b"4") == b"4"
    assert option_value(267, b"4") == b"\x04"
    assert option_value(12, b"50") == b"2"
    assert option_value(17, b"0") == b""
    assert option_value(300, b"uint:258") == b"\x01\x02"
    with pytest.raises(InputError, match="is a number"):
        option_value(267, b"four")


@examples(100)
@given(st.integers(0, (1 << 20) - 1), st.booleans(), st.integers(0, 6))
def test_blocks_go_there_and_back(number: int, more: bool, exponent: int):
    assert read_block(block_option(number, more, exponent)) == (number, more, exponent)


def test_numbers_are_as_short_as_can_be():
    assert [uint(n) for n in (0, 1, 255, 256)] == [b"", b"\x01", b"\xff", b"\x01\x00"]
    assert status_of(0x84) == 404
    assert status_of(0x40) == 200
