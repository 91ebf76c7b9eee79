"""Valid packets written by hand from the specifications: bytes ↔ packet, in both directions.

Notation: hex bytes and 'text' in quotes. `=` is what encode writes too, `~` is valid but not the shortest form.
"""

from __future__ import annotations

import re

import pytest

from battlebrokers.protocols.mqtt.decode import decode
from battlebrokers.protocols.mqtt.encode import encode
from battlebrokers.protocols.mqtt.framing import split_frames
from battlebrokers.protocols.mqtt.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    FilterRequest,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    WillMessage,
)
from battlebrokers.protocols.mqtt.properties import Properties

F = FilterRequest
P = Properties


def raw(notation: str) -> bytes:
    """Bytes from hex and 'quoted text'."""
    pieces = re.findall(r"'([^']*)'|([0-9a-f]{2})", notation)
    return b"".join(text.encode() if not digits else bytes.fromhex(digits) for text, digits in pieces)


CONNECT_311: list[tuple[str, Packet]] = [
    ("= 10 0d 00 04 'MQTT' 04 02 00 3c 00 01 'a'", Connect("a")),
    ("= 10 0c 00 04 'MQTT' 04 02 00 00 00 00", Connect("", keep_alive_s=0)),
    ("= 10 0d 00 04 'MQTT' 04 00 ff ff 00 01 'a'", Connect("a", clean=False, keep_alive_s=65535)),
    ("= 10 10 00 04 'MQTT' 04 82 00 3c 00 01 'a' 00 01 'u'", Connect("a", username="u")),
    ("= 10 13 00 04 'MQTT' 04 c2 00 3c 00 01 'a' 00 01 'u' 00 01 'p'", Connect("a", username="u", password=b"p")),
    ("= 10 11 00 04 'MQTT' 04 c2 00 3c 00 01 'a' 00 00 00 00", Connect("a", username="", password=b"")),
    ("= 10 13 00 04 'MQTT' 04 06 00 3c 00 01 'a' 00 01 't' 00 01 'm'", Connect("a", will=WillMessage("t", b"m"))),
    ("= 10 12 00 04 'MQTT' 04 0e 00 3c 00 01 'a' 00 01 't' 00 00", Connect("a", will=WillMessage("t", b"", 1))),
    (
        "= 10 14 00 04 'MQTT' 04 36 00 3c 00 01 'a' 00 01 't' 00 02 00 ff",
        Connect("a", will=WillMessage("t", b"\0\xff", 2, True)),
    ),
    (
        "= 10 19 00 04 'MQTT' 04 ee 00 3c 00 01 'a' 00 01 't' 00 01 'm' 00 01 'u' 00 01 'p'",
        Connect("a", username="u", password=b"p", will=WillMessage("t", b"m", 1, True)),
    ),
    ("= 10 10 00 04 'MQTT' 04 02 00 3c 00 04 'zoë'", Connect("zoë")),
    ("= 10 0f 00 04 'MQTT' 04 02 00 3c 00 03 ef bb bf", Connect("\ufeff")),
]
CONNECT_5: list[tuple[str, Packet]] = [
    ("= 10 0e 00 04 'MQTT' 05 02 00 3c 00 00 01 'a'", Connect("a", 5)),
    ("= 10 0d 00 04 'MQTT' 05 00 00 3c 00 00 00", Connect("", 5, clean=False)),
    ("= 10 11 00 04 'MQTT' 05 42 00 3c 00 00 01 'a' 00 01 'p'", Connect("a", 5, password=b"p")),
    (
        "= 10 13 00 04 'MQTT' 05 02 00 3c 05 11 00 00 00 0a 00 01 'a'",
        Connect("a", 5, properties=P(session_expiry_s=10)),
    ),
    (
        "= 10 13 00 04 'MQTT' 05 02 00 3c 05 11 ff ff ff ff 00 01 'a'",
        Connect("a", 5, properties=P(session_expiry_s=0xFFFFFFFF)),
    ),
    ("= 10 11 00 04 'MQTT' 05 02 00 3c 03 21 00 01 00 01 'a'", Connect("a", 5, properties=P(receive_maximum=1))),
    (
        "= 10 13 00 04 'MQTT' 05 02 00 3c 05 27 00 00 00 01 00 01 'a'",
        Connect("a", 5, properties=P(maximum_packet_bytes=1)),
    ),
    ("= 10 11 00 04 'MQTT' 05 02 00 3c 03 22 00 00 00 01 'a'", Connect("a", 5, properties=P(topic_alias_maximum=0))),
    (
        "= 10 12 00 04 'MQTT' 05 02 00 3c 04 17 00 19 01 00 01 'a'",
        Connect("a", 5, properties=P(request_problem_information=False, request_response_information=True)),
    ),
    (
        "= 10 15 00 04 'MQTT' 05 02 00 3c 07 26 00 01 'k' 00 01 'v' 00 01 'a'",
        Connect("a", 5, properties=P(user_properties=(("k", "v"),))),
    ),
    (
        "= 10 1a 00 04 'MQTT' 05 02 00 3c 0c 26 00 01 'k' 00 01 'v' 26 00 00 00 00 00 01 'a'",
        Connect("a", 5, properties=P(user_properties=(("k", "v"), ("", "")))),
    ),
    (
        "= 10 15 00 04 'MQTT' 05 02 00 3c 07 15 00 01 'm' 16 00 00 00 01 'a'",
        Connect("a", 5, properties=P(authentication_method="m", authentication_data=b"")),
    ),
    (
        "= 10 1a 00 04 'MQTT' 05 06 00 3c 00 00 01 'a' 05 18 00 00 00 05 00 01 't' 00 01 'm'",
        Connect("a", 5, will=WillMessage("t", b"m", properties=P(will_delay_s=5))),
    ),
    (
        "= 10 21 00 04 'MQTT' 05 06 00 3c 00 00 01 'a' 0c 01 01 02 00 00 00 3c 03 00 02 't/' 00 01 't' 00 01 'm'",
        Connect(
            "a", 5, will=WillMessage("t", b"m", properties=P(payload_format=1, message_expiry_s=60, content_type="t/"))
        ),
    ),
]
CONNACK: list[tuple[int, str, Packet]] = [
    (4, "= 20 02 00 00", ConnAck()),
    (4, "= 20 02 01 00", ConnAck(True)),
    *((4, f"= 20 02 00 {code:02x}", ConnAck(False, code)) for code in range(1, 6)),
    (5, "= 20 03 00 00 00", ConnAck()),
    (5, "= 20 03 01 00 00", ConnAck(True)),
    *((5, f"= 20 03 00 {code:02x} 00", ConnAck(False, code)) for code in (0x80, 0x84, 0x86, 0x87, 0x8C, 0x9F)),
    (5, "= 20 0a 00 00 07 12 00 04 'auto'", ConnAck(properties=P(assigned_client_id="auto"))),
    (5, "= 20 06 00 00 03 13 00 1e", ConnAck(properties=P(server_keep_alive_s=30))),
    (
        5,
        "= 20 0d 00 00 0a 24 01 25 00 28 00 29 00 2a 00",
        ConnAck(
            properties=P(
                maximum_qos=1,
                retain_available=False,
                wildcard_subscription_available=False,
                subscription_identifiers_available=False,
                shared_subscription_available=False,
            )
        ),
    ),
    (
        5,
        "= 20 0e 00 00 0b 21 00 14 22 00 0a 27 00 00 ff ff",
        ConnAck(properties=P(receive_maximum=20, topic_alias_maximum=10, maximum_packet_bytes=65535)),
    ),
    (
        5,
        "~ 20 0e 00 00 0b 27 00 00 ff ff 22 00 0a 21 00 14",
        ConnAck(properties=P(receive_maximum=20, topic_alias_maximum=10, maximum_packet_bytes=65535)),
    ),
    (
        5,
        "= 20 0b 00 9c 08 1c 00 01 'b' 1f 00 01 'r'",
        ConnAck(reason=0x9C, properties=P(server_reference="b", reason_string="r")),
    ),
    (5, "= 20 07 00 00 04 1a 00 01 'i'", ConnAck(properties=P(response_information="i"))),
]
PUBLISH: list[tuple[int, str, Packet]] = [
    (4, "= 30 03 00 01 't'", Publish("t")),
    (4, "= 30 05 00 01 't' 'hi'", Publish("t", b"hi")),
    (4, "= 31 05 00 01 't' 'hi'", Publish("t", b"hi", retain=True)),
    (4, "= 31 03 00 01 't'", Publish("t", retain=True)),
    (4, "= 32 05 00 01 't' 00 01", Publish("t", qos=1, packet_id=1)),
    (4, "= 33 06 00 01 't' 00 01 'm'", Publish("t", b"m", 1, True, packet_id=1)),
    (4, "= 3a 06 00 01 't' ff ff 'm'", Publish("t", b"m", 1, dup=True, packet_id=65535)),
    (4, "= 34 06 00 01 't' 00 07 'm'", Publish("t", b"m", 2, packet_id=7)),
    (4, "= 3d 06 00 01 't' 00 07 'm'", Publish("t", b"m", 2, True, True, 7)),
    (4, "= 30 04 00 01 '/' 00", Publish("/", b"\0")),
    (4, "= 30 06 00 04 '$SYS'", Publish("$SYS")),
    (4, "= 30 05 00 03 'a b'", Publish("a b")),
    (4, "= 30 06 00 04 f0 9f 98 80", Publish("😀")),
    (4, "= 30 05 00 03 ef bf bf", Publish("\uffff")),
    (4, "= 30 04 00 02 c2 80", Publish("\x80")),
    (4, "= 30 80 01 00 01 't' " + "78 " * 125, Publish("t", b"x" * 125)),
    (5, "= 30 04 00 01 't' 00", Publish("t")),
    (5, "= 31 05 00 01 't' 00 'm'", Publish("t", b"m", retain=True)),
    (5, "= 32 07 00 01 't' 00 0a 00 'm'", Publish("t", b"m", 1, packet_id=10)),
    (5, "= 3c 07 00 01 't' 00 0a 00 'm'", Publish("t", b"m", 2, dup=True, packet_id=10)),
    (5, "= 30 06 00 01 't' 02 01 00", Publish("t", properties=P(payload_format=0))),
    (5, "= 30 09 00 01 't' 05 02 00 00 00 00", Publish("t", properties=P(message_expiry_s=0))),
    (5, "= 30 08 00 01 't' 04 03 00 01 'j'", Publish("t", properties=P(content_type="j"))),
    (
        5,
        "= 30 0e 00 01 't' 09 08 00 01 'r' 09 00 02 00 ff 'm'",
        Publish("t", b"m", properties=P(response_topic="r", correlation_data=b"\0\xff")),
    ),
    (5, "= 30 07 00 01 't' 03 23 00 01", Publish("t", properties=P(topic_alias=1))),
    (5, "= 30 06 00 00 03 23 ff ff", Publish("", properties=P(topic_alias=65535))),
    (5, "= 32 08 00 00 00 01 03 23 00 02", Publish("", qos=1, packet_id=1, properties=P(topic_alias=2))),
    (5, "= 30 06 00 01 't' 02 0b 01", Publish("t", properties=P(subscription_identifiers=(1,)))),
    (
        5,
        "= 30 0b 00 01 't' 07 0b 80 01 0b ff ff 7f",
        Publish("t", properties=P(subscription_identifiers=(128, 2_097_151))),
    ),
    (5, "= 30 0b 00 01 't' 07 26 00 01 'a' 00 01 'b'", Publish("t", properties=P(user_properties=(("a", "b"),)))),
]
ACKNOWLEDGEMENTS: list[tuple[int, str, Packet]] = [
    (version, f"= {first} 02 {ident}", kind(number))
    for first, kind in (("40", PubAck), ("50", PubRec), ("62", PubRel), ("70", PubComp))
    for version in (4, 5)
    for ident, number in (("00 01", 1), ("ff ff", 65535))
] + [
    (5, "= 40 03 00 01 10", PubAck(1, 0x10)),
    (5, "~ 40 03 00 01 00", PubAck(1)),
    (5, "~ 40 04 00 01 00 00", PubAck(1)),
    (5, "~ 40 04 00 01 87 00", PubAck(1, 0x87)),
    (5, "= 40 08 00 01 97 04 1f 00 01 'q'", PubAck(1, 0x97, P(reason_string="q"))),
    (5, "= 40 08 00 01 00 04 1f 00 01 'q'", PubAck(1, 0, P(reason_string="q"))),
    (5, "= 50 03 00 01 91", PubRec(1, 0x91)),
    (5, "= 50 0b 00 01 80 07 26 00 01 'a' 00 01 'b'", PubRec(1, 0x80, P(user_properties=(("a", "b"),)))),
    (5, "= 62 03 00 01 92", PubRel(1, 0x92)),
    (5, "~ 62 04 00 01 00 00", PubRel(1)),
    (5, "= 70 03 00 01 92", PubComp(1, 0x92)),
    (5, "= 70 07 00 01 92 03 1f 00 00", PubComp(1, 0x92, P(reason_string=""))),
]
SUBSCRIPTIONS: list[tuple[int, str, Packet]] = [
    (4, "= 82 06 00 01 00 01 't' 00", Subscribe(1, (F("t"),))),
    (4, "= 82 06 00 01 00 01 '#' 01", Subscribe(1, (F("#", 1),))),
    (4, "= 82 06 00 01 00 01 '+' 02", Subscribe(1, (F("+", 2),))),
    (4, "= 82 0d 00 0a 00 03 'a/b' 01 00 02 '/#' 02", Subscribe(10, (F("a/b", 1), F("/#", 2)))),
    (4, "= 82 0c 00 01 00 07 '+/a/+/#' 00", Subscribe(1, (F("+/a/+/#"),))),
    (4, "= 82 0f 00 01 00 0a '$share/g/t' 01", Subscribe(1, (F("$share/g/t", 1),))),
    (4, "= 82 0d 00 01 00 08 '$share/+' 01", Subscribe(1, (F("$share/+", 1),))),
    (4, "= 82 0b 00 01 00 06 '$SYS/#' 00", Subscribe(1, (F("$SYS/#"),))),
    (5, "= 82 07 00 01 00 00 01 't' 00", Subscribe(1, (F("t"),))),
    (5, "= 82 07 00 01 00 00 01 't' 04", Subscribe(1, (F("t", no_local=True),))),
    (5, "= 82 07 00 01 00 00 01 't' 08", Subscribe(1, (F("t", retain_as_published=True),))),
    (5, "= 82 07 00 01 00 00 01 't' 10", Subscribe(1, (F("t", retain_handling=1),))),
    (5, "= 82 07 00 01 00 00 01 't' 2e", Subscribe(1, (F("t", 2, True, True, 2),))),
    (5, "= 82 0a 00 01 03 0b 80 01 00 01 't' 01", Subscribe(1, (F("t", 1),), P(subscription_identifiers=(128,)))),
    (5, "= 82 10 00 01 00 00 0a '$share/g/t' 2a", Subscribe(1, (F("$share/g/t", 2, False, True, 2),))),
    (5, "= 82 10 00 01 00 00 0a '$share/g/#' 00", Subscribe(1, (F("$share/g/#"),))),
    (
        5,
        "= 82 0e 00 01 07 26 00 01 'a' 00 01 'b' 00 01 't' 00",
        Subscribe(1, (F("t"),), P(user_properties=(("a", "b"),))),
    ),
    (4, "= 90 03 00 01 00", SubAck(1, (0,))),
    (4, "= 90 06 00 01 00 01 02 80", SubAck(1, (0, 1, 2, 0x80))),
    (5, "= 90 04 00 01 00 02", SubAck(1, (2,))),
    (5, "= 90 08 00 01 00 01 87 8f 9e a2", SubAck(1, (1, 0x87, 0x8F, 0x9E, 0xA2))),
    (5, "= 90 08 00 01 04 1f 00 01 'r' 80", SubAck(1, (0x80,), P(reason_string="r"))),
    (4, "= a2 05 00 01 00 01 't'", Unsubscribe(1, ("t",))),
    (4, "= a2 09 00 01 00 01 't' 00 02 '/#'", Unsubscribe(1, ("t", "/#"))),
    (5, "= a2 06 00 01 00 00 01 't'", Unsubscribe(1, ("t",))),
    (5, "= a2 0f 00 01 00 00 0a '$share/g/t'", Unsubscribe(1, ("$share/g/t",))),
    (5, "= a2 0d 00 01 07 26 00 01 'a' 00 01 'b' 00 01 't'", Unsubscribe(1, ("t",), P(user_properties=(("a", "b"),)))),
    (4, "= b0 02 00 01", UnsubAck(1)),
    (5, "= b0 04 00 01 00 00", UnsubAck(1, (0,))),
    (5, "= b0 06 00 01 00 00 11 87", UnsubAck(1, (0, 0x11, 0x87))),
]
THE_REST: list[tuple[int, str, Packet]] = [
    (4, "= c0 00", PingReq()),
    (5, "= c0 00", PingReq()),
    (4, "= d0 00", PingResp()),
    (5, "= d0 00", PingResp()),
    (4, "= e0 00", Disconnect()),
    (5, "= e0 00", Disconnect()),
    (5, "~ e0 01 00", Disconnect()),
    (5, "~ e0 02 00 00", Disconnect()),
    (5, "~ e0 01 04", Disconnect(4)),
    (5, "= e0 02 04 00", Disconnect(4)),
    (5, "= e0 02 8e 00", Disconnect(0x8E)),
    (5, "= e0 07 00 05 11 00 00 00 3c", Disconnect(properties=P(session_expiry_s=60))),
    (
        5,
        "= e0 0a 9d 08 1c 00 01 'b' 1f 00 01 'r'",
        Disconnect(0x9D, P(server_reference="b", reason_string="r")),
    ),
    (5, "= f0 00", Auth()),
    (5, "= f0 06 18 04 15 00 01 'm'", Auth(0x18, P(authentication_method="m"))),
    (5, "= f0 0a 19 08 15 00 01 'm' 16 00 01 00", Auth(0x19, P(authentication_method="m", authentication_data=b"\0"))),
    (5, "= f0 06 00 04 15 00 01 'm'", Auth(0, P(authentication_method="m"))),
]
VECTORS = (
    [(4, wire, packet) for wire, packet in CONNECT_311]
    + [(5, wire, packet) for wire, packet in CONNECT_5]
    + CONNACK
    + PUBLISH
    + ACKNOWLEDGEMENTS
    + SUBSCRIPTIONS
    + THE_REST
)


@pytest.mark.parametrize(("version", "wire", "packet"), VECTORS, ids=[f"{v} {w[:60]}" for v, w, _ in VECTORS])
def test_bytes_and_packet_are_the_same_thing(version: int, wire: str, packet: Packet) -> None:
    canonical, frame = wire[0] == "=", raw(wire[1:])
    split = split_frames(frame, version=version)
    assert split.consumed == len(frame)
    assert [start for start, _, _ in split.frames] == [0]
    assert decode(frame[0], frame[split.frames[0][1] :], version) == packet
    assert (encode(packet, version) == frame) is canonical


def test_a_connect_is_read_in_its_own_version_whatever_is_expected() -> None:
    for frame, version in ((raw(CONNECT_311[0][0][1:]), 5), (raw(CONNECT_5[0][0][1:]), 4)):
        assert decode(frame[0], frame[2:], version) == decode(frame[0], frame[2:], 9 - version)


QOS2_FLOW_5 = (
    "10 0e 00 04 'MQTT' 05 02 00 3c 00 00 01 'a'  20 03 00 00 00  82 07 00 01 00 00 01 't' 02  90 04 00 01 00 02"
    "34 07 00 01 't' 00 02 00 'm'  50 02 00 02  62 02 00 02  70 02 00 02  34 07 00 01 't' 00 01 00 'm'  50 02 00 01"
    "62 02 00 01  70 02 00 01  c0 00  d0 00  a2 06 00 03 00 00 01 't'  b0 04 00 03 00 00  e0 00"
)


def test_a_whole_conversation_reads_in_order() -> None:
    stream = raw(QOS2_FLOW_5)
    split = split_frames(stream, version=5)
    names = [type(decode(stream[start], stream[body:end], 5)).__name__ for start, body, end in split.frames]
    assert split.consumed == len(stream)
    assert " ".join(names) == (
        "Connect ConnAck Subscribe SubAck Publish PubRec PubRel PubComp Publish PubRec PubRel PubComp "
        "PingReq PingResp Unsubscribe UnsubAck Disconnect"
    )
