"""WebSocket on the wire: frames, deflate, JSON, protocols inside, damage."""

from __future__ import annotations

import json
import zlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.dissect.hints import Hints, at_path
from battlebrokers.dissect.talk import WHOLE_MESSAGE_BYTES
from battlebrokers.tables.message_header import HEADER, VERSION
from support.conversation import CLIENT, SERVER, Lost, heard, summary
from support.examples import examples

MASK = b"\x11\x22\x33\x44"
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


def frame(sender: int, opcode: int, content: bytes, *, final=True, packed=False) -> bytes:
    size = len(content)
    first = bytes((opcode | (0x80 if final else 0) | (0x40 if packed else 0),))
    masked = 0x80 if sender == CLIENT else 0
    if size < 126:
        first += bytes((masked | size,))
    elif size < 65536:
        first += bytes((masked | 126,)) + size.to_bytes(2, "big")
    else:
        first += bytes((masked | 127,)) + size.to_bytes(8, "big")
    if sender == CLIENT:
        content = MASK + bytes(byte ^ MASK[n % 4] for n, byte in enumerate(content))
    return first + content


def said_by(sender: int, document: object) -> tuple[int, bytes]:
    return sender, frame(sender, TEXT, json.dumps(document).encode())


def upgraded(extensions="", subprotocol=""):
    ask = b"GET /ws HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\n\r\n"
    answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\n"
    if extensions:
        answer += f"Sec-WebSocket-Extensions: {extensions}\r\n".encode()
    if subprotocol:
        answer += f"Sec-WebSocket-Protocol: {subprotocol}\r\n".encode()
    return [(CLIENT, ask), (SERVER, answer + b"\r\n")]


def deflated(messages: list[bytes], *, takeover=True) -> list[bytes]:
    packed = []
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    for message in messages:
        if not takeover:
            packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        packed.append((packer.compress(message) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4])
    return packed


def found(said, protocol="websocket"):
    return [told.found for told in said.messages if told.found.protocol == protocol]


@pytest.mark.parametrize("window", [1, 2, 1 << 30])
def test_an_upgrade_is_followed_and_the_client_waits_for_it(window):
    turns = [*upgraded(), (CLIENT, frame(CLIENT, TEXT, b"hi")), (SERVER, frame(SERVER, BINARY, b"you"))]
    said = heard(turns, 8080, window=window, protocol="websocket")
    assert said.pairs == [("GET", "101")]
    assert Counter(row.kind for row in found(said)) == {"TEXT": 1, "BINARY": 1}
    assert said.stream.recognised_by == "upgrade"
    assert said.stream.malformed == said.stream.undecoded_bytes == 0


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536])
def test_all_lengths_and_masks_give_the_payload_back(size):
    payload = (HEADER.pack(VERSION << 24 | 3, 9, 1) + b"z" * size)[:size]
    turns = [*upgraded(), (CLIENT, frame(CLIENT, BINARY, payload)), (SERVER, frame(SERVER, BINARY, payload))]
    client, server = found(heard(turns, 8080))
    assert client.payload_bytes == server.payload_bytes == size
    assert client.fingerprint == server.fingerprint
    assert client.seq == server.seq == (9 if size >= 16 else None)


def test_fragments_make_one_message_with_pings_in_between():
    parts = (
        frame(CLIENT, TEXT, b"one ", final=False) + frame(CLIENT, PING, b"p1") + frame(CLIENT, 0, b"two ", final=False)
        + frame(CLIENT, 0, b"three")
    )  # fmt: skip
    turns = [*upgraded(), (CLIENT, parts), (SERVER, frame(SERVER, PONG, b"p1") + frame(SERVER, TEXT, b"one two three"))]
    said = heard(turns, 8080)
    rows = found(said)
    assert Counter(row.kind for row in rows) == {"TEXT": 2, "PING": 1, "PONG": 1}
    assert len({row.fingerprint for row in rows if row.kind == "TEXT"}) == 1
    assert ("PING", "PONG") in said.pairs


@pytest.mark.parametrize("window", [1, 1 << 30])
def test_pings_of_the_server_are_answered_too(window):
    turns = upgraded()
    for n in range(4):
        turns += [(SERVER, frame(SERVER, PING, b"%d" % n)), (CLIENT, frame(CLIENT, PONG, b"%d" % n))]
    turns += [(CLIENT, frame(CLIENT, CLOSE, b"\x03\xe8bye")), (SERVER, frame(SERVER, CLOSE, b"\x03\xf3"))]
    said = heard(turns, 8080, window=window)
    assert said.pairs.count(("PING", "PONG")) == 4
    closes = {row.name: row.failed for row in found(said) if row.kind == "CLOSE"}
    assert closes == {"1000 bye": False, "1011": True}


@pytest.mark.parametrize("takeover", [True, False])
def test_deflated_messages_are_unpacked(takeover):
    texts = [b"the same words again and again %d" % n for n in range(5)]
    extension = "permessage-deflate" + ("" if takeover else "; client_no_context_takeover; server_no_context_takeover")
    turns = upgraded(extension)
    for plain, packed in zip(texts, deflated(texts, takeover=takeover), strict=True):
        turns += [(CLIENT, frame(CLIENT, TEXT, packed, packed=True)), (SERVER, frame(SERVER, TEXT, plain))]
    rows = found(heard(turns, 8080))
    packed, plain = ([row for row in rows if row.sender == side] for side in (CLIENT, SERVER))
    assert [row.fingerprint for row in packed] == [row.fingerprint for row in plain]
    assert [row.payload_bytes for row in packed] == [len(text) for text in texts]


def test_after_a_gap_only_what_needs_the_missing_bytes_stays_packed():
    texts = [b"a rather long text which comes again and again and %d" % n for n in range(4)]
    packed = deflated(texts)
    frames = [frame(SERVER, TEXT, part, packed=True) for part in packed]
    anew = frame(SERVER, TEXT, deflated([texts[0]])[0], packed=True)
    turns = [*upgraded("permessage-deflate"), (SERVER, Lost(len(frames[0])))]
    turns += [(SERVER, frames[1] + frames[2]), (SERVER, anew)]
    said = heard(turns, 8080)
    rows = found(said)
    assert [row.fingerprint is not None for row in rows] == [False, False, True]
    assert rows[2].payload_bytes == len(texts[0])
    assert said.stream.undecoded_bytes == len(packed[1]) + len(packed[2])


def test_a_bomb_does_not_go_off():
    bomb = deflated([b"\x00" * 100_000_000])[0]
    assert len(bomb) < WHOLE_MESSAGE_BYTES
    turns = [*upgraded("permessage-deflate"), (CLIENT, frame(CLIENT, BINARY, bomb, packed=True))]
    said = heard([*turns, (CLIENT, frame(CLIENT, TEXT, b"alive"))], 8080)
    assert [row.payload_bytes for row in found(said)] == [len(bomb), 5]
    assert said.stream.undecoded_bytes == len(bomb)


def test_huge_messages_are_passed_over():
    size = 2 * WHOLE_MESSAGE_BYTES
    payload = HEADER.pack(VERSION << 24 | 5, 6, 7).ljust(size, b".")
    cut_up = frame(CLIENT, BINARY, payload[:1000], final=False) + frame(CLIENT, 0, payload[1000:], final=False)
    cut_up += frame(CLIENT, 0, b"end")
    turns = [*upgraded(), (CLIENT, frame(CLIENT, BINARY, payload) + cut_up + frame(CLIENT, TEXT, b"after"))]
    rows = found(heard(turns, 8080))
    assert [(row.payload_bytes, row.device) for row in rows] == [(size, 5), (size + 3, 5), (5, None)]
    assert rows[1].end == rows[2].start


@pytest.mark.parametrize("window", [1, 1 << 30])
@pytest.mark.parametrize("subprotocol", ["mqtt", "mqttv3.1", ""])
def test_mqtt_inside_is_told_as_mqtt(subprotocol, window):
    connect = b"\x10\x0f\x00\x04MQTT\x04\x02\x00\x3c\x00\x03abc"
    publish = b"\x32\x07\x00\x01t\x00\x07hi"
    turns = [
        *upgraded(subprotocol=subprotocol), (CLIENT, frame(CLIENT, BINARY, connect)),
        (SERVER, frame(SERVER, BINARY, b"\x20\x02\x00\x00")),
        (CLIENT, frame(CLIENT, BINARY, publish + publish[:4]) + frame(CLIENT, BINARY, publish[4:])),
        (SERVER, frame(SERVER, BINARY, b"\x40\x02\x00\x07")), (SERVER, frame(SERVER, BINARY, b"\x40\x02\x00\x07")),
    ]  # fmt: skip
    said = heard(turns, 9001, window=window)
    rows = found(said, "mqtt")
    assert Counter(row.kind for row in rows) == {"CONNECT": 1, "CONNACK": 1, "PUBLISH": 2, "PUBACK": 2}
    assert said.pairs == [("GET", "101"), ("CONNECT", "CONNACK"), ("PUBLISH", "PUBACK"), ("PUBLISH", "PUBACK")]
    assert found(said) == []
    assert said.stream.malformed == 0


def test_json_pairs_by_the_usual_ids_and_pushes_stay_alone():
    turns = [
        *upgraded(), said_by(CLIENT, {"action": "login", "requestId": 7}), said_by(SERVER, {"event": "news"}),
        said_by(SERVER, {"action": "login", "requestId": 7, "success": False}),
        said_by(CLIENT, {"jsonrpc": "2.0", "method": "add", "id": "x", "params": []}),
        said_by(SERVER, {"jsonrpc": "2.0", "id": "x", "error": {"code": 1}}),
        said_by(SERVER, {"jsonrpc": "2.0", "method": "ask", "id": 1}), said_by(CLIENT, {"id": 1, "result": 5}),
        said_by(CLIENT, {"type": "publish", "id": 3, "topic": "a/b"}), said_by(SERVER, {"type": "ok", "ack": 3}),
        said_by(SERVER, {"id": 99, "type": "unasked"}),
    ]  # fmt: skip
    for window in (1, 1 << 30):
        said = heard(turns, 8080, window=window)
        pairs = Counter(said.pairs[1:])
        assert pairs == Counter({("login", "login"): 1, ("add", "TEXT"): 1, ("ask", "TEXT"): 1, ("publish", "ok"): 1})
        rows = found(said)
        assert sum(row.failed for row in rows) == 2
        assert {row.name for row in rows} == {"", "a/b"}


def test_the_contenders_hints_pair_types():
    hints = Hints(
        type_path="header.kind", id_path="header.no",
        answers={"SAVE": "SAVED", "LIST": "LIST", "ASK": "TOLD"}, unanswered=frozenset({"NOTE"}),
    )  # fmt: skip

    def message(sender, kind, number=None):
        return said_by(sender, {"header": {"kind": kind} | ({"no": number} if number else {}), "id": "same"})

    turns = [
        *upgraded(), message(CLIENT, "SAVE", 1), message(CLIENT, "SAVE", 2), message(SERVER, "SAVED", 2),
        message(SERVER, "FAILED", 1), message(CLIENT, "LIST", 3), message(SERVER, "LIST", 3),
        message(CLIENT, "NOTE", 4), message(CLIENT, "ASK"), message(SERVER, "TOLD"), message(SERVER, "LIST", 77),
    ]  # fmt: skip
    said = heard(turns, 8080, hints=hints)
    assert said.pairs[1:] == [("SAVE", "FAILED"), ("SAVE", "SAVED"), ("LIST", "LIST"), ("ASK", "TOLD")]
    assert {row.rule for row in said.exchanges} == {"order", "hint"}


def test_socket_io_acknowledges_events_by_number():
    turns = [
        *upgraded(), (CLIENT, frame(CLIENT, TEXT, b'4212["join",{"room":1}]')),
        (SERVER, frame(SERVER, TEXT, b"4312[]")),
        (SERVER, frame(SERVER, TEXT, b'42["news",1]')),
    ]  # fmt: skip
    assert heard(turns, 8080).pairs[1:] == [("join", "ack")]


def test_paths_lead_into_objects_and_lists():
    assert at_path({"a": [{"b": 5}]}, "a.0.b") == 5
    assert at_path([1, 2], "7") is None
    assert at_path("text", "a") is None


def test_json_meant_to_hurt_is_just_text():
    turns = [
        *upgraded(),
        (CLIENT, frame(CLIENT, TEXT, b"[" * 60_000)),
        (CLIENT, frame(CLIENT, TEXT, b'{"id":' + b"9" * 9000)),
    ]
    assert [row.kind for row in found(heard(turns, 8080))] == ["TEXT", "TEXT"]


def test_nonsense_is_counted_and_left_behind():
    good = frame(CLIENT, TEXT, b"good and long enough")
    said = heard([*upgraded(), (CLIENT, good + b"\x77\x00\x01\x02" + good * 3)], 8080)
    assert [row.kind for row in found(said)] == ["TEXT"] * 4
    assert said.stream.malformed == 1


@st.composite
def conversations(draw):
    turns = upgraded()
    for _ in range(draw(st.integers(1, 8))):
        sender = draw(st.sampled_from((CLIENT, SERVER)))
        if draw(st.booleans()):
            ping = draw(st.binary(max_size=20))
            turns += [(sender, frame(sender, PING, ping)), (1 - sender, frame(1 - sender, PONG, ping))]
        parts = draw(st.lists(st.binary(max_size=200), min_size=1, max_size=4))
        for n, part in enumerate(parts):
            turns.append((sender, frame(sender, TEXT if n == 0 else 0, b"~" + part, final=n == len(parts) - 1)))
    return turns


@examples(60)
@given(conversations(), st.lists(st.integers(1, 60), min_size=1, max_size=5), st.sampled_from((1, 5, 1 << 30)))
def test_any_segmentation_and_window_tell_the_same(turns, cuts, window):
    whole = heard(turns, 8080, protocol="websocket")
    assert whole.stream.malformed == whole.stream.undecoded_bytes == 0
    assert all(row.response is not None for row in whole.exchanges)
    assert summary(heard(turns, 8080, cut=cuts, window=window)) == summary(whole)
