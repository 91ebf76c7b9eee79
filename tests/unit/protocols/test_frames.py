"""WebSocket frames in both directions, with the `websockets` package as the other side."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from battlebrokers.protocols.frames import Messages, Unwrapper, close_frame, wrap, wrap_all
from battlebrokers.protocols.upgrade import WebSocketFault
from support.examples import examples

SIZES = [0, 1, 3, 4, 5, 125, 126, 127, 1023, 1024, 1025, 1031, 65_535, 65_536, 100_003]


def server() -> ServerProtocol:
    """The server's side of an open connection."""
    return ServerProtocol(state=State.OPEN, max_size=None)


def from_server(payload: bytes, opcode: int = 2, final: bool = True, *, mask: bool = False, rsv: int = 0) -> bytes:
    """One frame as a server sends it."""
    raw = Frame(Opcode(opcode), payload, fin=final).serialize(mask=mask)
    return bytes((raw[0] | rsv << 4,)) + raw[1:]


@pytest.mark.parametrize("size", SIZES)
def test_a_server_reads_what_we_wrap(size: int) -> None:
    data = bytes(index * 7 & 0xFF for index in range(size))
    peer = server()
    peer.receive_data(wrap(data) + wrap(data, b"\1\2\3\4"))
    frames = peer.events_received()
    assert [(frame.opcode, frame.fin, bytes(frame.data)) for frame in frames] == [(Opcode.BINARY, True, data)] * 2


def test_masks_differ_from_frame_to_frame() -> None:
    assert len({wrap(bytes(100)) for _ in range(20)}) == 20


@pytest.mark.parametrize("size", SIZES)
def test_we_unwrap_what_a_server_sends(size: int) -> None:
    data = bytes(size)
    assert Unwrapper().feed(from_server(data) + from_server(b"end")) == data + b"end"


@given(st.lists(st.tuples(st.binary(max_size=200), st.integers(1, 3)), max_size=5), st.data())
def test_any_fragments_in_any_chunks_give_the_same_bytes(
    messages: list[tuple[bytes, int]], data: st.DataObject
) -> None:
    stream, expected, pings = b"", b"", 0
    for payload, pieces in messages:
        step = len(payload) // pieces + 1
        parts = [payload[index : index + step] for index in range(0, len(payload), step)] or [b""]
        for index, part in enumerate(parts):
            stream += from_server(part, 0 if index else 2, index == len(parts) - 1)
            stream += from_server(b"?", 9)
            pings += 1
        expected += payload
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    unwrapper, got, replies = Unwrapper(), b"", b""
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += unwrapper.feed(stream[begin:end])
        replies += unwrapper.replies()
    assert got == expected
    peer = server()
    peer.receive_data(replies)
    assert [(frame.opcode, bytes(frame.data)) for frame in peer.events_received()] == [(Opcode.PONG, b"?")] * pings


def test_a_pong_nobody_asked_for_is_ignored() -> None:
    unwrapper = Unwrapper()
    assert unwrapper.feed(from_server(b"x", 10) + from_server(b"data")) == b"data"
    assert unwrapper.replies() == b""


@pytest.mark.parametrize(
    ("payload", "code"), [(b"", 1005), (b"\x03\xe8", 1000), (b"\x03\xe9bye", 1001), (b"\x0f\xa0", 4000)]
)
def test_a_close_is_told_and_answered(payload: bytes, code: int) -> None:
    unwrapper = Unwrapper()
    assert unwrapper.feed(from_server(b"last") + from_server(payload, 8) + b"garbage") == b"last"
    assert unwrapper.closed == code
    peer = server()
    peer.send_close(code) if payload else peer.send_close()
    peer.receive_data(unwrapper.replies())
    assert [frame.opcode for frame in peer.events_received()] == [Opcode.CLOSE]
    assert unwrapper.feed(b"\xff\xff\xff") == b""


def test_our_close_frame_is_understood() -> None:
    peer = server()
    peer.receive_data(close_frame(1001))
    (frame,) = peer.events_received()
    assert (frame.opcode, bytes(frame.data)) == (Opcode.CLOSE, b"\x03\xe9")


BROKEN = {
    "masked": (from_server(b"abc", mask=True), 1002),
    "masked and empty": (from_server(b"", mask=True), 1002),
    "reserved bit 1": (from_server(b"abc", rsv=4), 1002),
    "reserved bit 3": (from_server(b"abc", rsv=1), 1002),
    "text": (from_server(b"abc", 1), 1003),
    "opcode 3": (b"\x83\x00", 1002),
    "opcode 11": (b"\x8b\x00", 1002),
    "continuation of nothing": (from_server(b"abc", 0), 1002),
    "a new message inside another": (from_server(b"a", 2, False) + from_server(b"b", 2), 1002),
    "fragmented ping": (b"\x09\x00", 1002),
    "long ping": (b"\x89\x7e\x00\x7e", 1002),
    "16-bit length for a small frame": (b"\x82\x7e\x00\x7d" + bytes(125), 1002),
    "64-bit length for a small frame": (b"\x82\x7f" + (65_535).to_bytes(8, "big"), 1002),
    "64-bit length with the highest bit": (b"\x82\x7f\x80" + bytes(7), 1002),
    "too large": (b"\x82\x7f" + (1 << 40).to_bytes(8, "big"), 1009),
    "close with one byte": (b"\x88\x01\x03", 1002),
    "close with code 1005": (b"\x88\x02\x03\xed", 1002),
    "close with code 999": (b"\x88\x02\x03\xe7", 1002),
    "close with code 5000": (b"\x88\x02\x13\x88", 1002),
    "close with a broken reason": (b"\x88\x03\x03\xe8\xff", 1007),
    "flood of pings": (b"\x89\x7d" + bytes(125), 1008),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("whole", [True, False])
def test_a_server_that_breaks_the_rules_is_caught(name: str, whole: bool) -> None:
    raw, close_code = BROKEN[name]
    if name == "flood of pings":
        raw *= 1000
    unwrapper = Unwrapper(1 << 30)
    chunks = [raw] if whole else [raw[index : index + 1] for index in range(len(raw))]
    with pytest.raises(WebSocketFault) as caught:
        [unwrapper.feed(chunk) for chunk in chunks]
    assert caught.value.close_code == close_code


def test_the_frame_limit_holds_for_every_length_form() -> None:
    for size in (101, 126, 200, 65_536):
        with pytest.raises(WebSocketFault, match="larger than 100"):
            Unwrapper(100).feed(from_server(bytes(size)))
    assert Unwrapper(100).feed(from_server(bytes(100))) == bytes(100)


@examples(400)
@given(st.lists(st.binary(max_size=60), max_size=8))
def test_random_bytes_are_data_or_a_fault_and_nothing_piles_up(chunks: list[bytes]) -> None:
    unwrapper, fed, got = Unwrapper(), 0, 0
    with suppress(WebSocketFault):
        for chunk in chunks:
            fed += len(chunk)
            got += len(unwrapper.feed(chunk))
            assert len(unwrapper._buffer) < 2 + 125
    assert got <= fed


@examples(200)
@given(st.binary(max_size=300), st.data())
def test_mutated_frames_are_data_or_a_fault(payload: bytes, data: st.DataObject) -> None:
    stream = bytearray(from_server(payload[:200]) + from_server(payload[:100], 9) + from_server(payload))
    for _ in range(data.draw(st.integers(1, 3))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    unwrapper = Unwrapper()
    with suppress(WebSocketFault):
        assert len(unwrapper.feed(bytes(stream))) <= len(stream)


# ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("sizes", [[5] * 20, [126] * 7, [70_000] * 6, [0] * 9, [3, 4, 5, 200, 1, 0, 7, 7], [12]])
@pytest.mark.parametrize("text", [True, False])
def test_a_server_reads_many_that_we_wrap_at_once(sizes: list[int], text: bool) -> None:
    bodies = [bytes(48 + (index + place) % 10 for index in range(size)) for place, size in enumerate(sizes)]
    peer = server()
    peer.receive_data(wrap_all(bodies, text=text))
    opcode = Opcode.TEXT if text else Opcode.BINARY
    assert [(frame.opcode, bytes(frame.data)) for frame in peer.events_received()] == [
        (opcode, body) for body in bodies
    ]


@examples(200)
@given(st.lists(st.tuples(st.binary(max_size=300), st.integers(1, 3), st.sampled_from([1, 2])), max_size=5), st.data())
def test_any_chunks_give_the_same_messages(messages: list[tuple[bytes, int, int]], data: st.DataObject) -> None:
    stream, expected, pings = b"", [], 0
    for payload, pieces, opcode in messages:
        step = len(payload) // pieces + 1
        parts = [payload[index : index + step] for index in range(0, len(payload), step)] or [b""]
        size = 0
        for index, part in enumerate(parts):
            frame = from_server(part, 0 if index else opcode, index == len(parts) - 1)
            stream += frame + from_server(b"?", 9)
            size += len(frame)
            pings += 1
        expected.append((payload, opcode == 1, size))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    reader, got, replies = Messages(), [], b""
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += reader.feed(stream[begin:end])
        replies += reader.replies()
    assert got == expected
    assert not reader.halfway
    peer = server()
    peer.receive_data(replies)
    assert len(peer.events_received()) == pings


def test_half_a_message_is_known_as_such() -> None:
    whole = from_server(b"abc", 1)
    for cut in range(1, len(whole)):
        reader = Messages()
        assert reader.feed(whole[:cut]) == []
        assert reader.halfway
    reader = Messages()
    assert reader.feed(from_server(b"abc", 1, False)) == []
    assert reader.halfway
    assert reader.feed(from_server(b"", 0, True)) == [(b"abc", True, len(whole) + 2)]
    assert not reader.halfway


@pytest.mark.parametrize("name", [name for name in BROKEN if name != "text"])
@pytest.mark.parametrize("whole", [True, False])
def test_messages_that_break_the_rules_are_caught(name: str, whole: bool) -> None:
    raw, close_code = BROKEN[name]
    if name == "flood of pings":
        raw *= 1000
    reader = Messages(1 << 30)
    chunks = [raw] if whole else [raw[index : index + 1] for index in range(len(raw))]
    before = from_server(b"before", 1)
    got = [message for chunk in [before, *chunks] for message in reader.feed(chunk)]
    assert got == [(b"before", True, len(before))]
    assert reader.fault is not None
    assert reader.fault.close_code == close_code
    assert reader.feed(before) == []
    together = Messages(1 << 30)
    assert together.feed(before + raw) == got
    assert together.fault is not None


def test_a_message_in_fragments_has_the_same_limit() -> None:
    reader = Messages(100)
    assert reader.feed(from_server(bytes(60), 2, False) + from_server(bytes(60), 0, True)) == []
    assert "larger than 100" in str(reader.fault)


def test_empty_fragments_cost_nothing() -> None:
    reader = Messages(100)
    reader.feed(from_server(b"a", 2, False) + from_server(b"", 0, False) * 10_000)
    assert len(reader._parts or b"") == 1
    assert reader.feed(from_server(b"b", 0, True))[0][0] == b"ab"


@examples(400)
@given(st.lists(st.binary(max_size=60), max_size=8))
def test_random_bytes_are_messages_or_a_fault(chunks: list[bytes]) -> None:
    reader, fed, got = Messages(), 0, 0
    for chunk in chunks:
        fed += len(chunk)
        got += sum(wire for _, _, wire in reader.feed(chunk))
    assert got <= fed
