"""MQTT 5 properties to bytes and back: one table says each property's number, form, limits and carriers.

Called by encode and decode. A property in a packet that may not carry it, or twice, is malformed in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from battlebrokers.protocols.mqtt import wire
from battlebrokers.protocols.mqtt.malformed import PROTOCOL_ERROR, TOPIC_ALIAS_INVALID, MalformedPacket
from battlebrokers.protocols.mqtt.packets import PacketType
from battlebrokers.protocols.mqtt.properties import EMPTY, Properties
from battlebrokers.protocols.mqtt.topics import check_topic
from battlebrokers.protocols.mqtt.varint import MAX_VARINT, encode_varint

Carrier = PacketType | Literal["will"]
Form = Literal["flag", "bit", "u16", "u32", "varint", "text", "topic", "binary", "pair"]
"""A `flag` is a byte 0/1 read as bool, a `bit` a byte 0/1 read as int, a `pair` two strings."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One property: its number, the field it fills, its form and who may carry it."""

    number: int
    name: str
    form: Form
    carriers: tuple[Carrier, ...]
    nonzero: bool = False
    many: tuple[Carrier, ...] = ()
    """Carriers in which it may occur more than once."""


_CONNECT, _CONNACK, _PUBLISH = PacketType.CONNECT, PacketType.CONNACK, PacketType.PUBLISH
_SUBSCRIBE, _DISCONNECT, _AUTH = PacketType.SUBSCRIBE, PacketType.DISCONNECT, PacketType.AUTH
_MESSAGES: tuple[Carrier, ...] = (_PUBLISH, "will")
_GREETINGS: tuple[Carrier, ...] = (_CONNECT, _CONNACK)
_EXPLAINED: tuple[Carrier, ...] = (
    _CONNACK,
    PacketType.PUBACK,
    PacketType.PUBREC,
    PacketType.PUBREL,
    PacketType.PUBCOMP,
    PacketType.SUBACK,
    PacketType.UNSUBACK,
    _DISCONNECT,
    _AUTH,
)
_ALL: tuple[Carrier, ...] = (*_EXPLAINED, _CONNECT, _PUBLISH, "will", _SUBSCRIBE, PacketType.UNSUBSCRIBE)

KINDS = (
    Kind(0x01, "payload_format", "bit", _MESSAGES),
    Kind(0x02, "message_expiry_s", "u32", _MESSAGES),
    Kind(0x03, "content_type", "text", _MESSAGES),
    Kind(0x08, "response_topic", "topic", _MESSAGES),
    Kind(0x09, "correlation_data", "binary", _MESSAGES),
    Kind(0x0B, "subscription_identifiers", "varint", (_PUBLISH, _SUBSCRIBE), nonzero=True, many=(_PUBLISH,)),
    Kind(0x11, "session_expiry_s", "u32", (*_GREETINGS, _DISCONNECT)),
    Kind(0x12, "assigned_client_id", "text", (_CONNACK,)),
    Kind(0x13, "server_keep_alive_s", "u16", (_CONNACK,)),
    Kind(0x15, "authentication_method", "text", (*_GREETINGS, _AUTH)),
    Kind(0x16, "authentication_data", "binary", (*_GREETINGS, _AUTH)),
    Kind(0x17, "request_problem_information", "flag", (_CONNECT,)),
    Kind(0x18, "will_delay_s", "u32", ("will",)),
    Kind(0x19, "request_response_information", "flag", (_CONNECT,)),
    Kind(0x1A, "response_information", "text", (_CONNACK,)),
    Kind(0x1C, "server_reference", "text", (_CONNACK, _DISCONNECT)),
    Kind(0x1F, "reason_string", "text", _EXPLAINED),
    Kind(0x21, "receive_maximum", "u16", _GREETINGS, nonzero=True),
    Kind(0x22, "topic_alias_maximum", "u16", _GREETINGS),
    Kind(0x23, "topic_alias", "u16", (_PUBLISH,), nonzero=True),
    Kind(0x24, "maximum_qos", "bit", (_CONNACK,)),
    Kind(0x25, "retain_available", "flag", (_CONNACK,)),
    Kind(0x26, "user_properties", "pair", _ALL, many=_ALL),
    Kind(0x27, "maximum_packet_bytes", "u32", _GREETINGS, nonzero=True),
    Kind(0x28, "wildcard_subscription_available", "flag", (_CONNACK,)),
    Kind(0x29, "subscription_identifiers_available", "flag", (_CONNACK,)),
    Kind(0x2A, "shared_subscription_available", "flag", (_CONNACK,)),
)
_BY_NUMBER = {kind.number: kind for kind in KINDS}
_LISTS = frozenset({"subscription_identifiers", "user_properties"})


def write_properties(properties: Properties, carrier: Carrier) -> bytes:
    """The property length and the properties."""
    if properties is EMPTY:
        return b"\0"
    parts: list[bytes] = []
    for kind in KINDS:
        value = getattr(properties, kind.name)
        values = value if kind.name in _LISTS else () if value is None else (value,)
        if not values:
            continue
        _check_carrier(kind, carrier)
        if len(values) > 1 and carrier not in kind.many:
            raise _twice(kind)
        for item in values:
            _check_value(kind, item)
            parts.append(bytes((kind.number,)) + _write(kind, item))
    written = b"".join(parts)
    return encode_varint(len(written)) + written


def read_properties(reader: wire.Reader, carrier: Carrier) -> Properties:
    """The properties at the reader's place."""
    return parse_properties(reader.take(reader.varint()), carrier)


def parse_properties(data: bytes, carrier: Carrier) -> Properties:
    """The properties in `data`, which follow their length."""
    block = wire.Reader(data)
    if not block.left:
        return EMPTY
    found: dict[str, list[object]] = {}
    while block.left:
        number = block.varint()
        kind = _BY_NUMBER.get(number)
        if kind is None:
            raise MalformedPacket(f"there is no property 0x{number:02X}")
        _check_carrier(kind, carrier)
        values = found.setdefault(kind.name, [])
        if values and carrier not in kind.many:
            raise _twice(kind)
        value = _read(kind, block)
        _check_value(kind, value)
        values.append(value)
    return Properties(**{name: tuple(values) if name in _LISTS else values[0] for name, values in found.items()})  # type: ignore[arg-type]


def _read(kind: Kind, block: wire.Reader) -> object:
    match kind.form:
        case "flag":
            byte = block.u8()
            return bool(byte) if byte < 2 else byte
        case "bit":
            return block.u8()
        case "u16":
            return block.u16()
        case "u32":
            return block.u32()
        case "varint":
            return block.varint()
        case "text" | "topic":
            return block.text()
        case "binary":
            return block.binary()
        case "pair":
            return block.text(), block.text()


def _write(kind: Kind, value: object) -> bytes:
    what = f"the property {kind.name}"
    match kind.form, value:
        case "flag" | "bit", int():
            return bytes((value,))
        case "u16", int():
            return wire.u16(value, what)
        case "u32", int():
            return wire.u32(value, what)
        case "varint", int() if 0 < value <= MAX_VARINT:
            return encode_varint(value)
        case "text" | "topic", str():
            return wire.text(value, what)
        case "binary", bytes():
            return wire.binary(value, what)
        case "pair", (str(name), str(content)):
            return wire.text(name, what) + wire.text(content, what)
    raise MalformedPacket(f"{what} cannot be {value!r:.80}")


def _check_value(kind: Kind, value: object) -> None:
    if kind.form in {"flag", "bit"} and value not in {0, 1}:
        raise MalformedPacket(f"the property {kind.name} is {value}, only 0 and 1 are defined", PROTOCOL_ERROR)
    if kind.nonzero and value == 0:
        reason = TOPIC_ALIAS_INVALID if kind.name == "topic_alias" else PROTOCOL_ERROR
        raise MalformedPacket(f"the property {kind.name} is 0", reason)
    if kind.form == "topic" and isinstance(value, str):
        check_topic(value)


def _check_carrier(kind: Kind, carrier: Carrier) -> None:
    if carrier not in kind.carriers:
        where = "a will" if isinstance(carrier, str) else carrier.name
        raise MalformedPacket(f"the property {kind.name} is not allowed in {where}", PROTOCOL_ERROR)


def _twice(kind: Kind) -> MalformedPacket:
    return MalformedPacket(f"the property {kind.name} occurs more than once", PROTOCOL_ERROR)
