"""What one MQTT client says, and our answers: greeting, publishing, subscribing, leaving. Versions 3.1.1 and 5.

Heard by its `Connection`; whatever concerns others goes to the `House`. Opens no socket and keeps no session.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Coroutine
from typing import Any, Final, Protocol

from battlebrokers.protocols.mqtt.malformed import (
    CLIENT_ID_INVALID,
    PROTOCOL_ERROR,
    TOPIC_ALIAS_INVALID,
    UNSUPPORTED_VERSION,
    MalformedPacket,
)
from battlebrokers.protocols.mqtt.packets import (
    V5,
    V311,
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
from battlebrokers.protocols.mqtt.reasons import DISCONNECT_WITH_WILL, allowed_reasons
from battlebrokers.sdn.gateway.connection import Connection
from battlebrokers.sdn.gateway.counters import Counters
from battlebrokers.sdn.gateway.settings import Limits, NotForwarded

_LOG = logging.getLogger(__name__)

REFUSED_311: Final = 0x80
NO_SUBSCRIPTION: Final = 0x11
IMPLEMENTATION: Final = 0x83
BAD_METHOD: Final = 0x8C
KEEP_ALIVE: Final = 0x8D
TAKEN_OVER: Final = 0x8E
RECEIVE_MAXIMUM: Final = 0x93
NO_ROOM: Final = 0x97
NO_SHARING: Final = 0x9E
NO_IDENTIFIERS: Final = 0xA1
_IN_311: Final = {UNSUPPORTED_VERSION: 1, CLIENT_ID_INVALID: 2, NO_ROOM: 3, BAD_METHOD: 5}


class House(Protocol):
    """What a guest needs of the gateway."""

    limits: Limits
    counters: Counters

    def admit(self, guest: Guest, client_id: str) -> str | None:
        """Let a client in, instead of another of that name; the name it has, or None when there is no room."""
        ...

    def publish(self, topic: str, payload: bytes, retain_s: float | None) -> Awaitable[None] | None:
        """Send to the network, and keep for so long; None when it is out already. Raises `NotForwarded`."""
        ...

    async def subscribe(self, guest: Guest, request: FilterRequest) -> bool:
        """In effect when it returns; whether it is new. Raises `NotForwarded`."""
        ...

    def tell_retained(self, guest: Guest, topic_filter: str) -> None:
        """What was kept for new subscribers."""
        ...

    def unsubscribe(self, guest: Guest, topic_filter: str) -> bool:
        """Whether there was such a subscription."""
        ...

    def depart(self, guest: Guest, will: WillMessage | None) -> None:
        """A client is gone; a will is to be published."""
        ...


class Guest:
    """One client, from its greeting on."""

    def __init__(self, house: House, connection: Connection) -> None:
        self._house = house
        self._connection = connection
        self._welcome = False
        self._gone = False
        self._will: WillMessage | None = None
        self._unreleased: set[int] = set()
        self._complained = False
        self._largest_frame: int | None = None
        self._wants_words = True
        self.client_id = ""

    @property
    def version(self) -> int:
        """Of MQTT: 4 is 3.1.1."""
        return self._connection.version

    def deliver(self, frame: bytes) -> bool:
        """Hand a message over; False when it is lost because the client is slow, or wants none so large."""
        if self._largest_frame is not None and len(frame) > self._largest_frame:
            return False
        return self._connection.deliver(frame)

    def end(self, reason: int) -> None:
        """Send it away; its will is published."""
        if self._welcome and self.version == V5:
            allowed = reason in allowed_reasons(PacketType.DISCONNECT, V5)
            self._connection.say(Disconnect(reason if allowed else PROTOCOL_ERROR))
        self._leave(with_will=True)
        self._connection.close()

    # what the connection tells

    def hear(self, packet: Packet) -> Coroutine[Any, Any, None] | None:
        """One packet; what is returned must be over before the next one."""
        if not self._welcome:
            if not isinstance(packet, Connect):
                raise MalformedPacket("the first packet is no CONNECT", PROTOCOL_ERROR)
            self._greet(packet)
            return None
        match packet:
            case Publish():
                return self._publish(packet)
            case PubRel():
                known = packet.packet_id in self._unreleased
                self._unreleased.discard(packet.packet_id)
                self._connection.say(PubComp(packet.packet_id, 0 if known or self.version == V311 else 0x92))
            case Subscribe():
                return self._subscribe(packet)
            case Unsubscribe():
                self._unsubscribe(packet)
            case PingReq():
                self._connection.say(PingResp())
            case Disconnect():
                self._leave(with_will=packet.reason == DISCONNECT_WITH_WILL)
                self._connection.close()
            case _:
                raise MalformedPacket(f"a client does not say {type(packet).__name__} here", PROTOCOL_ERROR)
        return None

    def complain(self, fault: MalformedPacket, frame: bytes) -> None:
        """Bytes that are no MQTT; the connection is to end."""
        _LOG.info("%s %r: %s", self._connection.peer, self.client_id, fault)
        if self._welcome:
            self._house.counters.malformed += 1
            self.end(fault.reason)
        elif fault.reason in (UNSUPPORTED_VERSION, CLIENT_ID_INVALID) and (version := _level(frame)):
            self._connection.version = V5 if version >= V5 else V311
            self._refuse(fault.reason)
        else:
            self._house.counters.malformed += 1

    def silent(self) -> None:
        """Nothing came for too long."""
        self._house.counters.silent += 1
        self.end(KEEP_ALIVE)

    def lost(self) -> None:
        """The connection is gone."""
        self._leave(with_will=True)

    # within

    def _greet(self, packet: Connect) -> None:
        self._connection.version = packet.version
        if packet.properties.authentication_method is not None:
            self._refuse(BAD_METHOD)
            return
        client_id = self._house.admit(self, packet.client_id)
        if client_id is None:
            self._refuse(NO_ROOM)
            return
        self.client_id, self._will, self._welcome = client_id, packet.will, True
        self._largest_frame = packet.properties.maximum_packet_bytes
        self._wants_words = packet.properties.request_problem_information is not False and not self._largest_frame
        told = EMPTY
        if packet.version == V5:
            told = Properties(
                session_expiry_s=0 if packet.properties.session_expiry_s else None,
                assigned_client_id=client_id if not packet.client_id else None,
                receive_maximum=self._house.limits.unreleased,
                maximum_packet_bytes=self._house.limits.packet_bytes,
                subscription_identifiers_available=False,
                shared_subscription_available=False,
            )
        self._connection.say(ConnAck(properties=told))
        self._connection.keep_alive(packet.keep_alive_s)

    def _refuse(self, reason: int) -> None:
        self._house.counters.refused += 1
        self._connection.say(ConnAck(reason=reason if self.version == V5 else _IN_311[reason]))
        self._connection.close()

    def _publish(self, packet: Publish) -> Coroutine[Any, Any, None] | None:
        if packet.properties.topic_alias is not None:
            raise MalformedPacket("no topic alias was offered", TOPIC_ALIAS_INVALID)
        if packet.qos == 2 and packet.packet_id in self._unreleased:
            self._connection.say(PubRec(packet.packet_id))
            return None
        if packet.qos == 2 and len(self._unreleased) >= self._house.limits.unreleased:
            raise MalformedPacket("too many QoS 2 messages are not released", RECEIVE_MAXIMUM)
        try:
            pending = self._house.publish(packet.topic, packet.payload, _retain_s(packet.retain, packet.properties))
        except NotForwarded as why:
            self._not_forwarded(packet, why)
            return None
        if pending is None:
            self._acknowledge(packet)
            return None
        return self._publish_later(packet, pending)

    async def _publish_later(self, packet: Publish, pending: Awaitable[None]) -> None:
        try:
            await pending
        except NotForwarded as why:
            self._not_forwarded(packet, why)
        else:
            self._acknowledge(packet)

    def _acknowledge(self, packet: Publish) -> None:
        if packet.packet_id is None:
            return
        if packet.qos == 1:
            self._connection.say(PubAck(packet.packet_id))
        else:
            self._unreleased.add(packet.packet_id)
            self._connection.say(PubRec(packet.packet_id))

    def _not_forwarded(self, packet: Publish, why: NotForwarded) -> None:
        self._house.counters.not_forwarded[why.kind] += 1
        self._tell_once(
            f"a message of client {self.client_id!r} on {packet.topic[:80]!r} is not forwarded: {why.words}"
        )
        if packet.packet_id is None:
            return
        if self.version == V5:
            answer = PubAck if packet.qos == 1 else PubRec
            words = Properties(reason_string=why.words) if self._wants_words else EMPTY
            self._connection.say(answer(packet.packet_id, IMPLEMENTATION, words))
        else:
            # 3.1.1 has no word for "no", and an acknowledgement would say that the datagram is out.
            self.end(IMPLEMENTATION)

    async def _subscribe(self, packet: Subscribe) -> None:
        reasons, tell = [], []
        for request in packet.filters:
            reason = self._objection(packet, request)
            if not reason:
                try:
                    new = await self._house.subscribe(self, request)
                except NotForwarded as why:
                    self._tell_once(f"client {self.client_id!r} does not get {request.filter[:80]!r}: {why.words}")
                    reason = IMPLEMENTATION
                else:
                    if request.retain_handling == 0 or (request.retain_handling == 1 and new):
                        tell.append(request.filter)
            reasons.append(reason)
        if self.version == V311:
            reasons = [REFUSED_311 if reason else 0 for reason in reasons]
        if self._gone:
            return
        self._connection.say(SubAck(packet.packet_id, tuple(reasons)))
        for topic_filter in tell:
            self._house.tell_retained(self, topic_filter)

    def _objection(self, packet: Subscribe, request: FilterRequest) -> int:
        """The reason to refuse a filter, or 0: what the network cannot honour is not promised."""
        if self.version == V5:
            if packet.properties.subscription_identifiers:
                return NO_IDENTIFIERS
            if request.filter.startswith("$share/"):
                return NO_SHARING
        # Copies from the network say neither who published them nor whether to retain them.
        return IMPLEMENTATION if request.no_local or request.retain_as_published else 0

    def _unsubscribe(self, packet: Unsubscribe) -> None:
        ended = [self._house.unsubscribe(self, one) for one in packet.filters]
        reasons = tuple(0 if one else NO_SUBSCRIPTION for one in ended) if self.version == V5 else ()
        self._connection.say(UnsubAck(packet.packet_id, reasons))

    def _tell_once(self, words: str) -> None:
        # Else a client could fill a disk.
        _LOG.log(logging.DEBUG if self._complained else logging.WARNING, "%s", words)
        self._complained = True

    def _leave(self, *, with_will: bool) -> None:
        if self._welcome and not self._gone:
            self._gone = True
            self._house.depart(self, self._will if with_will else None)


def _retain_s(retain: bool, properties: Properties) -> float | None:
    if not retain:
        return None
    return float("inf") if properties.message_expiry_s is None else float(properties.message_expiry_s)


def retain_of(will: WillMessage) -> float | None:
    """For how long a will is kept; None: not at all."""
    return _retain_s(will.retain, will.properties)


def _level(frame: bytes) -> int:
    """The protocol level in a CONNECT of whatever version, 0 when it is none."""
    for name in (b"\0\4MQTT", b"\0\6MQIsdp"):
        at = frame.find(name, 0, 16)
        if at >= 0 and at + len(name) < len(frame):
            return frame[at + len(name)]
    return 0
