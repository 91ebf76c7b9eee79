"""HTTP/1.x on the wire: framing, pipelining, upgrades, damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.dissect.talk import WHOLE_MESSAGE_BYTES
from support.conversation import CLIENT, SERVER, Lost, heard, summary
from support.examples import examples

GET = b"GET /a/b?q=1 HTTP/1.1\r\nHost: x\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


def chunked(*parts: bytes, trailer: bytes = b"") -> bytes:
    body = b"".join(b"%x;ext=1\r\n%b\r\n" % (len(part), part) for part in parts)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n" + body + b"0\r\n" + trailer + b"\r\n"


def found(said):
    return [told.found for told in said.messages]


def test_requests_and_answers_pair_in_order_when_pipelined():
    missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    post = b"POST /p HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"
    said = heard([(CLIENT, GET + post + GET), (SERVER, OK + missing), (SERVER, OK)], 8080, protocol="http")
    assert said.pairs == [("GET", "200"), ("POST", "404"), ("GET", "200")]
    assert [row.name for row in found(said)] == ["/a/b", "/p", "/a/b", "", "", ""]
    assert [row.failed for row in found(said)] == [False] * 4 + [True, False]
    assert [row.payload_bytes for row in found(said)] == [0, 3, 0, 5, 0, 5]
    assert {row.rule for row in said.exchanges} == {"order"}
    assert said.stream.malformed == said.stream.undecoded_bytes == 0


def test_interim_answers_are_part_of_the_final_one():
    head = b"POST /p HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
    hold_on = b"HTTP/1.1 100 Continue\r\n\r\n"
    said = heard([(CLIENT, head), (SERVER, hold_on), (CLIENT, b"abc"), (SERVER, OK)], 8080)
    assert said.pairs == [("POST", "200")]
    assert said.kinds.count("100") == 1
    assert said.exchanges[0].response_bytes == len(hold_on) + len(OK)


def test_an_answer_before_the_request_is_whole_does_not_shift_later_ones():
    """As nginx refuses a POST: the HEAD after it is still answered without a body."""
    head = b"POST /p HTTP/1.1\r\nContent-Length: 3\r\n\r\n"
    refused = b"HTTP/1.1 405 Not Allowed\r\nContent-Length: 0\r\n\r\n"
    turns = [(CLIENT, head), (SERVER, refused), (CLIENT, b"abc"), (CLIENT, b"HEAD /x HTTP/1.1\r\n\r\n")]
    turns += [(SERVER, b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"), (CLIENT, GET), (SERVER, OK)]
    said = heard(turns, 8080)
    assert said.pairs == [("POST", "405"), ("HEAD", "200"), ("GET", "200")]
    assert said.stream.malformed == said.stream.undecoded_bytes == 0


def test_some_answers_have_no_body_whatever_they_say():
    head = b"HEAD /x HTTP/1.1\r\n\r\n"
    said = heard(
        [
            (CLIENT, head + GET + GET + GET), (SERVER, b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"),
            (SERVER, b"HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\n\r\n"),
            (SERVER, b"HTTP/1.1 204 No Content\r\n\r\n"), (SERVER, OK),
        ],
        8080,
    )  # fmt: skip
    assert said.pairs == [("HEAD", "200"), ("GET", "304"), ("GET", "204"), ("GET", "200")]
    assert said.stream.malformed == 0


def test_chunks_make_one_body_and_trailers_end_it():
    said = heard([(CLIENT, GET * 2), (SERVER, chunked(b"hel", b"lo", trailer=b"X-Sum: 5\r\n") + OK)], 8080)
    assert said.pairs == [("GET", "200")] * 2
    first, second = found(said)[2:]
    assert first.payload_bytes == 5
    assert first.fingerprint == second.fingerprint  # the same five bytes


@pytest.mark.parametrize("size", [100, WHOLE_MESSAGE_BYTES + 5000])
def test_a_body_without_length_lasts_until_the_end(size):
    answer = b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * size
    said = heard([(CLIENT, GET), (SERVER, answer)], 8080)
    assert said.pairs == [("GET", "200")]
    assert (found(said)[1].end, found(said)[1].payload_bytes) == (len(answer), size)
    assert said.stream.undecoded_bytes == 0


@pytest.mark.parametrize("cut", [1400, 70_000])
def test_huge_bodies_are_passed_over(cut):
    size = 3 * WHOLE_MESSAGE_BYTES
    plain = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size
    parts = chunked(b"y" * 10_000, b"z" * size, b"w" * 500_000, trailer=b"A: b\r\n")
    said = heard([(CLIENT, GET * 3), (SERVER, plain + parts + OK)], 8080, cut=cut)
    assert said.pairs == [("GET", "200")] * 3
    assert [row.payload_bytes for row in found(said)[3:]] == [size, size + 510_000, 5]
    assert found(said)[4].end - found(said)[4].start == len(parts)
    assert said.stream.malformed == said.stream.undecoded_bytes == 0


def test_sloppy_messages_are_survived():
    request = b"\r\n\nGET / HTTP/1.1\nHost: x\nX-Long: one\n two\n\n"
    answer = b"HTTP/1.1 200\nContent-Length: 2, 2\nContent-Type: text\n\nok"
    said = heard([(CLIENT, request), (SERVER, answer)], 8080)
    assert said.pairs == [("GET", "200")]
    assert said.stream.malformed == 0


def test_a_refused_upgrade_goes_on_as_http():
    ask = b"GET /ws HTTP/1.1\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\r\n"
    for window in (1, 1 << 30):
        said = heard([(CLIENT, ask), (SERVER, OK), (CLIENT, GET), (SERVER, OK)], 8080, window=window)
        assert said.pairs == [("GET", "200")] * 2
        assert said.stream.protocol == "http"


def test_a_tunnel_is_whatever_its_content_says():
    mqtt = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00"
    connect = b"CONNECT b:1883 HTTP/1.1\r\nHost: b:1883\r\n\r\n"
    said = heard(
        [(CLIENT, connect), (SERVER, b"HTTP/1.1 200 OK\r\n\r\n"), (CLIENT, mqtt), (SERVER, b"\x20\x02\x00\x00")], 3128
    )
    assert said.pairs == [("CONNECT", "200"), ("CONNECT", "CONNACK")]
    assert said.stream.protocol == "mqtt"
    assert said.stream.recognised_by == "upgrade"


def test_after_a_gap_reading_goes_on_at_a_start_line_and_order_is_doubted():
    turns = [(CLIENT, GET), (SERVER, OK), (CLIENT, GET), (SERVER, OK[:25]), (SERVER, Lost(len(OK) - 25))]
    turns += [(CLIENT, GET), (SERVER, OK)]
    said = heard(turns, 8080, window=1)
    assert len([row for row in said.exchanges if row.response]) == 2
    assert said.exchanges[0].certain
    assert not all(row.certain for row in said.exchanges)
    assert said.stream.malformed == 0


def test_nonsense_is_counted_and_left_behind():
    said = heard([(CLIENT, GET + b"\x00\x01\x02 what\r\n" + GET), (SERVER, OK * 2)], 8080)
    assert said.pairs == [("GET", "200")] * 2
    assert said.stream.malformed == 1


token = st.text("abcdefgXYZ-", min_size=1, max_size=10).map(str.encode)


@st.composite
def conversations(draw):
    requests, answers = [], []
    for _ in range(draw(st.integers(1, 6))):
        body = draw(st.binary(max_size=300))
        method = draw(st.sampled_from((b"GET", b"PUT", b"HEAD")))
        requests.append(
            method + b" /" + draw(token) + b" HTTP/1.1\r\n" + draw(token) + b": " + draw(token)
            + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )  # fmt: skip
        if method == b"HEAD":
            answers.append(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n")
        elif draw(st.booleans()):
            answers.append(chunked(*draw(st.lists(st.binary(min_size=1, max_size=50), max_size=5))))
        else:
            answers.append(b"HTTP/1.1 500 Oops\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    return [(CLIENT, b"".join(requests)), (SERVER, b"".join(answers))]


@examples(60)
@given(conversations(), st.lists(st.integers(1, 60), min_size=1, max_size=5), st.sampled_from((1, 5, 1 << 30)))
def test_any_segmentation_and_window_tell_the_same(turns, cuts, window):
    whole = heard(turns, 8080, protocol="http")
    assert whole.stream.malformed == whole.stream.undecoded_bytes == 0
    assert all(row.response is not None for row in whole.exchanges)
    assert summary(heard(turns, 8080, cut=cuts, window=window)) == summary(whole)
