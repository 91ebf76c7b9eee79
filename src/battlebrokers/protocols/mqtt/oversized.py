"""A PUBLISH that is larger than anything its receiver can expect: how much of it there is to skip, and what to answer.

Called by the inbox, so that an announced length never sizes memory. Pure: bytes in, numbers out.
"""

from __future__ import annotations

from typing import NamedTuple

from battlebrokers.protocols.mqtt.receiving import PUBACK, PUBREC, acknowledgement

_PUBLISH = 3


class Oversized(NamedTuple):
    """One packet that is not kept."""

    whole_bytes: int
    """Its whole length."""
    answer: bytes
    """What a broker waits for that sent it with QoS 1 or 2: the packet came, only nobody keeps it."""


def oversized_publish(data: bytes, start: int) -> Oversized | int | None:
    """The PUBLISH at `start`; how many bytes of it must be there to tell, or None if it is no PUBLISH."""
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
    whole = place - start + length
    qos = data[start] >> 1 & 3
    if not qos:
        return Oversized(whole, b"")
    if len(data) < place + 2:
        return place + 2 - start
    topic_end = place + 2 + (data[place] << 8 | data[place + 1])
    if len(data) < topic_end + 2:
        return topic_end + 2 - start
    packet_id = data[topic_end] << 8 | data[topic_end + 1]
    return Oversized(whole, acknowledgement(PUBACK if qos == 1 else PUBREC, packet_id) if packet_id else b"")
