"""NATS on the wire: publishing, requests, verbose mode, damage."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.dissect.talk import WHOLE_MESSAGE_BYTES
from battlebrokers.tables.message_header import HEADER, VERSION
from support.conversation import CLIENT, SERVER, Lost, heard, summary
from support.examples import examples

INFO = b'INFO {"server_id":"x","max_payload":1048576}\r\n'
CONNECT = b'CONNECT {"verbose":false,"lang":"python"}\r\n'


def pub(subject: bytes, payload: bytes, reply: bytes = b"") -> bytes:
    return b"PUB %b%b %d\r\n%b\r\n" % (subject, b" " + reply if reply else b"", len(payload), payload)


def msg(subject: bytes, payload: bytes, reply: bytes = b"") -> bytes:
    return b"MSG %b 1%b %d\r\n%b\r\n" % (subject, b" " + reply if reply else b"", len(payload), payload)


def found(said):
    return [told.found for told in said.messages]


@pytest.mark.parametrize("window", [1, 1 << 30])
def test_a_session_is_told_line_by_line(window):
    payload = HEADER.pack(VERSION << 24 | 8, 9, 1)
    turns = [
        (SERVER, INFO), (CLIENT, CONNECT + b"PING\r\n"), (SERVER, b"PONG\r\n"), (CLIENT, b"SUB a.* 1\r\nsub q g 2\r\n"),
        (CLIENT, pub(b"a.b", payload)), (SERVER, msg(b"a.b", payload)), (SERVER, b"PING\r\n"), (CLIENT, b"PONG\r\n"),
        (CLIENT, b"UNSUB 1 5\r\n"), (SERVER, b"-ERR 'Unknown Protocol Operation'\r\n"),
    ]  # fmt: skip
    said = heard(turns, 4222, window=window, protocol="nats")
    assert Counter(row.kind for row in found(said)) == {
        "INFO": 1, "CONNECT": 1, "PING": 2, "PONG": 2, "SUB": 2, "PUB": 1, "MSG": 1, "UNSUB": 1, "-ERR": 1,
    }  # fmt: skip
    assert sorted(said.pairs) == [("PING", "PONG"), ("PING", "PONG")]
    carried = [row for row in found(said) if row.kind in ("PUB", "MSG")]
    assert {(row.name, row.seq, row.payload_bytes) for row in carried} == {("a.b", 9, 16)}
    assert [row.name for row in found(said) if row.failed] == ["Unknown Protocol Operation"]
    assert said.stream.malformed == said.stream.undecoded_bytes == 0


@pytest.mark.parametrize("window", [1, 1 << 30])
def test_requests_pair_by_their_reply_subject_on_both_sides_of_the_server(window):
    asks = [
        (CLIENT, pub(b"svc", b"1", b"_INBOX.a.1") + pub(b"svc", b"2", b"_INBOX.a.2")),
        (SERVER, msg(b"_INBOX.a.2", b"two")), (SERVER, msg(b"_INBOX.a.1", b"one")),
    ]  # fmt: skip
    serves = [(SERVER, msg(b"svc", b"1", b"_INBOX.z.1")), (CLIENT, pub(b"_INBOX.z.1", b"done"))]
    said = heard([(SERVER, INFO), (CLIENT, CONNECT), *asks, *serves], 4222, window=window)
    pairs = {row.request.found.correlation: row.response.found.payload_bytes for row in said.exchanges}
    assert pairs == {"_INBOX.a.1": 3, "_INBOX.a.2": 3, "_INBOX.z.1": 4}
    assert {row.rule for row in said.exchanges} == {"id"}


def test_nobody_there_is_a_failure():
    answer = b"HMSG _INBOX.a 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"
    said = heard([(SERVER, INFO), (CLIENT, CONNECT + pub(b"svc", b"x", b"_INBOX.a")), (SERVER, answer)], 4222)
    assert said.pairs == [("PUB", "HMSG")]
    assert said.exchanges[0].response.found.failed


def test_headers_are_no_payload():
    head = b"NATS/1.0\r\nA: b\r\n\r\n"
    sent = b"HPUB a _INBOX.r %d %d\r\n%bhello\r\n" % (len(head), len(head) + 5, head)
    (row,) = (row for row in found(heard([(SERVER, INFO), (CLIENT, CONNECT + sent)], 4222)) if row.kind == "HPUB")
    assert (row.kind, row.name, row.correlation, row.payload_bytes) == ("HPUB", "a", "_INBOX.r", 5)


def test_in_verbose_mode_everything_is_answered():
    connect = b'CONNECT {"verbose": true}\r\n'
    turns = [(SERVER, INFO), (CLIENT, connect + b"SUB a 1\r\n" + pub(b"a", b"x")), (SERVER, b"+OK\r\n" * 2)]
    said = heard([*turns, (SERVER, b"-ERR 'Permissions Violation'\r\n")], 4222)
    assert said.pairs == [("CONNECT", "+OK"), ("SUB", "+OK"), ("PUB", "-ERR")]


def test_huge_payloads_are_passed_over():
    size = 2 * WHOLE_MESSAGE_BYTES
    payload = HEADER.pack(VERSION << 24 | 8, 9, 1).ljust(size, b".")
    said = heard([(SERVER, INFO), (CLIENT, CONNECT + pub(b"big", payload) + pub(b"small", b"x"))], 4222)
    rows = [row for row in found(said) if row.kind == "PUB"]
    assert [(row.name, row.payload_bytes, row.seq) for row in rows] == [("big", size, 9), ("small", 1, None)]


def test_after_a_gap_and_after_nonsense_reading_goes_on_at_a_line():
    lost = pub(b"a", b"x" * 50)
    turns = [(SERVER, INFO), (CLIENT, CONNECT + lost[:10]), (CLIENT, Lost(len(lost) - 10)), (CLIENT, pub(b"b", b"y"))]
    said = heard([*turns, (CLIENT, b"WHAT IS THIS\r\n" + pub(b"c", b"z"))], 4222)
    assert [row.name for row in found(said) if row.kind == "PUB"] == ["b", "c"]
    assert said.stream.malformed == 1


@st.composite
def conversations(draw):
    turns = [(SERVER, INFO), (CLIENT, CONNECT)]
    for n in range(draw(st.integers(1, 8))):
        payload = draw(st.binary(max_size=200))
        reply = b"_INBOX.%d" % n if draw(st.booleans()) else b""
        turns.append((CLIENT, pub(b"s.%d" % n, payload, reply)))
        if reply:
            turns.append((SERVER, msg(reply, payload)))
    return turns


@examples(60)
@given(conversations(), st.lists(st.integers(1, 60), min_size=1, max_size=5), st.sampled_from((1, 5, 1 << 30)))
def test_any_segmentation_and_window_tell_the_same(turns, cuts, window):
    whole = heard(turns, 4222, protocol="nats")
    assert whole.stream.malformed == whole.stream.undecoded_bytes == 0
    assert all(row.response is not None for row in whole.exchanges)
    assert summary(heard(turns, 4222, cut=cuts, window=window)) == summary(whole)
