"""PostgreSQL: simple and extended queries, copies, errors, encryption."""

from __future__ import annotations

from struct import pack

from hypothesis import given
from hypothesis import strategies as st

from support.conversation import CLIENT, SERVER, Lost, heard, summary
from support.examples import examples

PORT = 5432


def typed(kind: str, body: bytes = b"") -> bytes:
    return kind.encode() + pack(">I", len(body) + 4) + body


def startup(code: int = 196_608, body: bytes = b"") -> bytes:
    return pack(">II", len(body) + 8, code) + body


def bind(portal: str, statement: str, *values: bytes | None) -> bytes:
    parameters = b"".join(pack(">i", -1) if value is None else pack(">I", len(value)) + value for value in values)
    body = f"{portal}\0{statement}\0".encode() + pack(">HH", 0, len(values)) + parameters + pack(">H", 0)
    return typed("B", body)


def error(state: str) -> bytes:
    return typed("E", f"SERROR\0C{state}\0Mno\0\0".encode())


ROW = typed("D", pack(">HI", 1, 1) + b"1")
READY = typed("Z", b"I")
HELLO = [
    (CLIENT, startup(body=b"user\0bob\0database\0shop\0\0")),
    (SERVER, typed("R", pack(">I", 5) + b"salt")),
    (CLIENT, typed("p", b"md5secret\0")),
    (SERVER, typed("R", pack(">I", 0)) + typed("S", b"TimeZone\0UTC\0") + typed("K", b"\0" * 8) + READY),
]
SIMPLE = [
    (CLIENT, typed("Q", b"  select *\n from t; select 2\0")),
    (SERVER, typed("T", b"\0\0") + ROW * 3 + typed("C", b"SELECT 3\0") + typed("N", b"C00000\0\0")),
    (SERVER, typed("T", b"\0\0")),
    (SERVER, ROW + typed("C", b"SELECT 1\0") + READY),
]  # fmt: skip
EXTENDED = [
    (CLIENT, typed("P", b"st\0insert into t values ($1)\0\0\0") + typed("D", b"Sst\0") + typed("H")),
    (SERVER, typed("1") + typed("t", b"\0\0") + typed("n")),
    (CLIENT, bind("", "st", b"x" * 40, None) + typed("E", b"\0\0\0\0\0") + typed("C", b"Sst\0") + typed("S")),
    (SERVER, typed("2") + typed("C", b"INSERT 0 1\0") + typed("3") + READY),
]
COPY = [
    (CLIENT, typed("Q", b"copy t from stdin\0")),
    (SERVER, typed("G", b"\0\0\0")),
    (CLIENT, typed("d", b"1\n") * 3 + typed("c")),
    (SERVER, typed("C", b"COPY 3\0") + READY),
]
END = [(SERVER, typed("A", pack(">I", 7) + b"news\0hello\0")), (CLIENT, typed("X"))]
TALK = [*HELLO, *SIMPLE, *EXTENDED, *COPY, *END]


def test_a_whole_conversation_is_told_and_paired():
    said = heard(TALK, PORT, protocol="postgresql")
    assert said.stream.malformed == said.stream.undecoded_bytes == 0
    assert said.pairs == [
        ("StartupMessage", "ReadyForQuery"), ("PasswordMessage", "Authentication"), ("Query", "ReadyForQuery"),
        ("Parse", "ParseComplete"), ("Describe", "NoData"), ("Bind", "BindComplete"), ("Execute", "CommandComplete"),
        ("Close", "CloseComplete"), ("Sync", "ReadyForQuery"), ("Query", "ReadyForQuery"),
    ]  # fmt: skip
    assert said.kinds.count("DataRow") == 4
    assert said.kinds.count("CopyData") == 3


def test_names_tell_what_it_is_about():
    names = {told.found.kind: told.found.name for told in heard([*HELLO, *SIMPLE, *EXTENDED, *END], PORT).messages}
    assert names["StartupMessage"] == "shop"
    assert names["Query"] == "select * from t; select 2"
    assert names["Bind"] == names["Execute"] == names["Close"] == "insert into t values ($1)"
    assert names["CommandComplete"] == "INSERT 0 1"
    assert names["NotificationResponse"] == "news"


def test_a_query_lasts_until_the_server_is_ready_and_counts_all_it_said():
    said = heard([*HELLO, *SIMPLE], PORT)
    query = next(row for row in said.exchanges if row.request.found.kind == "Query")
    notice = len(typed("N", b"C00000\0\0"))
    assert query.response_bytes == sum(len(data) for _, data in SIMPLE[1:]) - notice
    assert query.answered_ns < query.response.first_ns


@examples(60)
@given(st.lists(st.integers(1, 200), min_size=1, max_size=8), st.integers(1, 40))
def test_any_segmentation_and_window_gives_the_same_messages(cut, window):
    assert summary(heard(TALK, PORT, cut=cut, window=window)) == summary(heard(TALK, PORT))


def test_an_error_answers_its_query():
    said = heard([*HELLO, (CLIENT, typed("Q", b"oops\0")), (SERVER, error("42601") + READY), *SIMPLE], PORT)
    assert said.pairs[2:] == [("Query", "ErrorResponse"), ("Query", "ReadyForQuery")]
    failed = [told.found for told in said.messages if told.found.failed]
    assert [(row.kind, row.name) for row in failed] == [("ErrorResponse", "42601")]


def test_an_error_answers_what_is_discarded_up_to_the_sync():
    batch = typed("P", b"\0select\0\0\0") + bind("", "") + typed("E", b"\0\0\0\0\0")
    said = heard(
        [
            *HELLO,
            (CLIENT, batch + typed("S") + batch + typed("S")),
            (SERVER, typed("1") + error("22012") + READY + typed("1") + typed("2") + typed("C", b"X\0") + READY),
        ],
        PORT,
    )
    assert said.pairs[2:] == [
        ("Parse", "ParseComplete"), ("Bind", "ErrorResponse"), ("Execute", "ErrorResponse"), ("Sync", "ReadyForQuery"),
        ("Parse", "ParseComplete"), ("Bind", "BindComplete"), ("Execute", "CommandComplete"), ("Sync", "ReadyForQuery"),
    ]  # fmt: skip


def test_what_comes_after_an_error_and_before_the_sync_is_not_waited_for():
    said = heard(
        [
            *HELLO,
            (CLIENT, typed("P", b"\0select\0\0\0") + typed("H")),
            (SERVER, error("42601")),
            (CLIENT, bind("", "") + typed("S")),
            (SERVER, READY),
        ],
        PORT,
        window=1,
    )
    assert said.pairs[2:] == [("Parse", "ErrorResponse"), ("Sync", "ReadyForQuery")]


def test_refused_encryption_goes_on_in_the_clear():
    said = heard(
        [(CLIENT, startup(80_877_104)), (SERVER, b"N"), (CLIENT, startup(80_877_103)), (SERVER, b"N"), *TALK], PORT
    )
    assert said.pairs[:3] == [
        ("GSSENCRequest", "GSSENCResponse"), ("SSLRequest", "SSLResponse"), ("StartupMessage", "ReadyForQuery"),
    ]  # fmt: skip
    assert said.stream.malformed == 0


def test_accepted_encryption_hands_over():
    hello = b"\x16\x03\x01\0\x05hello"
    said = heard([(CLIENT, startup(80_877_103)), (SERVER, b"S"), (CLIENT, hello), (SERVER, hello)], PORT)
    assert said.pairs[0] == ("SSLRequest", "SSLResponse")
    assert said.stream.protocol == "tls"


def test_a_huge_message_is_counted_without_being_held():
    said = heard(
        [*HELLO, (CLIENT, typed("Q", b"select '" + b"x" * 900_000 + b"'\0")), (SERVER, ROW + READY), *SIMPLE], PORT
    )
    assert said.pairs[2:] == [("Query", "ReadyForQuery")] * 2
    assert said.stream.malformed == said.stream.undecoded_bytes == 0


def test_a_conversation_joined_in_the_middle_and_one_with_a_gap():
    assert heard(SIMPLE, PORT, protocol="postgresql").pairs == [("Query", "ReadyForQuery")]
    said = heard(
        [*HELLO, *SIMPLE[:2], (SERVER, Lost(40)), (SERVER, ROW + typed("C", b"SELECT 9\0") + READY), *SIMPLE], PORT
    )
    assert said.pairs[2:] == [("Query", "ReadyForQuery")] * 2
    assert [row.certain for row in said.exchanges if row.request.found.kind == "Query"] == [False, False]


def test_nonsense_is_counted_and_the_next_messages_are_found():
    said = heard([*HELLO, (SERVER, b"\xff" * 30), *SIMPLE], PORT)
    assert said.stream.malformed == 1
    assert said.stream.undecoded_bytes == 30
    assert said.pairs[-1] == ("Query", "ReadyForQuery")
