from __future__ import annotations

import base64
import json
import random
import time
import uuid

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from battlebrokers.devices.header import device_word
from battlebrokers.dissect.payload_ids import LOOKED_AT_BYTES, header_id, header_of
from battlebrokers.dissect.payload_ids import named as named_when
from battlebrokers.tables.message_header import HEADER, MAX_DEVICE, SEQ_MASK

NAME = "1f3c9a52-7b1e-4c3d-9e2a-0123456789ab"
RUN_TIME_NS = 1_790_000_000_000_000_000
"""Counted since 1970, as every time of a run is."""
DAY_NS = 24 * 3600 * 10**9


def named(payload: bytes) -> tuple[int | None, bool]:
    return named_when(payload, RUN_TIME_NS)


def payload_id(payload: bytes) -> int | None:
    return named(payload)[0]


def ours(device: int = 7, seq: int = 99, planned_ns: int = RUN_TIME_NS, rest: bytes = b"") -> bytes:
    return HEADER.pack(device_word(device), seq, planned_ns) + rest


def packed(payload: bytes, shortest: int) -> bytes:
    """As bytes with their length before them."""
    width = 0 if len(payload) < 256 else 1
    return bytes([shortest + width]) + len(payload).to_bytes(1 << width, "big") + payload


def wrappings(payload: bytes) -> dict[str, bytes]:
    """What services do to a payload they pass on."""
    standard, in_urls = base64.b64encode(payload).decode(), base64.urlsafe_b64encode(payload).decode().rstrip("=")
    return {
        "base64": standard.encode(),
        "base64 in JSON": json.dumps({"id": "wrapper-1", "at": 1.5, "data": standard}).encode(),
        "base64 for addresses": json.dumps({"body": in_urls, "topic": "a/b"}).encode(),
        "hexadecimal": payload.hex().encode(),
        "hexadecimal in SQL": f"INSERT INTO readings VALUES (E'\\\\x{payload.hex()}', now())".encode(),
        "upper case": json.dumps({"raw": payload.hex().upper()}).encode(),
        "MessagePack": b"\x82\xa2id\xb8u6zdO/3yS2GI0RzsBSqdoQ/8\xa7payload" + packed(payload, 0xC4) + b"\xa3qos\x01",
        "CBOR": b"\xa2\x61t\x63a/b\x61p" + packed(payload, 0x58),
        "binary around text": b"\x0a\x92\x01\xff" + standard.encode() + b"\x00\x12\x00",
    }


@given(
    st.integers(0, MAX_DEVICE), st.integers(0, SEQ_MASK), st.integers(RUN_TIME_NS - DAY_NS, RUN_TIME_NS + DAY_NS),
    st.binary(max_size=300),
)  # fmt: skip
def test_our_header_is_found_however_it_was_wrapped(device, seq, planned_ns, rest):
    payload = ours(device, seq, planned_ns, rest)
    expected = header_id(device, seq)
    assert payload_id(payload) == expected
    assert {name: payload_id(wrapped) for name, wrapped in wrappings(payload).items()} == dict.fromkeys(
        wrappings(payload), expected
    )


def test_a_header_that_was_wrapped_tells_device_and_number():
    payload = ours(MAX_DEVICE, SEQ_MASK)
    for wrapped in (payload, *wrappings(payload).values()):
        number, is_ours = named(wrapped)
        assert is_ours
        assert header_of(number) == (MAX_DEVICE, SEQ_MASK)
    assert header_of(header_id(0, 0)) == (0, 0)
    # The same first eight bits by chance make no header of anybody's identifier.
    others = [named(b'{"id":"message-%d"}' % n) for n in range(2000)]
    assert any(number >> 56 == -0x4F for number, _ in others)
    assert not any(is_ours for _, is_ours in others)


def test_a_header_is_its_first_eight_bytes():
    assert header_id(7, 99) == int.from_bytes(ours()[:8], "big", signed=True)
    assert header_id(MAX_DEVICE, SEQ_MASK) == int.from_bytes(b"\xb1" + b"\xff" * 7, "big", signed=True)


def test_what_only_begins_like_a_header_is_none():
    assert payload_id(b"\xb1" + b"\xff" * 30) is None
    assert payload_id(b"\xb1short") is None
    for planned_ns in (0, RUN_TIME_NS - 30 * DAY_NS, RUN_TIME_NS + 30 * DAY_NS):  # what chance would make of it
        assert [payload_id(one) for one in wrappings(ours(planned_ns=planned_ns)).values()].count(header_id(7, 99)) == 0
    assert payload_id(base64.b64encode(b"\xb1" + b"\xff" * 30)) is None
    assert payload_id((b"\xb1" + b"\xff" * 15).hex().encode()) is None
    assert payload_id(b"\x00" + ours()) is None  # no length before it
    assert payload_id(b"\xc4\xff" + ours()) is None  # longer than there is room
    inside = base64.b64encode(b"ab" + ours())  # not at its beginning: somebody else's bytes
    assert payload_id(inside) is None


SAME_UUID = [
    NAME, NAME.upper(), NAME.replace("-", ""), NAME.replace("-", "").upper(), f"urn:uuid:{NAME}", f"{{{NAME}}}",
    f"INSERT INTO t (a) VALUES ('{NAME}')", json.dumps({"x": {"uuid": NAME}}), json.dumps({"anything": NAME}),
    json.dumps({"id": "urn:uuid:" + NAME}), json.dumps({"messageId": NAME.replace("-", "")}), f"/devices/{NAME}/state",
    json.dumps({"body": json.dumps({"guid": NAME.upper()})}), f'{{"correlation_id" : "{{{NAME}}}"}}',
]  # fmt: skip


@pytest.mark.parametrize("text", SAME_UUID)
def test_a_uuid_is_the_same_however_it_is_written(text):
    assert payload_id(text.encode()) == payload_id(NAME.encode()) is not None


def test_a_uuid_is_found_in_binary():
    assert payload_id(b"\x0a\x24" + NAME.encode() + b"\xff\x00\x12\x03") == payload_id(NAME.encode())


@pytest.mark.parametrize(
    "text",
    [
        "00000000-0000-0000-0000-000000000000", json.dumps({"id": "ffffffff-ffff-ffff-ffff-ffffffffffff"}), NAME + "0",
        "x" + NAME, NAME[:-1], "d41d8cd98f00b204" + "7" * 16, "0123456789abcdef" * 4,
        "2024-01-01-2024-01-01-abcdefabcdef",
    ],
)  # fmt: skip
def test_what_looks_a_little_like_a_uuid_is_none(text):
    assert payload_id(text.encode()) is None


@pytest.mark.parametrize(
    "key",
    ["id", "_id", "uuid", "guid", "messageId", "message_id", "MessageID", "msgId", "correlationId", "correlation-id",
     "traceId", "trace_id", "requestId", "ID", "eventId", "transactionId"],
)  # fmt: skip
def test_values_of_telling_keys_are_identifiers(key):
    expected = payload_id(b'{"id":"order-4711-x"}')
    assert expected is not None
    for text in (
        json.dumps({key: "order-4711-x", "v": 1}),
        json.dumps({"a": [1, 2], key: "order-4711-x"}, indent=4),
        json.dumps({"wrapped": json.dumps({key: "order-4711-x"})}),
        json.dumps({"wrapped": json.dumps({"again": json.dumps({key: "order-4711-x"})})}),
        f'{{"{key}" : "order-4711-x"}}',
        json.dumps({"message": base64.b64encode(json.dumps({key: "order-4711-x"}).encode()).decode()}),
        base64.urlsafe_b64encode(json.dumps([{key: "order-4711-x"}]).encode()).decode(),
    ):
        assert payload_id(text.encode()) == expected, text


def test_a_number_is_the_same_with_and_without_quotes():
    assert payload_id(b'{"id": 1234567}') == payload_id(b'{"_id":"1234567", "x": 1}') is not None
    assert payload_id(b'{"_id":{"$oid":"65f1c0ffee65f1c0ffee0001"}}') is not None


@pytest.mark.parametrize(
    "text",
    ['{"id": 17}', '{"id": "17"}', '{"id":"abcde"}', '{"id": 12345.678}', '{"id": 1234567e3}', '{"id": null}',
     '{"id": true, "v": 1234567}', '{"valid": "abcdefgh"}', '{"idea":"abcdefgh"}', '{"deviceId":"abcdefgh"}',
     '{"id": ["abcdefgh"]}', '{"id":"abc\\u0000defgh"}', '"id" "abcdefgh"', '{"id":"abcdefgh', "id=abcdefgh", "", " "],
)  # fmt: skip
def test_counters_and_other_keys_are_none(text):
    assert payload_id(text.encode()) is None


def test_the_surest_identifier_counts():
    only = payload_id(b'{"id":"message-1"}')
    assert (
        payload_id(b'{"id":"sensor-000001","requestId":"request-1","uuid":"unique-1","messageId":"message-1"}') == only
    )
    assert payload_id(b'{"sensor":"%b","id":"message-1"}' % NAME.encode()) == only
    assert payload_id(b'{"id":"message-1","x":{"id":"another-1"}}') == only
    inner = base64.b64encode(b'{"id":"message-1"}')
    assert payload_id(b'{"id":"envelope-1","data":"%b"}' % inner) == only
    assert payload_id(b'{"messageId":"message-1","data":"%b"}' % base64.b64encode(b'{"id":"another-1"}')) == only
    header = base64.b64encode(ours())
    assert payload_id(b'{"messageId":"message-1","data":"%b"}' % header) == header_id(7, 99)


def test_a_web_token_is_no_message():
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")
        for part in ({"id": "key-00001"}, {"id": "user-0001"})
    ]
    assert payload_id(b'{"token":"%b.%b.c2lnbmF0dXJlLXNpZ25hdHVyZQ"}' % tuple(parts)) is None


def test_only_the_front_is_looked_at():
    late = b'{"x":"' + b" " * LOOKED_AT_BYTES + b'","id":"abcdefgh"}'
    assert payload_id(late) is None
    text = b'{"id":123456789,"rest":0}'
    for cut in range(LOOKED_AT_BYTES - len(text), LOOKED_AT_BYTES):
        assert payload_id(b" " * cut + text) in (None, payload_id(text))


def test_numbers_are_signed_and_differ():
    numbers = {payload_id(b'{"id":"message-%d"}' % n) for n in range(20_000)}
    assert len(numbers) == 20_000
    assert all(-(1 << 63) <= number < 1 << 63 for number in numbers)
    assert min(numbers) < 0 < max(numbers)


@given(st.binary(max_size=3000) | st.text(max_size=500).map(str.encode))
@example(b"\xb1")
@example(b'"id":"' + b"\\" * 2000)
def test_whatever_comes_is_survived(payload):
    found = payload_id(payload)
    assert found is None or -(1 << 63) <= found < 1 << 63
    assert payload_id(payload) == found


PIECES = [b'"', b"id", b'"id":', b":", b"\\", b"sQ", b"b1", b"eyJ", b"eyAi", b"-", b"a" * 8, b"0123abcd", b"=", b" ",
          b".", b"{", b"}", b",", b"\x00", b"\xff", NAME.encode(), b"123456"]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=120).map(b"".join))
def test_pieces_of_identifiers_in_any_order_are_survived(payload):
    assert payload_id(payload) is None or isinstance(payload_id(payload), int)


HOSTILE = [
    b"\xb1", b"\xc4\x10\xb1",
    b"a", b"s", b"sQ", b"b1", b"eyJ", b"eyJ.", b'"', b'"id":"', b'"id":"aaaaaa', b'"id" : ', b"\\",
    b'"id\\\\\\":\\\\\\"a',
    b"abcdef12-", b"abcdef12-abcd-", b"0", b"-", b"=", b'"id":"aaaaaa",', b'"messageid', b" ", b"W3si", b"sQAAAAAA ",
    b"eyJhYWFhYWFhYWFhYWFhYWFh.", NAME.encode()[:-1] + b" ",
]  # fmt: skip


def seconds_each(payloads: list[bytes], rounds: int) -> float:
    """CPU time of one call, undisturbed: the best of several rounds."""
    best = float("inf")
    for _ in range(rounds):
        begin = time.process_time()
        for payload in payloads:
            payload_id(payload)
        best = min(best, (time.process_time() - begin) / len(payloads))
    return best


@pytest.mark.parametrize("pattern", HOSTILE)
def test_hostile_repetitions_cost_less_than_a_few_milliseconds(pattern):
    short, long = (pattern * (size // len(pattern)) for size in (LOOKED_AT_BYTES, 64 * LOOKED_AT_BYTES))
    assert seconds_each([short] * 5, 5) < 5e-3
    assert seconds_each([long] * 5, 5) < 5e-3


def test_a_binary_payload_without_an_identifier_costs_next_to_nothing():
    chance = random.Random(1)
    payloads = [chance.randbytes(200) for _ in range(2000)]
    assert all(payload_id(payload) is None for payload in payloads)
    # 1.5 µs where nothing else runs; twice that where the processor is shared.
    assert seconds_each(payloads, 30) < 3e-6


def test_random_words_are_hardly_ever_taken_for_identifiers():
    chance = random.Random(2)
    tokens = [base64.b64encode(chance.randbytes(48)) for _ in range(20_000)]
    assert sum(payload_id(token) is not None for token in tokens) <= 2
    digests = [chance.randbytes(20).hex().encode() for _ in range(20_000)]
    assert sum(payload_id(digest) is not None for digest in digests) == 0
    assert uuid.UUID(NAME).version == 4
