"""Bytes to packets, strict by the specifications of MQTT 3.1.1 and 5: the cold path.

Called with one complete frame. Raises MalformedPacket for anything invalid and never anything else.
"""

from __future__ import annotations

from collections.abc import Callable

from battlebrokers.protocols.mqtt import rules
from battlebrokers.protocols.mqtt.malformed import PROTOCOL_ERROR, UNSUPPORTED_VERSION, MalformedPacket
from battlebrokers.protocols.mqtt.packets import (
    V5,
    V311,
    Acknowledgement,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    FilterRequest,
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
    WillMessage,
)
from battlebrokers.protocols.mqtt.properties import EMPTY, Properties
from battlebrokers.protocols.mqtt.property_codec import Carrier, read_properties
from battlebrokers.protocols.mqtt.reasons import CONNECT_RETURN_CODES
from battlebrokers.protocols.mqtt.wire import Reader

__all__ = ["MalformedPacket", "decode"]


def decode(first_byte: int, body: bytes | memoryview, version: int) -> Packet:
    """The packet of one frame: its first byte and all behind the remaining length; CONNECT names its own version."""
    if first_byte < 0x10 or (first_byte >= 0xF0 and version != V5):
        raise MalformedPacket(f"there is no packet type {first_byte >> 4} in this version")
    packet_type = PacketType(first_byte >> 4)
    reader = Reader(bytes(body))
    if packet_type is PacketType.PUBLISH:
        return _publish(first_byte & 0x0F, reader, version)
    if first_byte & 0x0F != rules.FIXED_FLAGS[packet_type]:
        raise MalformedPacket(f"the reserved flags of {packet_type.name} are 0x{first_byte & 0x0F:X}")
    packet = _READERS[packet_type](reader, version)
    reader.done()
    rules.check(packet, packet.version if isinstance(packet, Connect) else version)
    return packet


def _properties(reader: Reader, carrier: Carrier, version: int) -> Properties:
    return read_properties(reader, carrier) if version == V5 else EMPTY


def _connect(reader: Reader, _version: int) -> Packet:
    name, version = reader.text(), reader.u8()
    if name != "MQTT" or version not in {V311, V5}:
        raise MalformedPacket(f"{name[:20]!r} version {version} is neither MQTT 3.1.1 nor 5", UNSUPPORTED_VERSION)
    flags = reader.u8()
    has_will, will_qos, will_retain = bool(flags & 0x04), flags >> 3 & 3, bool(flags & 0x20)
    if flags & 0x01:
        raise MalformedPacket("the reserved connect flag is set")
    if not has_will and (will_qos or will_retain):
        raise MalformedPacket("a will's QoS or retain flag is set, but there is no will")
    keep_alive_s = reader.u16()
    properties = _properties(reader, PacketType.CONNECT, version)
    client_id = reader.text()
    will = None
    if has_will:
        will_properties = _properties(reader, "will", version)
        will = WillMessage(reader.text(), reader.binary(), will_qos, will_retain, will_properties)
    return Connect(
        client_id,
        version,
        bool(flags & 0x02),
        keep_alive_s,
        reader.text() if flags & 0x80 else None,
        reader.binary() if flags & 0x40 else None,
        will,
        properties,
    )


def _connack(reader: Reader, version: int) -> Packet:
    flags, reason = reader.u8(), reader.u8()
    if flags & 0xFE:
        raise MalformedPacket("reserved acknowledge flags are set")
    if version == V5 and not reader.left and 0 < reason < len(CONNECT_RETURN_CODES):
        # Old brokers answer an MQTT 5 greeting in their own language; say so instead of "too short".
        words = CONNECT_RETURN_CODES[reason]
        raise MalformedPacket(f"the broker answered as MQTT 3.1.1: {words}", UNSUPPORTED_VERSION)
    return ConnAck(bool(flags), reason, _properties(reader, PacketType.CONNACK, version))


def _publish(flags: int, reader: Reader, version: int) -> Publish:
    qos = flags >> 1 & 3
    topic = reader.text()
    packet_id = reader.packet_id() if qos else None
    properties = _properties(reader, PacketType.PUBLISH, version)
    packet = Publish(topic, reader.rest(), qos, bool(flags & 0x01), bool(flags & 0x08), packet_id, properties)
    rules.check(packet, version)
    return packet


def _acknowledgement(kind: type[Acknowledgement]) -> Callable[[Reader, int], Packet]:
    carrier = PacketType[kind.__name__.upper()]

    def read(reader: Reader, version: int) -> Packet:
        packet_id = reader.packet_id()
        if version != V5 or not reader.left:
            return kind(packet_id)
        reason = reader.u8()
        return kind(packet_id, reason, read_properties(reader, carrier) if reader.left else EMPTY)

    return read


def _subscribe(reader: Reader, version: int) -> Packet:
    packet_id = reader.packet_id()
    properties = _properties(reader, PacketType.SUBSCRIBE, version)
    filters = []
    while reader.left:
        topic_filter, options = reader.text(), reader.u8()
        if options & (0xC0 if version == V5 else 0xFC):
            raise MalformedPacket("reserved subscription options are set")
        filters.append(
            FilterRequest(topic_filter, options & 3, bool(options & 0x04), bool(options & 0x08), options >> 4 & 3)
        )
    return Subscribe(packet_id, tuple(filters), properties)


def _suback(reader: Reader, version: int) -> Packet:
    packet_id = reader.packet_id()
    properties = _properties(reader, PacketType.SUBACK, version)
    return SubAck(packet_id, tuple(reader.rest()), properties)


def _unsubscribe(reader: Reader, version: int) -> Packet:
    packet_id = reader.packet_id()
    properties = _properties(reader, PacketType.UNSUBSCRIBE, version)
    filters = []
    while reader.left:
        filters.append(reader.text())
    return Unsubscribe(packet_id, tuple(filters), properties)


def _unsuback(reader: Reader, version: int) -> Packet:
    packet_id = reader.packet_id()
    if version != V5:
        return UnsubAck(packet_id)
    properties = read_properties(reader, PacketType.UNSUBACK)
    return UnsubAck(packet_id, tuple(reader.rest()), properties)


def _disconnect(reader: Reader, version: int) -> Packet:
    if version != V5 or not reader.left:
        return Disconnect()
    return Disconnect(reader.u8(), read_properties(reader, PacketType.DISCONNECT) if reader.left else EMPTY)


def _auth(reader: Reader, _version: int) -> Packet:
    if not reader.left:
        return Auth()
    packet = Auth(reader.u8(), read_properties(reader, PacketType.AUTH))
    if packet.properties.authentication_method is None:
        raise MalformedPacket("AUTH does not name its authentication method", PROTOCOL_ERROR)
    return packet


_READERS: dict[PacketType, Callable[[Reader, int], Packet]] = {
    PacketType.CONNECT: _connect,
    PacketType.CONNACK: _connack,
    PacketType.PUBACK: _acknowledgement(PubAck),
    PacketType.PUBREC: _acknowledgement(PubRec),
    PacketType.PUBREL: _acknowledgement(PubRel),
    PacketType.PUBCOMP: _acknowledgement(PubComp),
    PacketType.SUBSCRIBE: _subscribe,
    PacketType.SUBACK: _suback,
    PacketType.UNSUBSCRIBE: _unsubscribe,
    PacketType.UNSUBACK: _unsuback,
    PacketType.PINGREQ: lambda _reader, _version: PingReq(),
    PacketType.PINGRESP: lambda _reader, _version: PingResp(),
    PacketType.DISCONNECT: _disconnect,
    PacketType.AUTH: _auth,
}
