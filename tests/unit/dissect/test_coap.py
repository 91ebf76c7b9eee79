"""CoAP: requests by token, acknowledgements by message id, notifications, retransmissions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from support.conversation import CLIENT, SERVER, heard

PORT = 5683
CON, NON, ACK, RST = range(4)
GET, PUT, CONTENT, CHANGED, NOT_FOUND = 1, 3, 0x45, 0x44, 0x84


def option(delta: int, value: bytes) -> bytes:
    def nibble(number: int) -> tuple[int, bytes]:
        if number < 13:
            return number, b""
        return (13, bytes([number - 13])) if number < 269 else (14, (number - 269).to_bytes(2, "big"))

    (first, more), (size, rest) = nibble(delta), nibble(len(value))
    return bytes([first << 4 | size]) + more + rest + value


def message(
    kind: int, code: int, identity: int, token: bytes = b"", options: bytes = b"", payload: bytes = b""
) -> bytes:
    head = bytes([0x40 | kind << 4 | len(token), code]) + identity.to_bytes(2, "big")
    return head + token + options + (b"\xff" + payload if payload else b"")


PATH = option(11, b"sensors") + option(0, b"temperature of the room")


def told(turns):
    said = heard(turns, PORT, transport="udp", protocol="coap")
    assert said.stream.malformed == said.stream.undecoded_bytes == 0
    return said


def test_a_piggybacked_response_answers_by_token():
    said = told([
        (CLIENT, message(CON, GET, 1, b"\x0a", PATH)), (CLIENT, message(CON, PUT, 2, b"\x0b", PATH, b"on")),
        (SERVER, message(ACK, CHANGED, 2, b"\x0b")), (SERVER, message(ACK, NOT_FOUND, 1, b"\x0a")),
    ])  # fmt: skip
    assert said.pairs == [("CON GET", "ACK 4.04"), ("CON PUT", "ACK 2.04")]
    assert {row.found.name for row in said.messages} == {"/sensors/temperature of the room"}
    assert [row.found.failed for row in said.messages] == [False, False, False, True]
    assert said.messages[1].found.payload_bytes == 2


def test_a_separate_response_is_the_answer_and_is_acknowledged_itself():
    said = told([
        (CLIENT, message(CON, GET, 1, b"\x0a", PATH)), (SERVER, message(ACK, 0, 1)),
        (SERVER, message(CON, CONTENT, 900, b"\x0a", payload=b"21")), (CLIENT, message(ACK, 0, 900)),
    ])  # fmt: skip
    assert said.pairs == [("CON GET", "CON 2.05"), ("CON 2.05", "ACK Empty")]
    assert {row.rule for row in said.exchanges} == {"id"}


def test_notifications_are_a_stream():
    watch = option(6, b"") + option(5, b"t")
    said = told([
        (CLIENT, message(CON, GET, 1, b"\x0a", watch)),
        (SERVER, message(ACK, CONTENT, 1, b"\x0a", option(6, b"\x01"), b"1")),
        (SERVER, message(NON, CONTENT, 7, b"\x0a", option(6, b"\x02"), b"2")),
        (SERVER, message(CON, CONTENT, 8, b"\x0a", option(6, b"\x03"), b"3")), (CLIENT, message(RST, 0, 8)),
    ])  # fmt: skip
    assert said.pairs == [("CON GET", "ACK 2.05"), ("CON 2.05", "RST Empty")]
    assert [row.found.name for row in said.messages][:4] == ["/t"] * 4


def test_a_retransmission_asks_nothing_new():
    ask = message(CON, GET, 1, b"\x0a", PATH)
    answer = message(ACK, CONTENT, 1, b"\x0a", payload=b"x")
    said = told([(CLIENT, ask), (CLIENT, ask), (SERVER, answer), (SERVER, answer)])
    assert said.kinds == ["CON GET"] * 2 + ["ACK 2.05"] * 2
    assert len(said.exchanges) == 1
    assert said.exchanges[0].request_number == 0


def test_a_ping_and_a_refused_request_are_answered_by_a_reset():
    said = told([
        (CLIENT, message(NON, GET, 2, b"\x0a", PATH)), (SERVER, message(RST, 0, 2)),
        (CLIENT, message(CON, 0, 1)), (SERVER, message(RST, 0, 1)),
    ])  # fmt: skip
    assert said.pairs == [("NON GET", "RST Empty"), ("CON Empty", "RST Empty")]


def test_what_is_not_coap_is_counted():
    good = message(CON, GET, 1, b"\x0a", PATH)
    said = heard([(CLIENT, good), (CLIENT, good[:-3]), (CLIENT, b"\xff\xff")], PORT, transport="udp")
    assert said.stream.malformed == 2
    assert said.stream.undecoded_bytes == len(good) - 3 + 2


@given(
    st.sampled_from([CON, NON]), st.integers(1, 7), st.binary(max_size=8), st.binary(min_size=1, max_size=300),
    st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=300)), max_size=6),
)  # fmt: skip
def test_any_options_and_payload_are_read(kind, code, token, payload, options):
    written = message(kind, code, 9, token, b"".join(option(*one) for one in options), payload)
    said = heard([(CLIENT, written)], PORT, transport="udp")
    assert [row.found.payload_bytes for row in said.messages] == [len(payload)]
    assert said.messages[0].found.correlation == token.hex()
