"""Messages that are larger than anything their receiver can expect: skipped as they come, so that no announced length
ever sizes memory.

Base class of the inbox, which calls it when framing finds such a packet. Any other packet of that size is a fault.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from battlebrokers.protocols.base import Failure
from battlebrokers.protocols.mqtt.malformed import PACKET_TOO_LARGE, MalformedPacket
from battlebrokers.protocols.mqtt.receiving import PUBACK, PUBREC, acknowledgement

if TYPE_CHECKING:
    from battlebrokers.protocols.mqtt.link import MqttLink

_PUBLISH = 3


class Oversized(NamedTuple):
    """One packet that is not kept."""

    whole_bytes: int
    answer: bytes
    """What a broker waits for that sent it with QoS 1 or 2: the packet came, only nobody keeps it."""


def oversized_publish(data: bytes, start: int) -> Oversized | int | None:
    """The PUBLISH at `start`, whose length is whole; how many bytes of it it takes to tell, None if it is another."""
    if data[start] >> 4 != _PUBLISH:
        return None
    place, shift, length = start + 1, 0, 0
    while True:
        byte = data[place]
        length |= (byte & 0x7F) << shift
        place += 1
        shift += 7
        if byte < 0x80:
            break
    whole_bytes = place - start + length
    qos = data[start] >> 1 & 3
    if not qos:
        return Oversized(whole_bytes, b"")
    if len(data) < place + 2:
        return place + 2 - start
    topic_end = place + 2 + (data[place] << 8 | data[place + 1])
    if len(data) < topic_end + 2:
        return topic_end + 2 - start
    packet_id = data[topic_end] << 8 | data[topic_end + 1]
    return Oversized(whole_bytes, acknowledgement(PUBACK if qos == 1 else PUBREC, packet_id) if packet_id else b"")


class Skipping(asyncio.Protocol):
    """The part of an inbox that leaves such messages out."""

    __slots__ = ("alike", "gone", "link", "skip_bytes", "tail", "wanted_bytes", "welcome")

    skip_bytes: int
    """How much is still to come of a message that is not kept; `tail` is empty, but there, meanwhile."""
    link: MqttLink
    gone: bool
    welcome: asyncio.Future[None] | None
    tail: bytes | bytearray | None
    wanted_bytes: int
    alike: bytes | None

    @abstractmethod
    def send(self, data: bytes) -> None:
        """Write and note that we spoke."""

    @abstractmethod
    def receive(self, data: bytes, at_ns: int) -> None:
        """Take bytes apart."""

    def behind_skipped(self, data: bytes) -> bytes:
        """What follows the message that is being skipped; usually nothing yet."""
        if len(data) < self.skip_bytes:
            self.skip_bytes -= len(data)
            return b""
        rest = data[self.skip_bytes :]
        self.skip_bytes, self.tail = 0, None
        return rest

    def skip(self, data: bytes, start: int, fault: MalformedPacket, at_ns: int) -> None:
        """Leave out the message at `start`, and go on behind it; raises the fault if it is about anything else."""
        found = oversized_publish(data, start) if fault.reason == PACKET_TOO_LARGE else None
        if found is None or self.welcome is not None:
            raise fault
        self.alike = None
        if isinstance(found, int):
            self.tail, self.wanted_bytes = data[start:], found
            return
        self.link.listener.malformed(self.link, str(fault), Failure.OVERSIZED)
        if found.answer:
            self.send(found.answer)
        end = start + found.whole_bytes
        if end > len(data):
            self.tail, self.skip_bytes = b"", end - len(data)
        elif end < len(data) and not self.gone:
            self.receive(data[end:], at_ns)
