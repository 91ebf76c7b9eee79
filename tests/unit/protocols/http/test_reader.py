"""The reader: every shape of an HTTP message, every split of it, and any bytes at all."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.protocols.http.head import BODY_LIMIT_BYTES, HEAD_LIMIT_BYTES, Malformed
from battlebrokers.protocols.http.reader import Reader, RequestReader
from support.examples import examples

Told = list[tuple[int, str, dict[str, str], bytes, bool, int]]


def read_all(reader: Reader, chunks: list[bytes], *, closed: bool = True) -> tuple[Told, str]:
    """Every message in these chunks, and how it ended."""
    told: Told = []

    def complete() -> None:
        head = reader.head
        assert head is not None
        wire_bytes = reader.fed_bytes - reader.left_bytes
        told.append((head.status, head.target, head.headers, reader.take(), head.keeps_alive, wire_bytes))

    try:
        for chunk in chunks:
            if reader.feed(chunk):
                complete()
                while reader.next():
                    complete()
        if closed and reader.head is not None and reader.end():
            complete()
            return told, "closed"
    except Malformed:
        return told, "malformed"
    return told, "unfinished" if reader.fed_bytes else "clean"


def one(data: bytes) -> tuple[int, bytes, bool]:
    told, _ = read_all(Reader(), [data])
    [(status, _, _, body, keeps_alive, wire_bytes)] = told
    assert wire_bytes == len(data)
    return status, body, keeps_alive


CHUNKED_WITH_EVERYTHING = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nContent-Length: 99\r\n\r\n"
    b"A;x=y\r\n0123456789\r\n1\r\n!\r\n000\r\nTrailer: 1\r\nOther: 2\r\n\r\n"
)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", (200, b"abc", True)),
        (b"HTTP/1.1 201\r\ncontent-length:0\r\n\r\n", (201, b"", True)),
        (b"HTTP/1.1 204 No Content\r\n\r\n", (204, b"", True)),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n", (304, b"", True)),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\nConnection: Close\r\n\r\nabc", (200, b"abc", False)),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", (200, b"a", False)),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na", (200, b"a", True)),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", (200, b"until the end", False)),
        (b"HTTP/1.1 200 OK\nContent-Length: 1\n\na", (200, b"a", True)),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", (200, b"abc", True)),
        (CHUNKED_WITH_EVERYTHING, (200, b"0123456789!", True)),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 204 Y\r\n\r\n", (204, b"", True)),
    ],
)
def test_every_shape_of_an_answer_is_read(data: bytes, expected: tuple[int, bytes, bool]):
    assert one(data) == expected


def test_headers_of_one_name_are_joined_and_continued_lines_belong_to_their_header():
    data = b"HTTP/1.1 200 OK\r\nA: 1\r\nb: x\r\n y\r\na:2\r\nContent-Length: 0\r\n\r\n"
    [(_, _, headers, _, _, _)], _ = read_all(Reader(), [data])
    assert headers == {"a": "1, 2", "b": "x y", "content-length": "0"}


def test_an_answer_to_head_has_no_body_whatever_it_says():
    reader = Reader()
    reader.to_head = True
    assert reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")


HEADS = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\x00\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        HEADS + b"no colon\r\n\r\n",
        HEADS + b"name : spaced\r\n\r\n",
        HEADS + b": empty\r\n\r\n",
        HEADS + b" continues nothing\r\n\r\n",
        HEADS + b"a: nul\x00\r\n\r\n",
        HEADS + b"Content-Length: -1\r\n\r\n",
        HEADS + b"Content-Length: 1e3\r\n\r\n",
        HEADS + b"Content-Length: 1, 2\r\n\r\n",
        HEADS + b"Content-Length: \xb2\r\n\r\n",
        HEADS + b"Content-Length: %d\r\n\r\n" % (BODY_LIMIT_BYTES + 1),
        HEADS + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
        HEADS + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        HEADS + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n",
        HEADS + b"Transfer-Encoding: chunked\r\n\r\n\r\n",
        HEADS + b"Transfer-Encoding: chunked\r\n\r\n0x5\r\n",
        HEADS + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        HEADS + b"Transfer-Encoding: chunked\r\n\r\n7fffffff\r\n",
        HEADS + b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        HEADS + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 5000,
        HEADS + b"x" * HEAD_LIMIT_BYTES,
        HEADS + b"a: b\r\n" * HEAD_LIMIT_BYTES,
    ],
)
def test_what_is_no_answer_is_told_as_such_in_one_piece_and_in_many(data: bytes):
    assert read_all(Reader(), [data])[1] == "malformed"
    assert read_all(Reader(), [data[place : place + 7] for place in range(0, len(data), 7)])[1] == "malformed"


def feed_for_ever(reader: Reader, data: bytes) -> None:
    for _ in range(10_000):
        reader.feed(data)


def test_endless_headers_take_no_more_memory_than_the_limit():
    reader = Reader()
    reader.feed(HEADS)
    with pytest.raises(Malformed, match="a head of more than"):
        feed_for_ever(reader, b"X-Header: yes\r\n")
    assert reader.fed_bytes < HEAD_LIMIT_BYTES + 100


def test_endless_trailers_are_not_read_for_ever():
    reader = Reader()
    reader.feed(HEADS + b"Transfer-Encoding: chunked\r\n\r\n0\r\n")
    with pytest.raises(Malformed, match="trailers"):
        feed_for_ever(reader, b"X-Trailer: yes\r\n")


def test_a_body_of_many_small_chunks_may_not_be_larger_than_the_limit():
    reader = Reader()
    reader.feed(HEADS + b"Transfer-Encoding: chunked\r\n\r\n")
    chunk = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
    with pytest.raises(Malformed, match="a body of more than"):
        feed_for_ever(reader, chunk)


def test_a_stream_that_is_taken_while_it_comes_has_no_limit():
    reader = Reader()
    reader.feed(HEADS + b"Transfer-Encoding: chunked\r\n\r\n")
    chunk = b"400000\r\n" + bytes(1 << 22) + b"\r\n"
    for _ in range(20):
        assert not reader.feed(chunk)
        assert len(reader.take()) == 1 << 22


def test_requests_are_read_too():
    data = b"\r\nPOST /a?b=c HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhiGET / HTTP/1.0\r\n\r\n"
    told, end = read_all(RequestReader(), [data])
    assert [(each[1], each[3], each[4]) for each in told] == [("/a?b=c", b"hi", True), ("/", b"", False)]
    assert end == "clean"


@pytest.mark.parametrize(
    "data", [b"x" * 40, b"GET /\r\n\r\n", b"GET / HTTP/2.0\r\n\r\n", b"\x16\x03\x01 \n\n", b"\r\n\r\n\r\n"]
)
def test_what_is_no_request_is_told_as_such(data: bytes):
    assert read_all(RequestReader(), [data])[1] == "malformed"


# ── properties ───────────────────────────────────────────────────────────────────────────────────────────────────

names = st.sampled_from([b"A", b"x-y", b"Connection", b"Keep-Alive", b"Set-Cookie"])
values = st.sampled_from([b"", b"1", b"close", b"keep-alive", b"a b", b"\xff"])


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """Proper answers with bodies of all kinds."""
    lines = [name + b": " + value for name, value in draw(st.lists(st.tuples(names, values), max_size=3))]
    body = draw(st.binary(max_size=40))
    if draw(st.booleans()):
        lines.append(b"Content-Length: %d" % len(body))
        content = body
    else:
        lines.append(b"Transfer-Encoding: chunked")
        cut = draw(st.integers(0, len(body)))
        pieces = [piece for piece in (body[:cut], body[cut:]) if piece]
        content = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    status = draw(st.sampled_from([b"200 OK", b"500 Oh", b"404", b"201 Created"]))
    return b"\r\n".join([b"HTTP/1.1 " + status, *lines]) + b"\r\n\r\n" + content


fragments = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.",
        b"\r\n",
        b"\n",
        b"\r",
        b"Content-Length: 3\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"3\r\nabc\r\n",
        b"0\r\n\r\n",
        b"abc",
        b"\x00",
        b":",
        b"GET / HTTP/1.1\r\n",
        b"HTTP/1.1 100 C\r\n\r\n",
        b"-1\r\n",
    ]
)
bytes_of_any_kind = st.one_of(
    st.binary(max_size=80),
    st.lists(fragments, max_size=14).map(b"".join),
    st.lists(answers(), max_size=3).map(b"".join),
)


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[begin:end] for begin, end in pairwise(places)]


@examples(400)
@given(bytes_of_any_kind, st.lists(st.integers(0, 400), max_size=12), st.booleans())
def test_any_bytes_in_any_pieces_are_read_like_in_one(data: bytes, cuts: list[int], requests: bool):
    kind = RequestReader if requests else Reader
    whole = read_all(kind(), [data] if data else [])
    assert read_all(kind(), split(data, cuts)) == whole
    assert read_all(kind(), [bytes([byte]) for byte in data]) == whole


@examples(200)
@given(answers(), st.lists(st.integers(0, 400), max_size=6))
def test_proper_answers_are_complete_with_their_last_byte_and_not_before(data: bytes, cuts: list[int]):
    told, end = read_all(Reader(), split(data, cuts))
    assert end == "clean"
    assert [each[5] for each in told] == [len(data)]
    assert read_all(Reader(), [data[:-1]], closed=False)[1] == "unfinished"


@pytest.mark.parametrize(
    "answer",
    [
        HEADS + b"Content-Length: 1001\r\n\r\n",
        HEADS + b"Transfer-Encoding: chunked\r\n\r\n3e9\r\n",
        HEADS + b"Transfer-Encoding: chunked\r\n\r\n3e8\r\n" + bytes(1000) + b"\r\n1\r\n" + b"x",
        HEADS + b"\r\n" + bytes(500) + bytes(501),
    ],
    ids=["announced", "chunk", "chunks", "until it closes"],
)
def test_a_reader_holds_no_more_than_it_was_made_for(answer: bytes):
    reader = Reader(1000)

    def feed() -> None:
        for place in range(0, len(answer), 500):
            reader.feed(answer[place : place + 500])

    with pytest.raises(Malformed, match="1000"):
        feed()
