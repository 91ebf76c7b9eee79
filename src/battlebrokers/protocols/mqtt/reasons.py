"""Reason codes in words, and which packet may carry which: MQTT 3.1.1 return codes and all codes of MQTT 5.

Called by encode and decode (to judge) and by links and reports (to speak).
"""

from __future__ import annotations

from battlebrokers.protocols.mqtt.packets import PacketType

SUCCESS = 0x00
DISCONNECT_WITH_WILL = 0x04
NO_MATCHING_SUBSCRIBERS = 0x10
FIRST_FAILURE = 0x80

CONNECT_RETURN_CODES = {
    0: "connection accepted",
    1: "unacceptable protocol version",
    2: "client identifier rejected",
    3: "server unavailable",
    4: "bad user name or password",
    5: "not authorized",
}
SUBSCRIBE_RETURN_CODES = {0: "granted QoS 0", 1: "granted QoS 1", 2: "granted QoS 2", 0x80: "refused"}

_CONNACK, _PUBACK, _PUBREC, _PUBREL = PacketType.CONNACK, PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL
_PUBCOMP, _SUBACK, _UNSUBACK = PacketType.PUBCOMP, PacketType.SUBACK, PacketType.UNSUBACK
_DISCONNECT, _AUTH = PacketType.DISCONNECT, PacketType.AUTH
_ANSWERS = (_PUBACK, _PUBREC, _SUBACK, _UNSUBACK)

REASON_CODES: dict[int, tuple[str, tuple[PacketType, ...]]] = {
    0x00: (
        "success",
        (_CONNACK, _PUBACK, _PUBREC, _PUBREL, _PUBCOMP, _SUBACK, _UNSUBACK, _DISCONNECT, _AUTH),
    ),
    0x01: ("granted QoS 1", (_SUBACK,)),
    0x02: ("granted QoS 2", (_SUBACK,)),
    0x04: ("disconnect with will message", (_DISCONNECT,)),
    0x10: ("no matching subscribers", (_PUBACK, _PUBREC)),
    0x11: ("no subscription existed", (_UNSUBACK,)),
    0x18: ("continue authentication", (_AUTH,)),
    0x19: ("re-authenticate", (_AUTH,)),
    0x80: ("unspecified error", (_CONNACK, *_ANSWERS, _DISCONNECT)),
    0x81: ("malformed packet", (_CONNACK, _DISCONNECT)),
    0x82: ("protocol error", (_CONNACK, _DISCONNECT)),
    0x83: ("implementation specific error", (_CONNACK, *_ANSWERS, _DISCONNECT)),
    0x84: ("unsupported protocol version", (_CONNACK,)),
    0x85: ("client identifier not valid", (_CONNACK,)),
    0x86: ("bad user name or password", (_CONNACK,)),
    0x87: ("not authorized", (_CONNACK, *_ANSWERS, _DISCONNECT)),
    0x88: ("server unavailable", (_CONNACK,)),
    0x89: ("server busy", (_CONNACK, _DISCONNECT)),
    0x8A: ("banned", (_CONNACK,)),
    0x8B: ("server shutting down", (_DISCONNECT,)),
    0x8C: ("bad authentication method", (_CONNACK, _DISCONNECT)),
    0x8D: ("keep alive timeout", (_DISCONNECT,)),
    0x8E: ("session taken over", (_DISCONNECT,)),
    0x8F: ("topic filter invalid", (_SUBACK, _UNSUBACK, _DISCONNECT)),
    0x90: ("topic name invalid", (_CONNACK, _PUBACK, _PUBREC, _DISCONNECT)),
    0x91: ("packet identifier in use", _ANSWERS),
    0x92: ("packet identifier not found", (_PUBREL, _PUBCOMP)),
    0x93: ("receive maximum exceeded", (_DISCONNECT,)),
    0x94: ("topic alias invalid", (_DISCONNECT,)),
    0x95: ("packet too large", (_CONNACK, _DISCONNECT)),
    0x96: ("message rate too high", (_DISCONNECT,)),
    0x97: ("quota exceeded", (_CONNACK, _PUBACK, _PUBREC, _SUBACK, _DISCONNECT)),
    0x98: ("administrative action", (_DISCONNECT,)),
    0x99: ("payload format invalid", (_CONNACK, _PUBACK, _PUBREC, _DISCONNECT)),
    0x9A: ("retain not supported", (_CONNACK, _DISCONNECT)),
    0x9B: ("QoS not supported", (_CONNACK, _DISCONNECT)),
    0x9C: ("use another server", (_CONNACK, _DISCONNECT)),
    0x9D: ("server moved", (_CONNACK, _DISCONNECT)),
    0x9E: ("shared subscriptions not supported", (_SUBACK, _DISCONNECT)),
    0x9F: ("connection rate exceeded", (_CONNACK, _DISCONNECT)),
    0xA0: ("maximum connect time", (_DISCONNECT,)),
    0xA1: ("subscription identifiers not supported", (_SUBACK, _DISCONNECT)),
    0xA2: ("wildcard subscriptions not supported", (_SUBACK, _DISCONNECT)),
}

_NOTHING_ELSE = frozenset({SUCCESS})
_ALLOWED_IN_5 = {
    packet_type: frozenset(code for code, (_, carriers) in REASON_CODES.items() if packet_type in carriers)
    for packet_type in PacketType
}
_ALLOWED_IN_311 = {
    PacketType.CONNACK: frozenset(CONNECT_RETURN_CODES),
    PacketType.SUBACK: frozenset(SUBSCRIBE_RETURN_CODES),
}


def allowed_reasons(packet_type: PacketType, version: int) -> frozenset[int]:
    """The codes a packet of that type may carry; what 3.1.1 cannot say at all counts as success only."""
    if version == 5:
        return _ALLOWED_IN_5[packet_type]
    return _ALLOWED_IN_311.get(packet_type, _NOTHING_ELSE)


def reason_words(code: int, version: int, packet_type: PacketType = PacketType.CONNACK) -> str:
    """What a code in a packet of that type means, in words; unknown codes are named by number."""
    if version == 5:
        if code == SUCCESS and packet_type is PacketType.SUBACK:
            return "granted QoS 0"
        if code == SUCCESS and packet_type is PacketType.DISCONNECT:
            return "normal disconnection"
        words = REASON_CODES[code][0] if code in REASON_CODES else ""
    else:
        codes = SUBSCRIBE_RETURN_CODES if packet_type is PacketType.SUBACK else CONNECT_RETURN_CODES
        words = codes.get(code, "")
    return words or f"unknown reason 0x{code:02X}"
