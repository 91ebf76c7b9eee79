"""Packets to bytes, for MQTT 3.1.1 and 5: the cold path, and the truth the link's bulk builders are tested against.

Refuses (MalformedPacket) what the specification forbids, so that a wrong packet is our error, not the broker's.
"""

from __future__ import annotations

from battlebrokers.protocols.mqtt import rules, wire
from battlebrokers.protocols.mqtt.packets import (
    V5,
    Acknowledgement,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PacketType,
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
)
from battlebrokers.protocols.mqtt.properties import EMPTY, Properties
from battlebrokers.protocols.mqtt.property_codec import Carrier, write_properties
from battlebrokers.protocols.mqtt.varint import encode_varint


def encode(packet: Packet, version: int) -> bytes:
    """The whole frame of `packet`; a Connect carries its own version, which wins."""
    if isinstance(packet, Connect):
        version = packet.version
    rules.check(packet, version)
    body = _body(packet, version)
    return bytes((_first_byte(packet),)) + encode_varint(len(body)) + body


def _first_byte(packet: Packet) -> int:
    if isinstance(packet, Publish):
        return PacketType.PUBLISH << 4 | packet.dup << 3 | packet.qos << 1 | packet.retain
    packet_type = rules.packet_type_of(packet)
    return packet_type << 4 | rules.FIXED_FLAGS[packet_type]


def _body(packet: Packet, version: int) -> bytes:
    match packet:
        case Connect():
            return _connect(packet)
        case ConnAck():
            head = bytes((packet.session_present, packet.reason))
            return head + _properties(packet.properties, PacketType.CONNACK, version)
        case Publish():
            head = wire.text(packet.topic, "the topic") + (wire.packet_id(packet.packet_id) if packet.qos else b"")
            return head + _properties(packet.properties, PacketType.PUBLISH, version) + packet.payload
        case PubAck() | PubRec() | PubRel() | PubComp():
            return _acknowledgement(packet)
        case Subscribe():
            head = wire.packet_id(packet.packet_id) + _properties(packet.properties, PacketType.SUBSCRIBE, version)
            return head + b"".join(
                wire.text(request.filter, "a topic filter")
                + bytes(
                    (
                        request.retain_handling << 4
                        | request.retain_as_published << 3
                        | request.no_local << 2
                        | request.qos,
                    )
                )
                for request in packet.filters
            )
        case Unsubscribe():
            head = wire.packet_id(packet.packet_id) + _properties(packet.properties, PacketType.UNSUBSCRIBE, version)
            return head + b"".join(wire.text(topic_filter, "a topic filter") for topic_filter in packet.filters)
        case SubAck() | UnsubAck():
            carrier = rules.packet_type_of(packet)
            head = wire.packet_id(packet.packet_id) + _properties(packet.properties, carrier, version)
            return head + bytes(packet.reasons)
        case Disconnect() | Auth():
            return _farewell(packet)
        case PingReq() | PingResp():
            return b""


def _properties(properties: Properties, carrier: Carrier, version: int) -> bytes:
    return write_properties(properties, carrier) if version == V5 else b""


def _connect(packet: Connect) -> bytes:
    will, version = packet.will, packet.version
    flags = packet.clean << 1 | (packet.password is not None) << 6 | (packet.username is not None) << 7
    if will is not None:
        flags |= 0x04 | will.qos << 3 | will.retain << 5
    parts = [
        b"\0\4MQTT",
        bytes((version, flags)),
        wire.u16(packet.keep_alive_s, "the keep alive"),
        _properties(packet.properties, PacketType.CONNECT, version),
        wire.text(packet.client_id, "the client identifier"),
    ]
    if will is not None:
        parts.append(_properties(will.properties, "will", version))
        parts.append(wire.text(will.topic, "the will's topic"))
        parts.append(wire.binary(will.payload, "the will's payload"))
    if packet.username is not None:
        parts.append(wire.text(packet.username, "the user name"))
    if packet.password is not None:
        parts.append(wire.binary(packet.password, "the password"))
    return b"".join(parts)


def _acknowledgement(packet: Acknowledgement) -> bytes:
    # The short forms of MQTT 5 are the 3.1.1 form; `rules` made sure that 3.1.1 has nothing more to say.
    head = wire.packet_id(packet.packet_id)
    if packet.properties != EMPTY:
        return head + bytes((packet.reason,)) + write_properties(packet.properties, rules.packet_type_of(packet))
    return head + bytes((packet.reason,)) if packet.reason else head


def _farewell(packet: Disconnect | Auth) -> bytes:
    if packet.properties == EMPTY and not packet.reason:
        return b""
    return bytes((packet.reason,)) + write_properties(packet.properties, rules.packet_type_of(packet))
