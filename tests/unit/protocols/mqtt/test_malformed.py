"""Packets that break one rule of the specifications each, written by hand: decode names the rule and the reason code.

Notation: hex bytes, 'text' in quotes, `..` the right remaining length. One line: versions, bytes, words of the error.
"""

from __future__ import annotations

import re

import pytest

from battlebrokers.protocols.mqtt.decode import decode
from battlebrokers.protocols.mqtt.encode import encode
from battlebrokers.protocols.mqtt.framing import split_frames
from battlebrokers.protocols.mqtt.malformed import MalformedPacket
from battlebrokers.protocols.mqtt.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    FilterRequest,
    Packet,
    PacketType,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    WillMessage,
)
from battlebrokers.protocols.mqtt.properties import Properties
from battlebrokers.protocols.mqtt.reasons import allowed_reasons

MALFORMED, PROTOCOL, VERSION, CLIENT_ID, FILTER, TOPIC, ALIAS = 0x81, 0x82, 0x84, 0x85, 0x8F, 0x90, 0x94


def raw(notation: str) -> bytes:
    """Bytes from hex and 'quoted text'; `..` becomes the length of what follows (below 128)."""
    head, dots, tail = notation.partition("..")
    parts = [
        b"".join(t.encode() if not h else bytes.fromhex(h) for t, h in re.findall(r"'([^']*)'|([0-9a-f]{2})", part))
        for part in (head, tail)
    ]
    return parts[0] + (bytes((len(parts[1]),)) if dots else b"") + parts[1]


C4, C5 = "10 .. 00 04 'MQTT' 04", "10 .. 00 04 'MQTT' 05"

TABLE: list[tuple[str, str, str, int]] = [
    # First bytes: types and reserved flags
    ("45", "00 00", "no packet type 0", MALFORMED),
    ("45", "0f 00", "no packet type 0", MALFORMED),
    ("4", "f0 00", "no packet type 15", MALFORMED),
    ("4", "f0 .. 18 00", "no packet type 15", MALFORMED),
    ("5", "f1 00", "reserved flags of AUTH", MALFORMED),
    ("45", "11 .. 00 04 'MQTT' 04 02 00 3c 00 01 'a'", "reserved flags of CONNECT", MALFORMED),
    ("45", "22 .. 00 00 00", "reserved flags of CONNACK", MALFORMED),
    ("45", "41 .. 00 01", "reserved flags of PUBACK", MALFORMED),
    ("45", "42 .. 00 01", "reserved flags of PUBACK", MALFORMED),
    ("45", "58 .. 00 01", "reserved flags of PUBREC", MALFORMED),
    ("45", "60 .. 00 01", "reserved flags of PUBREL", MALFORMED),
    ("45", "63 .. 00 01", "reserved flags of PUBREL", MALFORMED),
    ("45", "74 .. 00 01", "reserved flags of PUBCOMP", MALFORMED),
    ("4", "80 .. 00 01 00 01 't' 00", "reserved flags of SUBSCRIBE", MALFORMED),
    ("5", "8a .. 00 01 00 00 01 't' 00", "reserved flags of SUBSCRIBE", MALFORMED),
    ("45", "92 .. 00 01 00 00", "reserved flags of SUBACK", MALFORMED),
    ("45", "a0 .. 00 01 00 01 't'", "reserved flags of UNSUBSCRIBE", MALFORMED),
    ("45", "b1 .. 00 01", "reserved flags of UNSUBACK", MALFORMED),
    ("45", "c8 00", "reserved flags of PINGREQ", MALFORMED),
    ("45", "d1 00", "reserved flags of PINGRESP", MALFORMED),
    ("45", "e2 00", "reserved flags of DISCONNECT", MALFORMED),
    # CONNECT
    ("45", "10 00", "too early", MALFORMED),
    ("45", "10 .. 00 04 'MQ'", "too early", MALFORMED),
    ("45", "10 .. 00 04 'MQTT'", "too early", MALFORMED),
    ("45", f"{C4} 02", "too early", MALFORMED),
    ("45", f"{C4} 02 00 3c", "too early", MALFORMED),
    ("45", f"{C4} 02 00 3c 00 02 'a'", "too early", MALFORMED),
    ("45", f"{C4} 02 00 3c 00 01 'a' 00", "follow the end", MALFORMED),
    ("45", "10 .. 00 04 'mqtt' 04 02 00 3c 00 01 'a'", "neither MQTT", VERSION),
    ("45", "10 .. 00 04 'MQTt' 05 02 00 3c 00 00 01 'a'", "neither MQTT", VERSION),
    ("45", "10 .. 00 00 04 02 00 3c 00 01 'a'", "neither MQTT", VERSION),
    ("45", "10 .. 00 06 'MQIsdp' 03 02 00 3c 00 01 'a'", "version 3", VERSION),
    ("45", "10 .. 00 06 'MQIsdp' 04 02 00 3c 00 01 'a'", "neither MQTT", VERSION),
    *(("45", f"10 .. 00 04 'MQTT' {v} 02 00 3c 00 01 'a'", "neither MQTT", VERSION) for v in ("00", "03", "06", "84")),
    ("45", f"{C4} 03 00 3c 00 01 'a'", "reserved connect flag", MALFORMED),
    ("45", f"{C5} 03 00 3c 00 00 01 'a'", "reserved connect flag", MALFORMED),
    ("45", f"{C4} 0a 00 3c 00 01 'a'", "there is no will", MALFORMED),
    ("45", f"{C4} 22 00 3c 00 01 'a'", "there is no will", MALFORMED),
    ("45", f"{C5} 12 00 3c 00 00 01 'a'", "there is no will", MALFORMED),
    ("45", f"{C4} 1e 00 3c 00 01 'a' 00 01 't' 00 01 'm'", "will's QoS is 3", MALFORMED),
    ("45", f"{C5} 1e 00 3c 00 00 01 'a' 00 00 01 't' 00 01 'm'", "will's QoS is 3", MALFORMED),
    ("45", f"{C4} 06 00 3c 00 01 'a'", "too early", MALFORMED),
    ("45", f"{C4} 06 00 3c 00 01 'a' 00 01 't'", "too early", MALFORMED),
    ("45", f"{C4} 06 00 3c 00 01 'a' 00 00 00 01 'm'", "topic name is empty", TOPIC),
    ("45", f"{C4} 06 00 3c 00 01 'a' 00 01 '#' 00 01 'm'", "wildcard", TOPIC),
    ("45", f"{C4} 06 00 3c 00 01 'a' 00 03 'a/+' 00 01 'm'", "wildcard", TOPIC),
    ("45", f"{C4} 42 00 3c 00 01 'a' 00 01 'p'", "password without a user name", MALFORMED),
    ("45", f"{C4} 82 00 3c 00 01 'a'", "too early", MALFORMED),
    ("45", f"{C4} c2 00 3c 00 01 'a' 00 01 'u'", "too early", MALFORMED),
    ("45", f"{C4} 02 00 3c 00 01 'a' 00 01 'u'", "follow the end", MALFORMED),
    ("45", f"{C4} 00 00 3c 00 00", "empty client identifier", CLIENT_ID),
    ("45", f"{C4} 02 00 3c 00 01 00", "U+0000", MALFORMED),
    ("45", f"{C4} 02 00 3c 00 03 ed a0 80", "not valid UTF-8", MALFORMED),
    ("45", f"{C4} 82 00 3c 00 01 'a' 00 01 ff", "not valid UTF-8", MALFORMED),
    ("45", f"{C5} 02 00 3c", "inside a variable byte", MALFORMED),
    ("45", f"{C5} 02 00 3c 05 11 00 00 00", "too early", MALFORMED),
    ("45", f"{C5} 02 00 3c 0a 11 00 00 00 01 11 00 00 00 01 00 01 'a'", "session_expiry_s occurs more", PROTOCOL),
    ("45", f"{C5} 02 00 3c 03 21 00 00 00 01 'a'", "receive_maximum is 0", PROTOCOL),
    ("45", f"{C5} 02 00 3c 06 21 00 01 21 00 01 00 01 'a'", "receive_maximum occurs more", PROTOCOL),
    ("45", f"{C5} 02 00 3c 05 27 00 00 00 00 00 01 'a'", "maximum_packet_bytes is 0", PROTOCOL),
    ("45", f"{C5} 02 00 3c 02 17 02 00 01 'a'", "request_problem_information is 2", PROTOCOL),
    ("45", f"{C5} 02 00 3c 02 19 ff 00 01 'a'", "request_response_information is 255", PROTOCOL),
    ("45", f"{C5} 02 00 3c 04 16 00 01 00 00 01 'a'", "without an authentication method", PROTOCOL),
    ("45", f"{C5} 02 00 3c 08 15 00 01 'm' 15 00 01 'm' 00 01 'a'", "authentication_method occurs", PROTOCOL),
    ("45", f"{C5} 02 00 3c 03 23 00 01 00 01 'a'", "topic_alias is not allowed", PROTOCOL),
    ("45", f"{C5} 02 00 3c 05 18 00 00 00 01 00 01 'a'", "will_delay_s is not allowed in CONNECT", PROTOCOL),
    ("45", f"{C5} 02 00 3c 04 1f 00 01 'r' 00 01 'a'", "reason_string is not allowed", PROTOCOL),
    ("45", f"{C5} 06 00 3c 00 00 01 'a' 05 11 00 00 00 01 00 01 't' 00 00", "not allowed in a will", PROTOCOL),
    ("45", f"{C5} 06 00 3c 00 00 01 'a' 02 01 02 00 01 't' 00 00", "payload_format is 2", PROTOCOL),
    ("45", f"{C5} 06 00 3c 00 00 01 'a' 04 08 00 01 '#' 00 01 't' 00 00", "wildcard", TOPIC),
    # CONNACK
    ("45", "20 00", "too early", MALFORMED),
    ("45", "20 .. 00", "too early", MALFORMED),
    ("4", "20 .. 00 00 00", "follow the end", MALFORMED),
    ("5", "20 .. 00 00", "inside a variable byte", MALFORMED),
    ("5", "20 .. 00 01", "answered as MQTT 3.1.1: unacceptable protocol version", VERSION),
    ("4", "20 .. 02 00", "acknowledge flags", MALFORMED),
    ("5", "20 .. 80 00 00", "acknowledge flags", MALFORMED),
    ("4", "20 .. 00 06", "cannot carry reason 0x06", PROTOCOL),
    ("4", "20 .. 00 80", "cannot carry reason 0x80", PROTOCOL),
    ("5", "20 .. 00 01 00", "cannot carry reason 0x01", PROTOCOL),
    ("5", "20 .. 00 8d 00", "cannot carry reason 0x8D", PROTOCOL),
    ("4", "20 .. 01 05", "cannot have a session", PROTOCOL),
    ("5", "20 .. 01 87 00", "cannot have a session", PROTOCOL),
    ("5", "20 .. 00 00 02 24 02", "maximum_qos is 2", PROTOCOL),
    ("5", "20 .. 00 00 02 25 02", "retain_available is 2", PROTOCOL),
    ("5", "20 .. 00 00 03 21 00 00", "receive_maximum is 0", PROTOCOL),
    ("5", "20 .. 00 00 06 13 00 01 13 00 01", "server_keep_alive_s occurs", PROTOCOL),
    ("5", "20 .. 00 00 02 17 01", "not allowed in CONNACK", PROTOCOL),
    ("5", "20 .. 00 00 00 00", "follow the end", MALFORMED),
    # PUBLISH
    ("45", "30 00", "too early", MALFORMED),
    ("45", "30 .. 00", "too early", MALFORMED),
    ("45", "30 .. 00 02 't'", "too early", MALFORMED),
    ("4", "30 .. 00 00 'm'", "topic name is empty", TOPIC),
    ("5", "30 .. 00 00 00", "neither topic nor topic alias", PROTOCOL),
    ("45", "30 .. 00 01 '#' 00", "wildcard", TOPIC),
    ("45", "30 .. 00 01 '+' 00", "wildcard", TOPIC),
    ("45", "30 .. 00 03 'a/#' 00", "wildcard", TOPIC),
    ("45", "30 .. 00 03 'a+b' 00", "wildcard", TOPIC),
    ("45", "36 .. 00 01 't' 00 01 00", "QoS 3", MALFORMED),
    ("45", "3f .. 00 01 't' 00 01 00", "QoS 3", MALFORMED),
    ("45", "38 .. 00 01 't' 00", "cannot be a duplicate", MALFORMED),
    ("45", "39 .. 00 01 't' 00", "cannot be a duplicate", MALFORMED),
    ("45", "32 .. 00 01 't'", "too early", MALFORMED),
    ("45", "32 .. 00 01 't' 00", "too early", MALFORMED),
    ("45", "32 .. 00 01 't' 00 00 00", "identifier is 0", MALFORMED),
    ("45", "34 .. 00 01 't' 00 00 00", "identifier is 0", MALFORMED),
    ("45", "30 .. 00 03 'a' 00 'b' 00", "U+0000", MALFORMED),
    ("45", "30 .. 00 02 c0 80 00", "not valid UTF-8", MALFORMED),
    ("45", "30 .. 00 03 ed a0 80 00", "not valid UTF-8", MALFORMED),
    ("45", "30 .. 00 03 ed bf bf 00", "not valid UTF-8", MALFORMED),
    ("45", "30 .. 00 04 f4 90 80 80 00", "not valid UTF-8", MALFORMED),
    ("45", "30 .. 00 04 f0 80 80 af 00", "not valid UTF-8", MALFORMED),
    ("45", "30 .. 00 01 80 00", "not valid UTF-8", MALFORMED),
    ("45", "30 .. 00 02 'a' c3 00", "not valid UTF-8", MALFORMED),
    ("5", "30 .. 00 01 't'", "inside a variable byte", MALFORMED),
    ("5", "30 .. 00 01 't' 80", "inside a variable byte", MALFORMED),
    ("5", "30 .. 00 01 't' 80 00", "more bytes than it needs", MALFORMED),
    ("5", "30 .. 00 01 't' ff ff ff ff 7f", "longer than four bytes", MALFORMED),
    ("5", "30 .. 00 01 't' 05 23 00 01", "too early", MALFORMED),
    ("5", "30 .. 00 01 't' 02 23 00 01", "too early", MALFORMED),
    ("5", "30 .. 00 01 't' 03 23 00 00", "topic_alias is 0", ALIAS),
    ("5", "30 .. 00 01 't' 06 23 00 01 23 00 02", "topic_alias occurs", PROTOCOL),
    ("5", "30 .. 00 01 't' 02 0b 00", "subscription_identifiers is 0", PROTOCOL),
    ("5", "30 .. 00 01 't' 03 0b 81 00", "more bytes than it needs", MALFORMED),
    ("5", "30 .. 00 01 't' 06 0b ff ff ff ff 7f", "longer than four bytes", MALFORMED),
    ("5", "30 .. 00 01 't' 02 01 02", "payload_format is 2", PROTOCOL),
    ("5", "30 .. 00 01 't' 04 01 01 01 01", "payload_format occurs", PROTOCOL),
    ("5", "30 .. 00 01 't' 04 08 00 01 '+'", "wildcard", TOPIC),
    ("5", "30 .. 00 01 't' 03 08 00 00", "topic name is empty", TOPIC),
    ("5", "30 .. 00 01 't' 06 03 00 00 03 00 00", "content_type occurs", PROTOCOL),
    ("5", "30 .. 00 01 't' 04 03 00 01 00", "U+0000", MALFORMED),
    ("5", "30 .. 00 01 't' 04 26 00 01 'k'", "too early", MALFORMED),
    ("5", "30 .. 00 01 't' 07 26 00 01 'k' 00 01 ff", "not valid UTF-8", MALFORMED),
    *(("5", f"30 .. 00 01 't' 02 {n} 00", "there is no property", MALFORMED) for n in ("00", "04", "0a", "10", "1b")),
    *(("5", f"30 .. 00 01 't' 02 {n} 00", "there is no property", MALFORMED) for n in ("20", "2b", "7f")),
    ("5", "30 .. 00 01 't' 03 83 00 00", "more bytes than it needs", MALFORMED),
    ("5", "30 .. 00 01 't' 03 80 01 00", "there is no property 0x80", MALFORMED),
    # Acknowledgements
    *(("45", f"{first} 00", "too early", MALFORMED) for first in ("40", "50", "62", "70")),
    *(("45", f"{first} .. 01", "too early", MALFORMED) for first in ("40", "50", "62", "70")),
    *(("45", f"{first} .. 00 00", "identifier is 0", MALFORMED) for first in ("40", "50", "62", "70")),
    *(("4", f"{first} .. 00 01 00", "follow the end", MALFORMED) for first in ("40", "50", "62", "70")),
    *(("5", f"{first} .. 00 01 01", "cannot carry reason 0x01", PROTOCOL) for first in ("40", "50", "62", "70")),
    *(("5", f"{first} .. 00 01 00 00 00", "follow the end", MALFORMED) for first in ("40", "50", "62", "70")),
    *(("5", f"{first} .. 00 01 00 01", "too early", MALFORMED) for first in ("40", "50", "62", "70")),
    *(("5", f"{first} .. 00 01 00 03 21 00 01", "not allowed in PUB", PROTOCOL) for first in ("40", "50", "62", "70")),
    ("5", "40 .. 00 01 92", "cannot carry reason 0x92", PROTOCOL),
    ("5", "62 .. 00 01 10", "cannot carry reason 0x10", PROTOCOL),
    ("5", "70 .. 00 01 80", "cannot carry reason 0x80", PROTOCOL),
    ("5", "40 .. 00 01 00 06 1f 00 00 1f 00 00", "reason_string occurs", PROTOCOL),
    # SUBSCRIBE and SUBACK
    ("45", "82 00", "too early", MALFORMED),
    ("4", "82 .. 00 01", "names no topic filter", PROTOCOL),
    ("5", "82 .. 00 01 00", "names no topic filter", PROTOCOL),
    ("5", "82 .. 00 01", "inside a variable byte", MALFORMED),
    ("4", "82 .. 00 00 00 01 't' 00", "identifier is 0", MALFORMED),
    ("5", "82 .. 00 00 00 00 01 't' 00", "identifier is 0", MALFORMED),
    ("4", "82 .. 00 01 00 01 't'", "too early", MALFORMED),
    ("4", "82 .. 00 01 00 01 't' 00 00 01 't'", "too early", MALFORMED),
    ("4", "82 .. 00 01 00 01 't' 03", "asks for QoS 3", MALFORMED),
    ("5", "82 .. 00 01 00 00 01 't' 03", "asks for QoS 3", MALFORMED),
    *(("4", f"82 .. 00 01 00 01 't' {opt}", "reserved subscription options", MALFORMED) for opt in ("04", "10", "80")),
    ("5", "82 .. 00 01 00 00 01 't' 40", "reserved subscription options", MALFORMED),
    ("5", "82 .. 00 01 00 00 01 't' 80", "reserved subscription options", MALFORMED),
    ("5", "82 .. 00 01 00 00 01 't' 30", "retain handling is 3", PROTOCOL),
    ("4", "82 .. 00 01 00 00 00", "topic filter is empty", FILTER),
    ("5", "82 .. 00 01 00 00 00 00", "topic filter is empty", FILTER),
    *(("4", f"82 .. 00 01 00 02 '{f}' 00", "misplaced wildcard", FILTER) for f in ("a#", "#a", "a+", "+a", "++", "##")),
    ("4", "82 .. 00 01 00 03 '#/a' 00", "misplaced wildcard", FILTER),
    ("5", "82 .. 00 01 00 00 03 'a/#' 00 00 05 'a/b+/' 00", "misplaced wildcard", FILTER),
    ("4", "82 .. 00 01 00 02 c3 28 00", "not valid UTF-8", MALFORMED),
    ("5", "82 .. 00 01 00 00 07 '$share/' 00", "is not $share", FILTER),
    ("5", "82 .. 00 01 00 00 08 '$share/g' 00", "is not $share", FILTER),
    ("5", "82 .. 00 01 00 00 09 '$share//t' 00", "is not $share", FILTER),
    ("5", "82 .. 00 01 00 00 09 '$share/g/' 00", "topic filter is empty", FILTER),
    ("5", "82 .. 00 01 00 00 0a '$share/+/t' 00", "is not $share", FILTER),
    ("5", "82 .. 00 01 00 00 0a '$share/g/t' 04", "cannot ask for no local", PROTOCOL),
    ("5", "82 .. 00 01 02 0b 00 00 01 't' 00", "subscription_identifiers is 0", PROTOCOL),
    ("5", "82 .. 00 01 04 0b 01 0b 02 00 01 't' 00", "subscription_identifiers occurs", PROTOCOL),
    ("5", "82 .. 00 01 03 23 00 01 00 01 't' 00", "not allowed in SUBSCRIBE", PROTOCOL),
    ("45", "90 00", "too early", MALFORMED),
    ("4", "90 .. 00 01", "answers nothing", PROTOCOL),
    ("5", "90 .. 00 01 00", "answers nothing", PROTOCOL),
    ("4", "90 .. 00 00 00", "identifier is 0", MALFORMED),
    ("4", "90 .. 00 01 03", "cannot carry reason 0x03", PROTOCOL),
    ("4", "90 .. 00 01 00 87", "cannot carry reason 0x87", PROTOCOL),
    ("5", "90 .. 00 01 00 03", "cannot carry reason 0x03", PROTOCOL),
    ("5", "90 .. 00 01 00 11", "cannot carry reason 0x11", PROTOCOL),
    # UNSUBSCRIBE and UNSUBACK
    ("45", "a2 00", "too early", MALFORMED),
    ("4", "a2 .. 00 01", "names no topic filter", PROTOCOL),
    ("5", "a2 .. 00 01 00", "names no topic filter", PROTOCOL),
    ("4", "a2 .. 00 00 00 01 't'", "identifier is 0", MALFORMED),
    ("4", "a2 .. 00 01 00 02 't'", "too early", MALFORMED),
    ("4", "a2 .. 00 01 00 00", "topic filter is empty", FILTER),
    ("4", "a2 .. 00 01 00 03 't/#' 00 03 '#/t'", "misplaced wildcard", FILTER),
    ("5", "a2 .. 00 01 00 00 07 '$share/'", "is not $share", FILTER),
    ("5", "a2 .. 00 01 02 0b 01 00 01 't'", "not allowed in UNSUBSCRIBE", PROTOCOL),
    ("4", "b0 .. 00 01 00", "follow the end", MALFORMED),
    ("45", "b0 .. 00 00", "identifier is 0", MALFORMED),
    ("5", "b0 .. 00 01", "inside a variable byte", MALFORMED),
    ("5", "b0 .. 00 01 00", "answers nothing", PROTOCOL),
    ("5", "b0 .. 00 01 00 01", "cannot carry reason 0x01", PROTOCOL),
    # PING, DISCONNECT, AUTH
    ("45", "c0 .. 00", "follow the end", MALFORMED),
    ("45", "d0 .. 00", "follow the end", MALFORMED),
    ("4", "e0 .. 00", "follow the end", MALFORMED),
    ("5", "e0 .. 01", "cannot carry reason 0x01", PROTOCOL),
    ("5", "e0 .. 84 00", "cannot carry reason 0x84", PROTOCOL),
    ("5", "e0 .. 00 01", "too early", MALFORMED),
    ("5", "e0 .. 00 00 00", "follow the end", MALFORMED),
    ("5", "e0 .. 00 03 21 00 01", "not allowed in DISCONNECT", PROTOCOL),
    ("5", "e0 .. 00 0a 11 00 00 00 00 11 00 00 00 00", "session_expiry_s occurs", PROTOCOL),
    ("5", "f0 .. 18", "inside a variable byte", MALFORMED),
    ("5", "f0 .. 18 00", "name its authentication method", PROTOCOL),
    ("5", "f0 .. 00 00", "name its authentication method", PROTOCOL),
    ("5", "f0 .. 18 04 16 00 01 00", "name its authentication method", PROTOCOL),
    ("5", "f0 .. 01 04 15 00 01 'm'", "cannot carry reason 0x01", PROTOCOL),
    ("5", "f0 .. 18 08 15 00 01 'm' 15 00 01 'm'", "authentication_method occurs", PROTOCOL),
    ("5", "f0 .. 18 09 15 00 01 'm' 11 00 00 00 01", "not allowed in AUTH", PROTOCOL),
]
VECTORS = [(int(version), wire, words, reason) for versions, wire, words, reason in TABLE for version in versions]


@pytest.mark.parametrize(("version", "wire", "words", "reason"), VECTORS, ids=[f"{v[0]} {v[1]}" for v in VECTORS])
def test_a_broken_rule_is_named(version: int, wire: str, words: str, reason: int) -> None:
    frame = raw(wire)
    ((_, body, end),) = split_frames(frame).frames
    assert end == len(frame)
    with pytest.raises(MalformedPacket, match=re.escape(words)) as caught:
        decode(frame[0], frame[body:], version)
    assert caught.value.reason == reason


def test_there_are_enough_vectors() -> None:
    assert len(VECTORS) >= 200


@pytest.mark.parametrize("version", [4, 5])
def test_reason_codes_outside_the_table_are_refused_in_every_answer(version: int) -> None:
    for code in range(256):
        allowed = code in allowed_reasons(PacketType.PUBACK, version)
        try:
            decode(0x40, bytes((0, 1, code)), version)
        except MalformedPacket:
            assert not allowed or version == 4
        else:
            assert allowed


CANNOT_BE_WRITTEN: list[tuple[int, Packet]] = [
    (4, Connect("a" * 65_536)),
    (4, Connect("\0")),
    (4, Connect("\ud800")),
    (4, Connect("a", 3)),
    (4, Connect("a", keep_alive_s=65_536)),
    (4, Connect("a", keep_alive_s=-1)),
    (4, Connect("a", password=b"p")),
    (4, Connect("", clean=False)),
    (4, Connect("a", properties=Properties(receive_maximum=1))),
    (4, Connect("a", will=WillMessage("t", b"", properties=Properties(will_delay_s=1)))),
    (4, Connect("a", will=WillMessage("t", b"m" * 65_536))),
    (4, Connect("a", will=WillMessage("t/#", b""))),
    (4, Connect("a", will=WillMessage("t", b"", 3))),
    (5, Connect("a", 5, properties=Properties(receive_maximum=0))),
    (5, Connect("a", 5, properties=Properties(receive_maximum=65_536))),
    (5, Connect("a", 5, properties=Properties(session_expiry_s=1 << 32))),
    (5, Connect("a", 5, properties=Properties(topic_alias=1))),
    (5, Connect("a", 5, properties=Properties(user_properties=(("a", "\0"),)))),
    (5, Connect("a", 5, properties=Properties(authentication_data=b"x"))),
    (4, ConnAck(reason=0x87)),
    (5, ConnAck(True, 0x87)),
    (4, Publish("")),
    (4, Publish("a/+")),
    (4, Publish("a", qos=1)),
    (4, Publish("a", qos=1, packet_id=0)),
    (4, Publish("a", qos=1, packet_id=65_536)),
    (4, Publish("a", packet_id=1)),
    (4, Publish("a", qos=3, packet_id=1)),
    (4, Publish("a", dup=True)),
    (4, Publish("a", properties=Properties(topic_alias=1))),
    (5, Publish("")),
    (5, Publish("a", properties=Properties(payload_format=2))),
    (5, Publish("a", properties=Properties(subscription_identifiers=(0,)))),
    (5, Publish("a", properties=Properties(subscription_identifiers=(268_435_456,)))),
    (5, Publish("a", properties=Properties(response_topic="#"))),
    (4, PubAck(1, 0x10)),
    (5, PubAck(0)),
    (5, PubAck(1, 0x92)),
    (4, Subscribe(1, ())),
    (4, Subscribe(0, (FilterRequest("a"),))),
    (4, Subscribe(1, (FilterRequest("a", no_local=True),))),
    (5, Subscribe(1, (FilterRequest("a", retain_handling=3),))),
    (5, Subscribe(1, (FilterRequest("a"),), Properties(subscription_identifiers=(1, 2)))),
    (5, SubAck(1, ())),
    (4, Unsubscribe(1, ())),
    (4, UnsubAck(1, (0,))),
    (5, UnsubAck(1)),
    (4, Disconnect(4)),
    (5, Disconnect(0x84)),
    (4, Auth()),
    (5, Auth(0x18)),
    (3, Disconnect()),
]


@pytest.mark.parametrize(("version", "packet"), CANNOT_BE_WRITTEN, ids=[f"{v} {p!r:.70}" for v, p in CANNOT_BE_WRITTEN])
def test_encode_refuses_what_the_specification_forbids(version: int, packet: Packet) -> None:
    with pytest.raises(MalformedPacket):
        encode(packet, version)
