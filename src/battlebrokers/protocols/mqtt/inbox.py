"""What a connection hears: bytes to frames, frames to messages and acknowledgements, and the answers they want.

Base class of `Connection`. The bulk paths take whole chunks as arrays, the path for single frames keeps every check;
both tell the same. It never raises into the event loop: bytes that make no sense end the connection and are told.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from battlebrokers.protocols.base import Basket, Completion
from battlebrokers.protocols.mqtt.decode import decode
from battlebrokers.protocols.mqtt.framing import equal_frames, split_frames
from battlebrokers.protocols.mqtt.malformed import PROTOCOL_ERROR, TOPIC_ALIAS_INVALID, MalformedPacket
from battlebrokers.protocols.mqtt.oversized import Skipping
from battlebrokers.protocols.mqtt.packets import (
    V5,
    ConnAck,
    Disconnect,
    PacketType,
    PingResp,
    SubAck,
    UnsubAck,
)
from battlebrokers.protocols.mqtt.reasons import FIRST_FAILURE, reason_words
from battlebrokers.protocols.mqtt.receiving import (
    MANY,
    MANY_EQUAL,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Bulk,
    Frame,
    acknowledgement,
    acknowledgements,
    all_acknowledgements,
    equal_acknowledgements,
    equal_publishes,
    frame_table,
    mixed_publishes,
    properties_of,
    read_acknowledgement,
    read_publish,
)
from battlebrokers.protocols.mqtt.rules import check_brokers_goodbye
from battlebrokers.protocols.mqtt.topics import known_topics, learn_topic
from battlebrokers.protocols.wheel import Wheel
from battlebrokers.tables.message_header import HEADER_BYTES, VERSION

if TYPE_CHECKING:
    from battlebrokers.protocols.mqtt.link import MqttLink

SHORT_BYTES = 130
"""Shorter frames tell their length in one byte."""
FEW_BYTES = SHORT_BYTES * MANY_EQUAL
OURS = bytes([VERSION])
"""What payloads begin with that carry our header."""


class Inbox(Skipping):
    """The receiving half of a connection."""

    __slots__ = (
        "aliases",
        "alike_bytes",
        "alike_kind",
        "heard_tick",
        "ping_tick",
        "put",
        "usual",
        "usual_topic",
        "wheel",
    )

    put: Callable[[int, bytes], None]
    """The basket's; there with `alike`."""

    def __init__(self, link: MqttLink, wheel: Wheel, welcome: asyncio.Future[None]) -> None:
        self.link = link
        self.wheel = wheel
        self.welcome: asyncio.Future[None] | None = welcome
        """Waits for CONNACK; None once it came."""
        self.gone = False
        """Nothing that happens here concerns the link any more."""
        self.tail: bytes | bytearray | None = None
        """The beginning of a frame whose rest has not come yet."""
        self.wanted_bytes = 0
        """How long `tail` must become to be worth another look."""
        self.skip_bytes = 0
        self.aliases: dict[int, bytes] | None = None
        """Topics the broker named by number."""
        self.usual: bytes | None = None
        """What the last single QoS 0 message began with, up to its payload; most messages of a client begin alike."""
        self.usual_topic = b""
        self.alike: bytes | None = None
        """What messages begin with that go into the link's basket, up to the first byte of our header; None while
        there are none, when a frame is incomplete, and when we are gone."""
        self.alike_bytes = self.alike_kind = 0
        self.heard_tick = wheel.tick
        self.ping_tick = 0
        """When the PINGREQ was sent that is not answered yet; 0 when none."""

    @abstractmethod
    def send(self, data: bytes) -> None:
        """Write and note that we spoke."""

    @abstractmethod
    def answer(self, frames: bytes) -> None:
        """Write acknowledgements of received messages, unless these were too many at once."""

    @abstractmethod
    def welcomed(self, answer: ConnAck, at_ns: int) -> None:
        """CONNACK came."""

    @abstractmethod
    def fail(self, fault: MalformedPacket) -> None:
        """The broker sent nonsense: tell it, then end."""

    @abstractmethod
    def end(self, detail: str, reason: int) -> None:
        """Drop the socket and tell the link, once."""

    def data_received(self, data: bytes) -> None:
        """Bytes came in: everything in them arrived now."""
        # With thousands of clients most chunks are one short frame, or a few, much like the one before.
        alike = self.alike
        if alike is not None and data.startswith(alike):
            self.heard_tick = self.wheel.tick
            if len(data) == self.alike_bytes:
                self.put(self.alike_kind, data)
                return
            if len(data) < FEW_BYTES and self._put_few(data, alike):
                return
        if self.gone:
            return
        at_ns = self.link.listener.now_ns()
        self.heard_tick = self.wheel.tick
        size = len(data)
        usual = self.usual
        if usual is not None and self.tail is None and data.startswith(usual):
            if usual[1] + 2 == size:
                link = self.link
                payload = data[len(usual) :]
                if link.basket is not None and payload[:1] == OURS and len(payload) >= HEADER_BYTES:
                    self._learn(link.basket, usual, len(payload), size)
                link.listener.arrived(link, at_ns, usual[0] & 0x0F, self.usual_topic, payload, size)
                return
            if size < FEW_BYTES and self._take_usual(data, size, usual, at_ns):
                return
        try:
            if 1 < size < SHORT_BYTES and data[1] + 2 == size and self.tail is None and self.welcome is None:
                self._take_each(data, ((0, 2, size),), at_ns)
            else:
                self.receive(data, at_ns)
        except MalformedPacket as fault:
            self.fail(fault)

    def _learn(self, basket: Basket, usual: bytes, payload_bytes: int, size: int) -> None:
        """From here on messages like this one go into the basket."""
        self.alike, self.alike_bytes, self.put = usual + OURS, size, basket.put
        # The length takes one byte and the topic's own length two.
        self.alike_kind = basket.kind_of(self.link, usual[0] & 0x0F, payload_bytes, size, 4, self.usual_topic)

    def _put_few(self, data: bytes, alike: bytes) -> bool:
        """Few messages for the basket in one chunk; False when anything is different."""
        size, step = len(data), self.alike_bytes
        starts = range(0, size, step)
        basket = self.link.basket
        if size % step or len(starts) >= MANY_EQUAL or basket is None:
            return False
        for start in starts:
            if not data.startswith(alike, start):
                return False
        basket.put_few(self.alike_kind, data, len(starts))
        return True

    def _take_usual(self, data: bytes, size: int, usual: bytes, at_ns: int) -> bool:
        """Few messages that begin as the last one did and are as long; False when anything is different."""
        step = usual[1] + 2
        starts = range(0, size, step)
        if size % step or len(starts) >= MANY_EQUAL:
            return False
        for start in starts:
            if not data.startswith(usual, start):
                return False
        link = self.link
        tell = link.listener.arrived
        flags, topic, head = usual[0] & 0x0F, self.usual_topic, len(usual)
        for start in starts:
            if not self.gone:
                tell(link, at_ns, flags, topic, data[start + head : start + step], step)
        return True

    def receive(self, data: bytes, at_ns: int) -> None:
        """Take MQTT bytes apart and act on every complete frame; keeps the rest."""
        if self.skip_bytes and not (data := self.behind_skipped(data)):
            return
        tail = self.tail
        if tail is not None:
            # A large message comes in many chunks: they are appended in place, and copied out once.
            if isinstance(tail, bytearray):
                tail += data
                if len(tail) < self.wanted_bytes:
                    return
                data = bytes(tail)
            elif len(tail) + len(data) < self.wanted_bytes:
                self.tail = bytearray(tail) + data
                return
            else:
                data = tail + data
            self.tail = None
        if self.welcome is not None and data[0] >> 4 != PacketType.CONNACK:
            raise MalformedPacket(f"the broker did not answer with CONNACK but with {data[:16]!r}", PROTOCOL_ERROR)
        start = 0
        size = len(data)
        # Worth a look only where enough frames as long as the first would fit.
        while start + 1 < size and (data[start + 1] + 2) * MANY_EQUAL <= size - start:
            # Mostly all are on one topic; then one comparison serves for frames and topics.
            equal = equal_frames(data, start)
            same_topic = equal is not None and equal[0] == (size - start) // equal[1]
            if not same_topic:
                equal = equal_frames(data, start, same_topic=False)
            if equal is None or equal[1] > self.link.options.largest_bytes:
                break
            if not self._take_equal(data, start, *equal, at_ns, same_topic=same_topic):
                break
            start += equal[0] * equal[1]
        if start == size or self.gone:
            return
        frames, consumed, wanted_bytes, fault = split_frames(
            data, start, self.link.options.largest_bytes, self.link.version
        )
        if len(frames) < MANY or not self._take_many(data, frames, at_ns):
            self._take_each(data, frames, at_ns)
        if fault is not None:
            self.skip(data, consumed, fault, at_ns)
        elif consumed < size:
            self.tail = data[consumed:]
            self.alike = None
            self.wanted_bytes = wanted_bytes

    def _take_equal(
        self, data: bytes, start: int, count: int, frame_bytes: int, body_offset: int, at_ns: int, *, same_topic: bool
    ) -> bool:
        link = self.link
        first_byte = data[start]
        if first_byte & 0xF0 == 0x30:
            bulk = equal_publishes(
                data, start, count, frame_bytes, body_offset, link.version, link.accepts_aliases, same_topic=same_topic
            )
            return self._deliver(bulk, at_ns)
        if body_offset != 2 or (frame_bytes != 4 and link.version != V5):
            return False
        if first_byte not in (PUBACK, PUBREC, PUBREL, PUBCOMP):
            return False
        read = equal_acknowledgements(data, start, count, frame_bytes)
        if read is None or (read[1] >= FIRST_FAILURE and first_byte != PUBREL):
            return False
        ids, reason = read
        session = link.session
        if first_byte == PUBACK:
            link.acknowledged(session.acknowledge(ids), at_ns, Completion.ACKED, reason)
        elif first_byte == PUBCOMP:
            link.acknowledged(session.complete(ids), at_ns, Completion.ACKED, reason)
        elif first_byte == PUBREC:
            session.receive(ids)
            self.send(acknowledgements(PUBREL, ids))
        else:
            session.release(ids)
            self.send(acknowledgements(PUBCOMP, ids))
        return True

    def _take_many(self, data: bytes, frames: list[Frame], at_ns: int) -> bool:
        version, aliases = self.link.version, self.link.accepts_aliases
        table, first_bytes = frame_table(data, frames)
        publishes = first_bytes & 0xF0 == 0x30
        messages = np.count_nonzero(publishes)
        if messages == len(frames):
            return self._deliver(mixed_publishes(data, table, first_bytes, version, aliases), at_ns)
        # Acknowledgements between messages may be taken behind them: a conflict (an id released and used again in
        # one chunk) makes `_deliver` refuse. Anything else must stay in its place.
        others = ~publishes
        if messages < MANY or not all_acknowledgements(data, table[others], first_bytes[others]):
            return False
        if not self._deliver(mixed_publishes(data, table[publishes], first_bytes[publishes], version, aliases), at_ns):
            return False
        self._take_each(data, [frame for frame, other in zip(frames, others.tolist(), strict=True) if other], at_ns)
        return True

    def _deliver(self, bulk: Bulk | None, at_ns: int) -> bool:
        if bulk is None or (bulk.once_ids and not self.link.session.admit_all(bulk.once_ids)):
            return False
        self.link.listener.arrived_many(self.link, at_ns, bulk.arrivals)
        if bulk.answers and not self.gone:
            self.answer(bulk.answers)
        return True

    def _take_each(self, data: bytes, frames: Sequence[Frame], at_ns: int) -> None:
        link = self.link
        version = link.version
        answers = b""
        tokens: list[int] = []
        try:
            for start, body, end in frames:
                if self.gone:
                    return
                first_byte = data[start]
                if first_byte & 0xF0 == 0x30:
                    topic_end, packet_id, payload_start, properties = read_publish(data, first_byte, body, end, version)
                    topic = data[body + 2 : topic_end]
                    if topic and topic not in known_topics:
                        learn_topic(topic)
                    if properties:
                        topic = self._named(data[payload_start - properties : payload_start], topic)
                    if packet_id:
                        once = first_byte & 0x04
                        answers += acknowledgement(PUBREC if once else PUBACK, packet_id)
                        if once and not link.session.admit(packet_id):
                            continue
                    elif not properties and end - start < SHORT_BYTES:
                        self.usual, self.usual_topic = data[start:payload_start], topic
                    link.listener.arrived(link, at_ns, first_byte & 0x0F, topic, data[payload_start:end], end - start)
                elif first_byte == PUBACK and end - body == 2:
                    packet_id = data[body] << 8 | data[body + 1]
                    flight = link.session.unacked.pop(packet_id, None)
                    if flight is not None and flight.qos == 1:
                        tokens.append(flight.token_shift + packet_id)
                    elif packet_id:
                        link.session.mistaken(packet_id, flight)
                    else:
                        raise MalformedPacket("a PUBACK names packet id 0")
                elif first_byte in (PUBACK, PUBREC, PUBREL, PUBCOMP):
                    packet_id, reason = read_acknowledgement(data, first_byte, body, end, version)
                    answers += self._acknowledgement(first_byte, packet_id, reason, at_ns, tokens)
                else:
                    self._take_cold(first_byte, data[body:end], at_ns)
        finally:
            if tokens:
                link.acknowledged(tokens, at_ns, Completion.ACKED, 0)
            if answers and not self.gone:
                self.answer(answers)

    def _acknowledgement(self, first_byte: int, packet_id: int, reason: int, at_ns: int, tokens: list[int]) -> bytes:
        """Act on one acknowledgement; returns what to answer, collects tokens done without a remark."""
        session = self.link.session
        if first_byte == PUBREL:
            session.release((packet_id,))
            return acknowledgement(PUBCOMP, packet_id)
        if reason >= FIRST_FAILURE and first_byte != PUBCOMP:
            refused = session.refuse(packet_id, 1 if first_byte == PUBACK else 2)
            self.link.acknowledged(refused, at_ns, Completion.REFUSED, reason)
            return b""
        if first_byte == PUBREC:
            session.receive((packet_id,))
            return acknowledgement(PUBREL, packet_id)
        done = session.acknowledge((packet_id,)) if first_byte == PUBACK else session.complete((packet_id,))
        if reason:
            self.link.acknowledged(done, at_ns, Completion.ACKED, reason)
        else:
            tokens += done
        return b""

    def _named(self, properties: bytes, topic: bytes) -> bytes:
        """The topic of a message that has properties: they are checked, and may name it by number."""
        alias = properties_of(properties, PacketType.PUBLISH).topic_alias
        if alias is None:
            if not topic:
                raise MalformedPacket("a PUBLISH has neither topic nor topic alias", PROTOCOL_ERROR)
            return topic
        if alias > self.link.accepts_aliases:
            raise MalformedPacket(f"topic alias {alias} is above what we accept", TOPIC_ALIAS_INVALID)
        if self.aliases is None:
            self.aliases = {}
        if topic:
            self.aliases[alias] = topic
            return topic
        if alias not in self.aliases:
            raise MalformedPacket(f"topic alias {alias} was never given a topic", PROTOCOL_ERROR)
        return self.aliases[alias]

    def _take_cold(self, first_byte: int, body: bytes, at_ns: int) -> None:
        packet = decode(first_byte, body, self.link.version)
        match packet:
            case PingResp():
                self.ping_tick = 0
            case ConnAck() if self.welcome is not None:
                welcome, self.welcome = self.welcome, None
                self.welcomed(packet, at_ns)
                if not welcome.done():
                    welcome.set_result(None)
            case SubAck() | UnsubAck():
                self.link.answered(packet)
            case Disconnect() if self.link.version == V5:
                check_brokers_goodbye(packet)
                words = reason_words(packet.reason, V5, PacketType.DISCONNECT)
                why = f" ({packet.properties.reason_string})" if packet.properties.reason_string else ""
                self.end(f"the broker said goodbye: {words}{why}", packet.reason)
            case _:
                raise MalformedPacket(f"a broker never sends {type(packet).__name__} here", PROTOCOL_ERROR)
