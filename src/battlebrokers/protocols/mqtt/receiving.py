"""PUBLISH frames and acknowledgements out of received bytes, in bulk: the receiver's hot path.

Called by the connection with complete frames. Pure: offsets in, arrays out. The bulk readers answer None for anything
unusual, and the connection then reads one by one, in order, with every check.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numpy import count_nonzero

from battlebrokers.protocols.base import Arrivals, EqualArrivals
from battlebrokers.protocols.mqtt.malformed import PROTOCOL_ERROR, TOPIC_INVALID, MalformedPacket
from battlebrokers.protocols.mqtt.packets import V5
from battlebrokers.protocols.mqtt.varint import decode_varint

PUBACK, PUBREC, PUBREL, PUBCOMP = 0x40, 0x50, 0x62, 0x70
_ACKNOWLEDGEMENTS = np.array([PUBACK, PUBREC, PUBREL, PUBCOMP], np.uint8)

MANY = 24
"""From so many frames on, gathering fields as arrays is faster than reading (and telling) one by one; measured."""
MANY_EQUAL = 8
"""The same for frames that are alike, which cost less to gather."""

Frame = tuple[int, int, int]
"""(frame_start, body_start, end), as `split_frames` tells them."""

Offsets = npt.NDArray[np.int64]


class Bulk(NamedTuple):
    """Several messages and what they ask of us."""

    arrivals: Arrivals | EqualArrivals
    answers: bytes
    """PUBACK and PUBREC frames in the order of the messages; empty when all are QoS 0."""
    once_ids: list[int]
    """The packet ids of the QoS 2 messages among them."""


def read_publish(data: bytes, first_byte: int, body: int, end: int, version: int) -> tuple[int, int, int, int]:
    """(topic_end, packet_id, payload_start, properties_bytes) of the PUBLISH whose body is `data[body:end]`."""
    topic_end = body + 2
    if topic_end > end:
        raise MalformedPacket("a PUBLISH ends before its topic")
    topic_end += data[body] << 8 | data[body + 1]
    payload_start = topic_end
    packet_id = 0
    qos = first_byte & 0x06
    if qos:
        payload_start += 2
        if payload_start > end:
            raise MalformedPacket("a PUBLISH ends before its packet id")
        packet_id = data[topic_end] << 8 | data[topic_end + 1]
        if not packet_id or qos == 0x06:
            raise MalformedPacket("a PUBLISH has packet id 0" if qos != 0x06 else "a PUBLISH asks for QoS 3")
    properties_bytes = 0
    if version == V5:
        if payload_start < end and not data[payload_start]:
            payload_start += 1
        else:
            found = decode_varint(data[payload_start : min(end, payload_start + 4)])
            if found is None:
                raise MalformedPacket("a PUBLISH ends before its properties")
            properties_bytes, skip = found
            payload_start += skip + properties_bytes
    if payload_start > end:
        raise MalformedPacket("a PUBLISH ends before its payload")
    if topic_end == body + 2 and not properties_bytes:
        raise MalformedPacket("a PUBLISH has no topic", PROTOCOL_ERROR if version == V5 else TOPIC_INVALID)
    return topic_end, packet_id, payload_start, properties_bytes


def read_acknowledgement(data: bytes, body: int, end: int, version: int) -> tuple[int, int]:
    """(packet_id, reason) of the PUBACK, PUBREC, PUBREL or PUBCOMP whose body is `data[body:end]`."""
    size = end - body
    if size < 2 or (size > 2 and version != V5):
        raise MalformedPacket(f"an acknowledgement has {size} bytes")
    packet_id = data[body] << 8 | data[body + 1]
    if not packet_id:
        raise MalformedPacket("an acknowledgement names packet id 0")
    return packet_id, data[body + 2] if size > 2 else 0


def equal_acknowledgements(data: bytes, start: int, count: int, frame_bytes: int) -> tuple[list[int], int] | None:
    """(packet ids, the one reason of all) of `count` equally long acknowledgements; None when reasons differ."""
    reason = 0
    if frame_bytes > 4:
        reasons = data[start + 4 : start + count * frame_bytes : frame_bytes]
        reason = reasons[0]
        if reasons.count(reason) != count:
            return None
    elif frame_bytes < 4:
        return None
    ids: list[int] = np.ndarray((count,), ">u2", data, start + 2, (frame_bytes,)).tolist()
    return None if 0 in ids else (ids, reason)


def equal_publishes(
    data: bytes, start: int, count: int, frame_bytes: int, body_offset: int, version: int, aliases: int
) -> Bulk | None:
    """Messages that agree in flags, size and length of topic, found by `equal_frames`.

    With `aliases` allowed the properties may name topics, so messages that have any are read one by one.
    """
    first_byte = data[start]
    body = start + body_offset
    try:
        topic_end, _, payload_start, properties_bytes = read_publish(
            data, first_byte, body, start + frame_bytes, version
        )
    except MalformedPacket:
        return None
    if topic_end == body + 2:
        return None
    behind_ids = topic_end + (2 if first_byte & 0x06 else 0)
    if version == V5:
        # Properties may differ from message to message; where their length does, or needs two bytes, read one by one.
        lengths = data[behind_ids : start + count * frame_bytes : frame_bytes]
        if properties_bytes > (0 if aliases else 0x7F) or lengths.count(properties_bytes) != count:
            return None
    answers = b""
    once_ids: list[int] = []
    if first_byte & 0x06:
        ids = np.ndarray((count,), ">u2", data, topic_end, (frame_bytes,))
        if count_nonzero(ids) != count:
            return None
        if first_byte & 0x04:
            once_ids = ids.tolist()
        answers = acknowledgements(PUBREC if first_byte & 0x04 else PUBACK, ids)
    arrivals = EqualArrivals(
        data,
        count,
        first_byte & 0x0F,
        body + 2,
        topic_end - body - 2,
        payload_start,
        start + frame_bytes - payload_start,
        frame_bytes,
    )
    return Bulk(arrivals, answers, once_ids)


def frame_table(data: bytes, frames: list[Frame]) -> tuple[Offsets, npt.NDArray[np.uint8]]:
    """Frames as a table of three columns (start, body, end), and the first byte of each."""
    table = np.fromiter(chain.from_iterable(frames), np.int64, 3 * len(frames)).reshape(-1, 3)
    return table, np.frombuffer(data, np.uint8)[table[:, 0]]


def mixed_publishes(
    data: bytes, table: Offsets, first_bytes: npt.NDArray[np.uint8], version: int, aliases: int
) -> Bulk | None:
    """Messages of any sizes, topics and flags; `table` and `first_bytes` are of PUBLISH frames only."""
    octets = np.frombuffer(data, np.uint8)
    starts, bodies, ends = table.T
    # `count_nonzero` is several times faster than `any` on arrays as short as these.
    if count_nonzero(ends - bodies < 2):
        return None
    topic_starts = bodies + 2
    topic_sizes = octets[bodies].astype(np.int64) << 8 | octets[bodies + 1]
    topic_ends = topic_starts + topic_sizes
    payload_starts = topic_ends
    qos = first_bytes & np.uint8(0x06)
    any_acknowledged = count_nonzero(qos)
    if any_acknowledged:
        payload_starts = topic_ends + 2 * (qos != 0)
    if count_nonzero(topic_sizes) != len(table) or count_nonzero(payload_starts > ends):
        return None
    if version == V5:
        if count_nonzero(payload_starts >= ends):
            return None
        lengths = octets[payload_starts]
        payload_starts = payload_starts + 1 + lengths
        if count_nonzero(lengths > (0 if aliases else 0x7F)) or count_nonzero(payload_starts > ends):
            return None
    answers = b""
    once_ids: list[int] = []
    if any_acknowledged:
        if any_acknowledged < len(table):
            wanted = qos != 0
            topic_ends, qos = topic_ends[wanted], qos[wanted]
        if count_nonzero(qos == 0x06):
            return None
        ids = octets[topic_ends].astype(np.uint16) << 8 | octets[topic_ends + 1]
        if count_nonzero(ids) != any_acknowledged:
            return None
        once = qos == 0x04
        once_ids = ids[once].tolist() if count_nonzero(once) else []
        answers = acknowledgements(np.where(once, PUBREC, PUBACK) if once_ids else PUBACK, ids)
    arrivals = Arrivals(
        data,
        first_bytes & np.uint8(0x0F),
        topic_starts,
        topic_sizes,
        payload_starts,
        ends - payload_starts,
        ends - starts,
    )
    return Bulk(arrivals, answers, once_ids)


def all_acknowledgements(data: bytes, table: Offsets, first_bytes: npt.NDArray[np.uint8], version: int) -> bool:
    """Whether all these frames are acknowledgements that cannot be malformed."""
    if count_nonzero(np.isin(first_bytes, _ACKNOWLEDGEMENTS)) != len(first_bytes):
        return False
    bodies = table[:, 1]
    sizes = table[:, 2] - bodies
    if count_nonzero(sizes < 2) or (version != V5 and count_nonzero(sizes > 2)):
        return False
    octets = np.frombuffer(data, np.uint8)
    return bool(count_nonzero(octets[bodies] | octets[bodies + 1]) == len(bodies))


def acknowledgements(first_byte: int | npt.NDArray[np.int64], ids: npt.ArrayLike) -> bytes:
    """Four-byte acknowledgements for these ids, one after the other."""
    id_bytes = np.ascontiguousarray(ids, ">u2").view(np.uint8).reshape(-1, 2)
    frames = np.empty((len(id_bytes), 4), np.uint8)
    frames[:, 0] = first_byte
    frames[:, 1] = 2
    frames[:, 2:] = id_bytes
    return frames.tobytes()


def acknowledgement(first_byte: int, packet_id: int) -> bytes:
    """One four-byte acknowledgement."""
    return bytes((first_byte, 2, packet_id >> 8, packet_id & 0xFF))
