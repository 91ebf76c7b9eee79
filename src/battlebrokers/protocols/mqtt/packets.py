"""The fifteen MQTT control packets of versions 3.1.1 and 5 as plain values.

Built by the link and by `decode`, written by `encode`. They hold what a packet says; they check nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from battlebrokers.protocols.mqtt.properties import EMPTY, Properties

V311 = 4
V5 = 5


class PacketType(IntEnum):
    """The upper four bits of a packet's first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


@dataclass(frozen=True, slots=True)
class WillMessage:
    """What the broker publishes when the client vanishes."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = EMPTY


@dataclass(frozen=True, slots=True)
class Connect:
    """A client's greeting; `version` is 4 (3.1.1) or 5."""

    client_id: str
    version: int = V311
    clean: bool = True
    keep_alive_s: int = 60
    username: str | None = None
    password: bytes | None = None
    will: WillMessage | None = None
    properties: Properties = EMPTY


@dataclass(frozen=True, slots=True)
class ConnAck:
    """The broker's answer to a greeting; `reason` is the return code in 3.1.1."""

    session_present: bool = False
    reason: int = 0
    properties: Properties = EMPTY


@dataclass(frozen=True, slots=True)
class Publish:
    """A message; `packet_id` is there exactly when `qos` is above 0."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int | None = None
    properties: Properties = EMPTY


@dataclass(frozen=True, slots=True)
class PubAck:
    """The answer to a QoS 1 message."""

    packet_id: int
    reason: int = 0
    properties: Properties = EMPTY


@dataclass(frozen=True, slots=True)
class PubRec:
    """The first answer to a QoS 2 message: received."""

    packet_id: int
    reason: int = 0
    properties: Properties = EMPTY


@dataclass(frozen=True, slots=True)
class PubRel:
    """The sender's answer to PubRec: release it."""

    packet_id: int
    reason: int = 0
    properties: Properties = EMPTY


@dataclass(frozen=True, slots=True)
class PubComp:
    """The last answer to a QoS 2 message: complete."""

    packet_id: int
    reason: int = 0
    properties: Properties = EMPTY


@dataclass(frozen=True, slots=True)
class FilterRequest:
    """One topic filter of a Subscribe; everything but `qos` is MQTT 5 only."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A request for topics."""

    packet_id: int
    filters: tuple[FilterRequest, ...]
    properties: Properties = EMPTY


@dataclass(frozen=True, slots=True)
class SubAck:
    """One answer for each filter of a Subscribe: the granted QoS or a failure (0x80 and above)."""

    packet_id: int
    reasons: tuple[int, ...]
    properties: Properties = EMPTY


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """A request to stop topics."""

    packet_id: int
    filters: tuple[str, ...]
    properties: Properties = EMPTY


@dataclass(frozen=True, slots=True)
class UnsubAck:
    """The answer to an Unsubscribe; `reasons` is empty in 3.1.1."""

    packet_id: int
    reasons: tuple[int, ...] = ()
    properties: Properties = EMPTY


@dataclass(frozen=True, slots=True)
class PingReq:
    """Are you there?"""


@dataclass(frozen=True, slots=True)
class PingResp:
    """I am."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Goodbye; in 3.1.1 only a client says it, and without a reason."""

    reason: int = 0
    properties: Properties = EMPTY


@dataclass(frozen=True, slots=True)
class Auth:
    """A step of extended authentication (MQTT 5 only)."""

    reason: int = 0
    properties: Properties = EMPTY


Acknowledgement = PubAck | PubRec | PubRel | PubComp

Packet = (
    Connect
    | ConnAck
    | Publish
    | PubAck
    | PubRec
    | PubRel
    | PubComp
    | Subscribe
    | SubAck
    | Unsubscribe
    | UnsubAck
    | PingReq
    | PingResp
    | Disconnect
    | Auth
)
