"""What a packet may say, whoever wrote it: the rules of MQTT 3.1.1 and 5 that go beyond its byte layout.

Called by encode before writing and by decode after reading, so both sides obey one list. Raises MalformedPacket.
"""

from __future__ import annotations

from battlebrokers.protocols.mqtt.malformed import CLIENT_ID_INVALID, PROTOCOL_ERROR, MalformedPacket
from battlebrokers.protocols.mqtt.packets import (
    V5,
    V311,
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
    WillMessage,
)
from battlebrokers.protocols.mqtt.properties import EMPTY
from battlebrokers.protocols.mqtt.reasons import DISCONNECT_WITH_WILL, allowed_reasons
from battlebrokers.protocols.mqtt.topics import check_filter, check_topic

FIXED_FLAGS: dict[PacketType, int] = {
    packet_type: 0 for packet_type in PacketType if packet_type is not PacketType.PUBLISH
}
for _packet_type in (PacketType.PUBREL, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE):
    FIXED_FLAGS[_packet_type] = 0b0010


def packet_type_of(packet: Packet) -> PacketType:
    """The type number of a packet."""
    return PacketType[type(packet).__name__.upper()]


def check(packet: Packet, version: int) -> None:
    """Complain when `packet` breaks a rule of that version."""
    if version not in {V311, V5}:
        raise MalformedPacket(f"{version} is not a protocol level we speak (4 or 5)")
    if version == V311 and getattr(packet, "properties", EMPTY) != EMPTY:
        raise MalformedPacket("MQTT 3.1.1 has no properties")
    match packet:
        case Connect():
            _check_connect(packet, version)
        case Publish():
            _check_publish(packet, version)
        case Subscribe():
            _check_subscribe(packet, version)
        case Unsubscribe():
            if not packet.filters:
                raise MalformedPacket("UNSUBSCRIBE names no topic filter", PROTOCOL_ERROR)
            for topic_filter in packet.filters:
                check_filter(topic_filter, version)
        case SubAck():
            _check_reasons(packet.reasons, PacketType.SUBACK, version)
        case UnsubAck() if version == V5:
            _check_reasons(packet.reasons, PacketType.UNSUBACK, version)
        case UnsubAck():
            if packet.reasons:
                raise MalformedPacket("UNSUBACK has no reason codes in MQTT 3.1.1")
        case ConnAck():
            _check_reason(packet.reason, PacketType.CONNACK, version)
            if packet.reason and packet.session_present:
                raise MalformedPacket("a refused connection cannot have a session", PROTOCOL_ERROR)
        case PubAck() | PubRec() | PubRel() | PubComp() | Disconnect():
            _check_reason(packet.reason, packet_type_of(packet), version)
        case Auth():
            _check_auth(packet, version)
        case PingReq() | PingResp():
            pass


def check_brokers_goodbye(packet: Disconnect) -> None:
    """Complain about what only a client may say in DISCONNECT."""
    if packet.properties.session_expiry_s is not None:
        raise MalformedPacket("a broker's DISCONNECT carries a session expiry interval", PROTOCOL_ERROR)
    if packet.reason == DISCONNECT_WITH_WILL:
        raise MalformedPacket("a broker's DISCONNECT asks for a will to be published", PROTOCOL_ERROR)


def _check_connect(packet: Connect, version: int) -> None:
    if version == V311 and packet.password is not None and packet.username is None:
        raise MalformedPacket("MQTT 3.1.1 allows no password without a user name")
    if version == V311 and not packet.client_id and not packet.clean:
        raise MalformedPacket("an empty client identifier needs a clean session in MQTT 3.1.1", CLIENT_ID_INVALID)
    properties = packet.properties
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise MalformedPacket("authentication data without an authentication method", PROTOCOL_ERROR)
    if packet.will is not None:
        _check_will(packet.will, version)


def _check_will(will: WillMessage, version: int) -> None:
    if will.qos not in {0, 1, 2}:
        raise MalformedPacket(f"the will's QoS is {will.qos}")
    if version == V311 and will.properties != EMPTY:
        raise MalformedPacket("MQTT 3.1.1 has no properties")
    check_topic(will.topic)


def _check_publish(packet: Publish, version: int) -> None:
    if packet.qos not in {0, 1, 2}:
        raise MalformedPacket(f"PUBLISH has QoS {packet.qos}")
    if packet.qos == 0 and packet.dup:
        raise MalformedPacket("a QoS 0 message cannot be a duplicate")
    if (packet.packet_id is None) != (packet.qos == 0):
        raise MalformedPacket("a packet identifier belongs to QoS 1 and 2, and only to them")
    if packet.topic or version == V311:
        check_topic(packet.topic)
    elif packet.properties.topic_alias is None:
        raise MalformedPacket("PUBLISH has neither topic nor topic alias", PROTOCOL_ERROR)


def _check_subscribe(packet: Subscribe, version: int) -> None:
    if not packet.filters:
        raise MalformedPacket("SUBSCRIBE names no topic filter", PROTOCOL_ERROR)
    for request in packet.filters:
        if request.qos not in {0, 1, 2}:
            raise MalformedPacket(f"a subscription asks for QoS {request.qos}")
        if request.retain_handling not in {0, 1, 2}:
            raise MalformedPacket(f"retain handling is {request.retain_handling}, at most 2 is defined", PROTOCOL_ERROR)
        if version == V311 and (request.no_local or request.retain_as_published or request.retain_handling):
            raise MalformedPacket("MQTT 3.1.1 knows no subscription option but the QoS")
        check_filter(request.filter, version, no_local=request.no_local)


def _check_auth(packet: Auth, version: int) -> None:
    if version != V5:
        raise MalformedPacket("MQTT 3.1.1 has no AUTH packet")
    _check_reason(packet.reason, PacketType.AUTH, version)
    # Only the empty AUTH, which means success without properties, may leave the method out.
    if packet != Auth() and packet.properties.authentication_method is None:
        raise MalformedPacket("AUTH does not name its authentication method", PROTOCOL_ERROR)


def _check_reasons(reasons: tuple[int, ...], packet_type: PacketType, version: int) -> None:
    if not reasons:
        raise MalformedPacket(f"{packet_type.name} answers nothing", PROTOCOL_ERROR)
    for reason in reasons:
        _check_reason(reason, packet_type, version)


def _check_reason(reason: int, packet_type: PacketType, version: int) -> None:
    if reason not in allowed_reasons(packet_type, version):
        raise MalformedPacket(f"{packet_type.name} cannot carry reason 0x{reason:02X}", PROTOCOL_ERROR)
