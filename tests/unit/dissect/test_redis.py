"""Redis on the wire: commands, replies, pushes, modes, damage."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.dissect.protocols import redis
from battlebrokers.dissect.talk import WHOLE_MESSAGE_BYTES
from battlebrokers.tables.message_header import HEADER, VERSION
from support.conversation import CLIENT, SERVER, Lost, heard, summary
from support.examples import examples


def array(*words: bytes | str, first: bytes = b"*") -> bytes:
    parts = [word.encode() if isinstance(word, str) else word for word in words]
    return b"%b%d\r\n" % (first, len(parts)) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


def found(said, sender=None):
    return [told.found for told in said.messages if sender is None or told.found.sender == sender]


OK = b"+OK\r\n"


def test_pipelined_commands_are_answered_in_order():
    commands = array("SET", "k", "v") + array("get", "k") + array("GET", "none") + array("INCR", "k") + b"PING\r\n"
    replies = OK + b"$1\r\nv\r\n" + b"$-1\r\n" + b"-ERR value is not an integer\r\n" + b"+PONG\r\n"
    said = heard([(CLIENT, commands), (SERVER, replies)], 6379, protocol="redis")
    assert said.pairs == [("SET", "OK"), ("GET", "BULK"), ("GET", "NIL"), ("INCR", "ERROR"), ("PING", "PONG")]
    assert [row.name for row in found(said, CLIENT)] == ["k", "k", "none", "k", ""]
    assert [row.failed for row in found(said, SERVER)] == [False, False, False, True, False]
    assert found(said)[0].fingerprint == found(said, SERVER)[1].fingerprint
    assert said.stream.malformed == said.stream.undecoded_bytes == 0


def test_every_type_of_resp3_is_one_reply():
    values = [
        b"%2\r\n+a\r\n:1\r\n+b\r\n*2\r\n#t\r\n_\r\n", b"~2\r\n:1\r\n:2\r\n", b",1.5\r\n", b"#f\r\n", b"_\r\n",
        b"(12345678901234567890123\r\n", b"=7\r\ntxt:abc\r\n", b"!5\r\nERR x\r\n", b"|1\r\n+ttl\r\n:5\r\n$1\r\nv\r\n",
        b"*0\r\n", b"*-1\r\n", b"*2\r\n*1\r\n*1\r\n:1\r\n$0\r\n\r\n",
    ]  # fmt: skip
    said = heard([(CLIENT, array("DEBUG", "PROTOCOL") * len(values)), (SERVER, b"".join(values))], 6379)
    answers = [answer for _, answer in said.pairs]
    assert answers == [
        "MAP", "SET", "DOUBLE", "BOOLEAN", "NIL", "INTEGER", "BULK", "ERROR", "MAP", "ARRAY", "NIL", "ARRAY",
    ]  # fmt: skip


pieces = st.sampled_from(
    (
        b"*",
        b"$",
        b"+",
        b"-",
        b":",
        b"1",
        b"2",
        b"-1",
        b"0",
        b"\r\n",
        b"\r\n",
        b"OK",
        b"GET",
        b"x",
        b"\r",
        b"$1\r\nx\r\n",
    )
)


@examples(300)
@given(
    said=st.lists(st.tuples(st.sampled_from((CLIENT, SERVER)), st.lists(pieces, max_size=12)), max_size=8),
    cut=st.integers(1, 30),
)
def test_values_that_are_whole_at_once_are_read_as_those_that_are_scanned(said, cut):
    turns = [(CLIENT, array("GET", "k"))]
    for sender, words in said:
        turns += [(sender, b"".join(words)), (SERVER, OK), (CLIENT, array("SET", "k", "v"))]
    quick = heard(turns, 6379, cut=cut)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redis, "simple", lambda data, pos: None)
        scanned = heard(turns, 6379, cut=cut)
    assert summary(quick) == summary(scanned)
    assert (quick.stream.malformed, quick.stream.undecoded_bytes) == (
        scanned.stream.malformed, scanned.stream.undecoded_bytes,
    )  # fmt: skip


@pytest.mark.parametrize("first", [b"*", b">"])
@pytest.mark.parametrize("window", [1, 1 << 30])
def test_pushes_are_no_answers(first, window):
    def confirmed(kind, channel, count):
        return b"%b3\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n:%d\r\n" % (first, len(kind), kind, len(channel), channel, count)

    payload = HEADER.pack(VERSION << 24 | 4, 5, 6)
    turns = [
        (CLIENT, array("SUBSCRIBE", "a", "b")), (SERVER, confirmed(b"subscribe", b"a", 1)),
        (SERVER, array("message", "a", payload, first=first)), (SERVER, confirmed(b"subscribe", b"b", 2)),
        (CLIENT, array("PSUBSCRIBE", "x*")), (SERVER, confirmed(b"psubscribe", b"x*", 3)),
        (SERVER, array("pmessage", "x*", "xy", "hello", first=first)), (CLIENT, array("PING")),
        (SERVER, array("pong", "") if first == b"*" else b"+PONG\r\n"), (CLIENT, array("UNSUBSCRIBE")),
        (SERVER, confirmed(b"unsubscribe", b"a", 2)), (SERVER, confirmed(b"unsubscribe", b"b", 1)),
        (CLIENT, array("QUIT")), (SERVER, OK),
    ]  # fmt: skip
    said = heard(turns, 6379, window=window)
    assert said.pairs == [
        ("SUBSCRIBE", "subscribe"), ("PSUBSCRIBE", "psubscribe"), ("PING", "ARRAY" if first == b"*" else "PONG"),
        ("UNSUBSCRIBE", "unsubscribe"), ("QUIT", "OK"),
    ]  # fmt: skip
    pushed = {row.kind: row for row in found(said) if "message" in row.kind}
    assert (pushed["message"].name, pushed["message"].seq) == ("a", 5)
    assert (pushed["pmessage"].name, pushed["pmessage"].payload_bytes) == ("x*", 5)
    assert next(row for row in found(said) if row.kind == "SUBSCRIBE").name == "a, b"


def test_who_wants_no_replies_gets_none():
    turns = [
        (CLIENT, array("CLIENT", "REPLY", "SKIP") + array("SET", "a", "1") + array("GET", "a")),
        (SERVER, b"$1\r\n1\r\n"),
        (CLIENT, array("CLIENT", "REPLY", "OFF") + array("SET", "a", "2") + array("SET", "a", "3")),
        (CLIENT, array("CLIENT", "REPLY", "ON") + array("GET", "a")), (SERVER, OK + b"$1\r\n3\r\n"),
    ]  # fmt: skip
    assert heard(turns, 6379).pairs == [("GET", "BULK"), ("CLIENT", "OK"), ("GET", "BULK")]


def test_a_transaction_is_answered_command_by_command():
    turns = [
        (CLIENT, array("MULTI") + array("SET", "a", "1") + array("EXEC")),
        (SERVER, OK + b"+QUEUED\r\n" + b"*1\r\n+OK\r\n"),
    ]  # fmt: skip
    assert heard(turns, 6379).pairs == [("MULTI", "OK"), ("SET", "QUEUED"), ("EXEC", "ARRAY")]


def test_monitored_commands_are_pushes():
    line = b'+1700000000.123456 [0 127.0.0.1:5000] "GET" "a"\r\n'
    said = heard([(CLIENT, b"MONITOR\r\n"), (SERVER, OK + line * 3)], 6379)
    assert said.pairs == [("MONITOR", "OK")]
    assert Counter(row.kind for row in found(said, SERVER)) == {"OK": 1, "MONITOR": 3}


@pytest.mark.parametrize("mark", [b"", b"e" * 40])
def test_a_replica_is_sent_a_dump_and_commands(mark):
    dump = b"$EOF:" + mark + b"\r\nREDIS0011..." + mark if mark else b"$12\r\nREDIS0011..."
    turns = [
        (CLIENT, array("PSYNC", "?", "-1")), (SERVER, b"+FULLRESYNC abc 0\r\n"), (SERVER, dump),
        (SERVER, array("SET", "k", "v") + array("REPLCONF", "GETACK", "*")), (CLIENT, array("REPLCONF", "ACK", "0")),
    ]  # fmt: skip
    for window in (1, 1 << 30):
        said = heard(turns, 6379, window=window)
        assert said.pairs == [("PSYNC", "FULLRESYNC")]
        assert [row.kind for row in found(said, SERVER)] == ["FULLRESYNC", "DUMP", "SET", "REPLCONF"]
        assert said.stream.malformed == 0


def test_queued_values_are_found_on_their_way_out():
    turns = [
        (CLIENT, array("LPUSH", "q", "value") + array("XADD", "s", "*", "f", "value")),
        (SERVER, b":1\r\n$3\r\n1-1\r\n"), (CLIENT, array("BRPOP", "q", "0") + array("XREAD", "STREAMS", "s", "0")),
        (SERVER, array("q", "value") + b"*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n1-1\r\n" + array("f", "value")),
    ]  # fmt: skip
    said = heard(turns, 6379)
    marks = [row.fingerprint for row in found(said) if row.kind in ("LPUSH", "XADD", "ARRAY")]
    assert len(marks) == 4
    assert len(set(marks)) == 1
    assert [row.name for row in found(said, CLIENT)] == ["q", "s", "q", "s"]


def test_secrets_are_not_told():
    turns = [(CLIENT, array("AUTH", "secret") + array("HELLO", "3", "AUTH", "me", "secret")), (SERVER, OK + b"%0\r\n")]
    assert {row.name for row in found(heard(turns, 6379))} == {""}


@pytest.mark.parametrize("cut", [1400, 70_000])
def test_huge_values_are_passed_over(cut):
    size = 2 * WHOLE_MESSAGE_BYTES
    payload = HEADER.pack(VERSION << 24 | 4, 5, 6).ljust(size, b".")
    many = b"*60000\r\n" + b"$3\r\nabc\r\n" * 60_000
    turns = [
        (CLIENT, array("SET", "k", payload, "EX", "9") + array("LRANGE", "l", "0", "-1") + array("GET", "k")),
        (SERVER, OK + many + b"$%d\r\n" % size + payload + b"\r\n"), (CLIENT, array("PING")), (SERVER, b"+PONG\r\n"),
    ]  # fmt: skip
    said = heard(turns, 6379, cut=cut)
    assert said.pairs == [("SET", "OK"), ("LRANGE", "ARRAY"), ("GET", "BULK"), ("PING", "PONG")]
    rows = {row.kind: row for row in found(said)}
    assert (rows["SET"].seq, rows["SET"].payload_bytes, rows["SET"].name) == (5, size, "k")
    assert (rows["BULK"].seq, rows["BULK"].payload_bytes) == (5, size)
    assert rows["ARRAY"].end - rows["ARRAY"].start == len(many)
    assert said.stream.malformed == said.stream.undecoded_bytes == 0


@pytest.mark.parametrize(
    "bytes_",
    [b"*1\r\n" * 5000, b"$99999999999999999999\r\n", b"*999999999999\r\n", b"$-5x\r\n", b"?\r\n", b"*" * 100_000],
)
def test_hostile_lengths_and_depths_are_survived(bytes_):
    said = heard([(CLIENT, array("GET", "a")), (SERVER, bytes_), (CLIENT, array("PING"))], 6379)
    assert Counter(row.kind for row in found(said, CLIENT)) == {"GET": 1, "PING": 1}
    assert said.stream.malformed + said.stream.undecoded_bytes > 0


def test_after_a_gap_reading_goes_on_at_a_command():
    lost = array("SET", "key", "v" * 60)
    turns = [(CLIENT, array("GET", "a")), (SERVER, b"$1\r\n1\r\n"), (CLIENT, lost[:30]), (CLIENT, Lost(len(lost) - 30))]
    turns += [(SERVER, OK), (CLIENT, array("GET", "b")), (SERVER, b"$1\r\n2\r\n")]
    said = heard(turns, 6379, window=1)
    assert Counter(row.kind for row in found(said)) == {"GET": 2, "BULK": 2, "OK": 1}
    assert [row.certain for row in said.exchanges] == [True, False]


words = st.binary(min_size=1, max_size=60)


@st.composite
def conversations(draw):
    commands, replies = [], []
    for _ in range(draw(st.integers(1, 8))):
        commands.append(array(draw(st.sampled_from(("SET", "GET", "LPUSH"))), *draw(st.lists(words, max_size=14))))
        replies.append(
            draw(st.sampled_from((OK, b"$-1\r\n", b":5\r\n", b"-ERR no\r\n", b"*0\r\n", b"%1\r\n+a\r\n*1\r\n:2\r\n")))
            if draw(st.booleans()) else array(*draw(st.lists(words, max_size=14)))
        )  # fmt: skip
    return [(CLIENT, b"".join(commands)), (SERVER, b"".join(replies))]


@examples(60)
@given(conversations(), st.lists(st.integers(1, 60), min_size=1, max_size=5), st.sampled_from((1, 5, 1 << 30)))
def test_any_segmentation_and_window_tell_the_same(turns, cuts, window):
    whole = heard(turns, 6379, protocol="redis")
    assert whole.stream.malformed == whole.stream.undecoded_bytes == 0
    assert all(row.response is not None for row in whole.exchanges)
    assert summary(heard(turns, 6379, cut=cuts, window=window)) == summary(whole)
