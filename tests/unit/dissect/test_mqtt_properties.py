"""Reason codes and properties of MQTT packets: kept where they identify or explain, bounded, in step with messages."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlebrokers.dissect.mqtt_properties import (
    ALL_CHARACTERS,
    SUBSCRIPTION_IDS,
    TEXT_CHARACTERS,
    USER_PAIRS,
    properties_of,
)
from battlebrokers.dissect.talk import Detail
from battlebrokers.pipeline.conversation_tables import ConversationTables
from support.conversation import CLIENT, SERVER, heard
from support.examples import examples
from unit.dissect.test_mqtt import CONNACK, CONNACK_5, SUBACK, SUBSCRIBE, ack, connect, number, packet, publish, text


def block(*properties: bytes) -> bytes:
    """With their length before them."""
    content = b"".join(properties)
    assert len(content) < 128
    return bytes((len(content),)) + content


def user(name: str, value: str) -> bytes:
    return b"\x26" + text(name) + text(value)


REASON = b"\x1f" + text("quota exceeded")
EXPLAINED = {
    b"\x02\x00\x00\x00\x3c": {"message_expiry_s": 60},
    b"\x08" + text("answers/7"): {"response_topic": "answers/7"},
    b"\x09\x00\x03\x00\xff\x10": {"correlation_data": "00ff10"},
    b"\x11\xff\xff\xff\xff": {"session_expiry_s": 4294967295},
    b"\x12" + text("auto-1"): {"assigned_client_id": "auto-1"},
    b"\x1c" + text("other:1883"): {"server_reference": "other:1883"},
    REASON: {"reason_string": "quota exceeded"},
    b"\x23\x00\x07": {"topic_alias": 7},
    b"\x0b\x80\x01": {"subscription_ids": [128]},
    user("a", "1") + user("a", "2"): {"user": [["a", "1"], ["a", "2"]]},
    b"\x01\x01\x03" + text("text/plain") + b"\x21\x00\x09": {},
}


@pytest.mark.parametrize(("content", "kept"), EXPLAINED.items(), ids=lambda one: str(one)[:30])
def test_what_identifies_or_explains_is_kept(content: bytes, kept: dict[str, object]) -> None:
    found = properties_of(content)
    assert (json.loads(found.text) if found.text else {}) == kept
    assert found.alias == kept.get("topic_alias", 0)


def test_texts_and_lists_are_bounded_and_say_so() -> None:
    long = properties_of(b"\x1f" + text("x" * 5000))
    assert json.loads(long.text) == {"cut": True, "reason_string": "x" * TEXT_CHARACTERS}
    many = json.loads(properties_of(b"".join(user(f"n{at}", "v") for at in range(1000))).text)
    assert (len(many["user"]), many["cut"]) == (USER_PAIRS, True)
    large = json.loads(properties_of(b"".join(user("n" * 250, "v" * 250) for _ in range(16))).text)
    assert sum(len(name) + len(value) for name, value in large["user"]) <= ALL_CHARACTERS
    assert large["cut"]
    assert len(json.loads(properties_of(b"\x09\xff\xff" + bytes(65535)).text)["correlation_data"]) == TEXT_CHARACTERS
    numbers = json.loads(properties_of(b"\x0b\x01" * 100).text)
    assert (len(numbers["subscription_ids"]), numbers["cut"]) == (SUBSCRIPTION_IDS, True)


@examples(300)
@given(st.lists(st.sampled_from(sorted(EXPLAINED)) | st.binary(max_size=6), max_size=6).map(b"".join))
def test_any_bytes_give_valid_json_of_bounded_size(content: bytes) -> None:
    found = properties_of(content)
    assert 0 <= found.alias <= 0xFFFF
    assert len(found.text) < 20_000
    assert isinstance(json.loads(found.text or "{}"), dict)


def test_what_stands_before_a_fault_is_kept() -> None:
    for fault in (b"\x7f", b"\x02\x00", b"\x1f\x00\x09no", b"\x26\x00\x01a\x00", b"\x0b\xff\xff\xff\xff", b"\x08\x00"):
        assert json.loads(properties_of(b"\x23\x00\x07" + fault).text)["topic_alias"] == 7


def details(*turns: tuple[int, bytes], **how: object) -> dict[str, Detail | None]:
    said = heard(list(turns), 1883, **how)
    assert said.stream.malformed == 0
    return {f"{told.found.kind} {told.found.correlation}".strip(): told.detail for told in said.messages}


@pytest.mark.parametrize("window", [1, 3, 1 << 30])
@pytest.mark.parametrize("cut", [1400, 5])
def test_every_packet_of_version_5_keeps_its_code_and_its_properties(window: int, cut: int) -> None:
    why = block(REASON, user("k", "v"))
    explained = '{"reason_string":"quota exceeded","user":[["k","v"]]}'
    found = details(
        (CLIENT, connect(version=5, properties=block(b"\x11\0\0\0\x09"))),
        (SERVER, packet(0x20, b"\0\x87" + why)),
        (CLIENT, packet(0x82, number(1) + block(b"\x0b\x05") + text("a") + b"\0" + text("b") + b"\0")),
        (SERVER, packet(0x90, number(1) + why + b"\x01\x87")),
        (CLIENT, publish("a", b"x", 1, 2, 5, block(b"\x08" + text("re"), b"\x09\0\x01\xab"))),
        (SERVER, ack(4, 2, b"\x97" + why)),
        (CLIENT, publish("a", b"x", 2, 3, 5)),
        (SERVER, ack(5, 3, b"\x10")),
        (CLIENT, ack(6, 3, b"\x92\0")),
        (SERVER, ack(7, 3)),
        (CLIENT, packet(0xA2, number(4) + b"\0" + text("a"))),
        (SERVER, packet(0xB0, number(4) + b"\0" + b"\x11")),
        (SERVER, packet(0xF0, b"\x18" + block(b"\x15" + text("SCRAM")))),
        (SERVER, packet(0xE0, b"\x8b" + why)),
        window=window, cut=cut,
    )  # fmt: skip
    assert found == {
        "CONNECT": Detail(None, '{"session_expiry_s":9}'),
        "CONNACK": Detail(0x87, explained),
        "SUBSCRIBE 1": Detail(None, '{"subscription_ids":[5]}'),
        "SUBACK 1": Detail(0x87, explained[:-1] + ',"reasons":[1,135]}'),
        "PUBLISH 2": Detail(None, '{"response_topic":"re","correlation_data":"ab"}'),
        "PUBACK 2": Detail(0x97, explained),
        "PUBLISH 3": None,
        "PUBREC 3": Detail(0x10, ""),
        "PUBREL 3": Detail(0x92, ""),
        "PUBCOMP 3": None,
        "UNSUBSCRIBE 4": None,
        "UNSUBACK 4": Detail(0x11, ""),
        "AUTH": Detail(0x18, ""),
        "DISCONNECT": Detail(0x8B, explained),
    }


def test_return_codes_of_version_3_are_kept_too() -> None:
    found = details((CLIENT, connect()), (SERVER, b"\x20\x02\0\x05"), (CLIENT, SUBSCRIBE), (SERVER, SUBACK))
    assert found["CONNACK"] == Detail(5, "")
    assert found["SUBACK 1"] == Detail(1, '{"reasons":[1,0]}')
    assert found["SUBSCRIBE 1"] is None


def test_a_publish_too_large_to_wait_for_keeps_its_properties() -> None:
    large = publish("a", bytes(300_000), 1, 9, 5, block(b"\x02\0\0\0\x3c"))
    found = details((CLIENT, connect(version=5)), (SERVER, CONNACK_5), (CLIENT, large))
    assert found["PUBLISH 9"] == Detail(None, '{"message_expiry_s":60}')


@pytest.mark.parametrize("window", [2, 50, 1 << 30])
def test_the_table_has_them_beside_the_message_they_belong_to(window: int) -> None:
    tables, turns = ConversationTables(), [(CLIENT, connect(version=5)), (SERVER, CONNACK_5)]
    for at in range(1, 100):
        turns += [(CLIENT, publish("a", b"x", 1, at, 5)), (SERVER, ack(4, at, bytes((at,)) if at % 7 == 0 else b""))]
    from battlebrokers.dissect.stream import Stream
    from support.conversation import segments
    from support.told import reader

    packets, content = segments(turns)
    stream = Stream("tcp", 40_000, 1883, reader(content), None)
    for start in range(0, len(packets), window):
        stream.push(packets.part(start, start + window), last=start + window >= len(packets))
        messages, exchanges = stream.take()
        tables.take((1, 0), messages, exchanges)
    rows = [row for table, batch in tables.rest() if table.name == "messages" for row in batch.to_pylist()]
    assert len(rows) == 2 + 2 * 99
    for row in rows:
        if row["kind"] == "PUBACK":
            at = int(row["correlation"])
            assert (row["reason"], row["properties"]) == (at if at % 7 == 0 else None, "")
        elif row["kind"] == "CONNACK":
            assert row["reason"] == 0
        else:
            assert row["reason"] is None


def test_connack_of_version_3_and_5_are_told_apart() -> None:
    assert details((CLIENT, connect()), (SERVER, CONNACK))["CONNACK"] == Detail(0, "")
