"""The WebSocket upgrade, with the `websockets` package as the server."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.http11 import Request
from websockets.server import ServerProtocol

from battlebrokers.protocols.upgrade import (
    Handshake,
    WebSocketFault,
    accept_for,
    handshake_request,
    new_key,
)

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
GOOD = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)


def test_the_rfcs_own_example_is_accepted() -> None:
    assert accept_for(KEY) == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def test_keys_are_fresh_and_sixteen_bytes_long() -> None:
    assert len({new_key() for _ in range(10)}) == 10
    assert len(new_key()) == 24


def test_a_server_accepts_our_request_and_we_its_answer() -> None:
    key = new_key()
    server = ServerProtocol(subprotocols=["mqtt"])  # type: ignore[list-item]
    server.receive_data(handshake_request("broker.example", 8080, "/mqtt", key))
    (request,) = server.events_received()
    assert isinstance(request, Request)
    assert (request.path, request.headers["Host"]) == ("/mqtt", "broker.example:8080")
    server.send_response(server.accept(request))
    server.send_binary(b"\x20\x02\x00\x00")
    answer = b"".join(server.data_to_send())
    assert Handshake(key).feed(answer) == b"\x82\x04\x20\x02\x00\x00"


@pytest.mark.parametrize(
    ("host", "port", "secure", "expected"),
    [
        ("h", 80, False, b"Host: h\r\n"),
        ("h", 443, True, b"Host: h\r\n"),
        ("h", 443, False, b"Host: h:443\r\n"),
        ("::1", 9001, False, b"Host: [::1]:9001\r\n"),
    ],
)
def test_the_host_header_names_unusual_ports(host: str, port: int, secure: bool, expected: bytes) -> None:
    assert expected in handshake_request(host, port, "/", KEY, secure=secure)


def test_a_path_gets_its_slash_and_cannot_smuggle_headers() -> None:
    assert handshake_request("h", 1, "ws?a=b", KEY).startswith(b"GET /ws?a=b HTTP/1.1\r\n")
    for path in ("/a b", "/a\r\nX: y", "/ä"):
        with pytest.raises(WebSocketFault):
            handshake_request("h", 1, path, KEY)


@given(st.lists(st.integers(0, len(GOOD) + 4), max_size=6))
def test_an_answer_in_any_chunks_is_the_same_answer(cuts: list[int]) -> None:
    stream, cuts = GOOD + b"rest", sorted(cuts)
    handshake, rest = Handshake(KEY), None
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        if rest is None:
            rest = handshake.feed(stream[begin:end])
        else:
            rest += stream[begin:end]
    assert rest == b"rest"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((b"s3pP", b"S3pP"), "does not match our key"),
        ((b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n", b""), "does not match our key"),
        ((b": mqtt", b": mqttv3.1"), "subprotocol"),
        ((b"Sec-WebSocket-Protocol: mqtt\r\n", b""), "subprotocol"),
        ((b"Upgrade: websocket", b"Upgrade: h2c"), "upgrade to websocket"),
        ((b"Connection: Upgrade", b"Connection: close"), "Connection"),
        ((b"\r\n\r\n", b"\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"), "extension"),
        ((b"\r\n\r\n", b"\r\nno colon\r\n\r\n"), "no HTTP header"),
        ((b"HTTP/1.1", b"HTTP/1.0"), "HTTP/1.1"),
        ((b"HTTP/1.1", b"\x20\x02\x00\x00"), "HTTP/1.1"),
        ((b"101", b"1o1"), "status line"),
    ],
)
def test_a_wrong_answer_is_named(change: tuple[bytes, bytes], words: str) -> None:
    with pytest.raises(WebSocketFault, match=words):
        Handshake(KEY).feed(GOOD.replace(*change))


def test_header_names_and_values_may_come_in_any_case_and_order() -> None:
    answer = GOOD.replace(b"Upgrade: websocket", b"UPGRADE:WebSocket").replace(b": Upgrade", b": keep-alive, upgrade ")
    assert Handshake(KEY).feed(answer) == b""


@pytest.mark.parametrize("status", [200, 301, 401, 403, 404, 426, 503])
def test_a_refusal_carries_its_status(status: int) -> None:
    with pytest.raises(WebSocketFault, match=f"{status} No") as caught:
        Handshake(KEY).feed(b"HTTP/1.1 %d No\r\nServer: x\r\n\r\nbody" % status)
    assert caught.value.status == status


def test_an_endless_header_is_cut_off() -> None:
    handshake = Handshake(KEY, 1000)
    handshake.feed(b"HTTP/1.1 101 X\r\n")
    with pytest.raises(WebSocketFault, match="longer than 1000"):
        [handshake.feed(b"A: " + b"b" * 50 + b"\r\n") for _ in range(100)]
    with pytest.raises(WebSocketFault, match="longer than 1000"):
        Handshake(KEY, 1000).feed(b"HTTP/1.1 101 X\r\nA: " + b"b" * 100_000)


def test_data_behind_a_short_header_may_be_longer_than_the_limit() -> None:
    assert Handshake(KEY, len(GOOD)).feed(GOOD + bytes(100_000)) == bytes(100_000)


@given(st.binary(max_size=200), st.booleans())
def test_random_answers_are_incomplete_or_a_fault(raw: bytes, greet: bool) -> None:
    with suppress(WebSocketFault):
        assert Handshake(KEY).feed(b"HTTP/1.1 101 " + raw if greet else raw) is None


def test_headers_and_a_subprotocol_of_the_contender_are_sent() -> None:
    request = handshake_request("h", 1, "/ws", KEY, subprotocol="oneM2M.json", headers={"X-M2M-Origin": "Cbb3"})
    assert b"\r\nSec-WebSocket-Protocol: oneM2M.json\r\n" in request
    assert b"\r\nX-M2M-Origin: Cbb3\r\n" in request
    assert b"Extensions" not in request
    assert b"Protocol" not in handshake_request("h", 1, "/ws", KEY, subprotocol="")


@pytest.mark.parametrize("header", [("X\r\nY", "1"), ("X", "1\r\nY: 2"), ("", "1"), ("X", "a\0b"), ("X", "\u20ac")])
def test_headers_that_would_be_something_else_are_refused(header: tuple[str, str]) -> None:
    with pytest.raises(WebSocketFault, match="cannot be written"):
        handshake_request("h", 1, "/", KEY, headers=dict([header]))


def test_a_subprotocol_must_be_the_one_asked_for() -> None:
    plain = GOOD.replace(b"Sec-WebSocket-Protocol: mqtt\r\n", b"")
    assert Handshake(KEY, subprotocol="").feed(plain) == b""
    assert Handshake(KEY, subprotocol="x").feed(GOOD.replace(b"mqtt", b"x")) == b""
    with pytest.raises(WebSocketFault, match="unasked"):
        Handshake(KEY, subprotocol="").feed(GOOD)
    with pytest.raises(WebSocketFault, match="did not choose the subprotocol x"):
        Handshake(KEY, subprotocol="x").feed(plain)
