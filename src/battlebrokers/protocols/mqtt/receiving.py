"""PUBLISH frames and acknowledgements out of received bytes, in bulk: the receiver's hot path.

Called by the connection with complete frames. Pure: offsets in, arrays out. The bulk readers answer None for anything
unusual, and the connection then reads one by one, in order, with every check.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numpy import count_nonzero

from battlebrokers.protocols.base import Arrivals, EqualArrivals
from battlebrokers.protocols.mqtt.malformed import MALFORMED, PROTOCOL_ERROR, MalformedPacket
from battlebrokers.protocols.mqtt.packets import V5, PacketType
from battlebrokers.protocols.mqtt.properties import Properties
from battlebrokers.protocols.mqtt.property_codec import Carrier, parse_properties
from battlebrokers.protocols.mqtt.reasons import allowed_reasons
from battlebrokers.protocols.mqtt.topics import known_topics, learn_topic, plainly_valid
from battlebrokers.protocols.mqtt.varint import decode_varint
from battlebrokers.protocols.topic_rows import rows_at

PUBACK, PUBREC, PUBREL, PUBCOMP = 0x40, 0x50, 0x62, 0x70
_ACKNOWLEDGEMENTS = np.array([PUBACK, PUBREC, PUBREL, PUBCOMP], np.uint8)
_DUP_AT_QOS_0 = (0x38, 0x39)
_SHORT_PROPERTIES = 128
"""Bytes: what is remembered of properties stays small; longer ones are parsed each time."""

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
    elif first_byte & 0x08:
        raise MalformedPacket("a PUBLISH of QoS 0 carries DUP")
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
        raise MalformedPacket("a PUBLISH has no topic", PROTOCOL_ERROR if version == V5 else MALFORMED)
    return topic_end, packet_id, payload_start, properties_bytes


@lru_cache(maxsize=1024)
def _remembered(block: bytes, carrier: Carrier) -> Properties:
    return parse_properties(block, carrier)


def properties_of(block: bytes, carrier: Carrier) -> Properties:
    """The checked properties of a received message or acknowledgement; `block` follows the property length."""
    return _remembered(block, carrier) if len(block) < _SHORT_PROPERTIES else parse_properties(block, carrier)


def read_acknowledgement(data: bytes, first_byte: int, body: int, end: int, version: int) -> tuple[int, int]:
    """(packet_id, reason) of the PUBACK, PUBREC, PUBREL or PUBCOMP whose body is `data[body:end]`."""
    size = end - body
    if size < 2 or (size > 2 and version != V5):
        raise MalformedPacket(f"an acknowledgement has {size} bytes")
    packet_id = data[body] << 8 | data[body + 1]
    if not packet_id:
        raise MalformedPacket("an acknowledgement names packet id 0")
    return packet_id, _checked_reason(first_byte, data[body + 2 : end]) if size > 2 else 0


def _checked_reason(first_byte: int, rest: bytes) -> int:
    """The reason of an MQTT 5 acknowledgement; `rest` is what follows its packet id: the reason, perhaps properties."""
    packet_type = PacketType(first_byte >> 4)
    reason = rest[0]
    if reason not in allowed_reasons(packet_type, V5):
        raise MalformedPacket(f"{packet_type.name} cannot carry reason 0x{reason:02X}", PROTOCOL_ERROR)
    if len(rest) > 1:
        found = decode_varint(rest[1:5])
        if found is None or found[0] + found[1] != len(rest) - 1:
            raise MalformedPacket(f"the properties of a {packet_type.name} do not end where it ends")
        properties_of(rest[1 + found[1] :], packet_type)
    return reason


def equal_acknowledgements(data: bytes, start: int, count: int, frame_bytes: int) -> tuple[list[int], int] | None:
    """(packet ids, the one reason of all) of `count` equally long acknowledgements.

    None when they differ in what follows their ids, or when one is malformed.
    """
    reason = 0
    if frame_bytes > 4:
        size = frame_bytes - 4
        first = data[start + 4 : start + frame_bytes]
        if _every(data, start + 4, frame_bytes, count, size) != first * count:
            return None
        try:
            reason = _checked_reason(data[start], first)
        except MalformedPacket:
            return None
    elif frame_bytes < 4:
        return None
    ids: list[int] = np.ndarray((count,), ">u2", data, start + 2, (frame_bytes,)).tolist()
    return None if 0 in ids else (ids, reason)


def _every(data: bytes, start: int, step: int, count: int, size: int) -> bytes:
    """The `size` bytes at `start`, `start + step`, … one behind the other."""
    return np.ndarray((count,), f"V{size}", data, start, (step,)).tobytes()


def _all_valid(topics: bytes, size: int) -> bool:
    """Whether topics of one size, one behind the other, are valid topic names."""
    if plainly_valid(topics):
        return True
    return _each_valid({topics[start : start + size] for start in range(0, len(topics), size)})


def _each_valid(topics: set[bytes]) -> bool:
    try:
        for topic in topics - known_topics:
            learn_topic(topic)
    except MalformedPacket:
        return False
    return True


def _unremarkable(blocks: set[bytes]) -> bool:
    """Whether these properties of messages are valid and change nothing: no topic alias among them."""
    try:
        return all(properties_of(block, PacketType.PUBLISH).topic_alias is None for block in blocks)
    except MalformedPacket:
        return False


def equal_publishes(
    data: bytes, start: int, count: int, frame_bytes: int, body_offset: int, version: int, aliases: int,
    *, same_topic: bool = False,
) -> Bulk | None:  # fmt: skip
    """Messages that agree in flags, size and length of topic, found by `equal_frames`; `same_topic`: in the topic, too.

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
    topic = data[body + 2 : topic_end]
    if not topic:
        return None
    topics = topic if same_topic else _every(data, body + 2, frame_bytes, count, len(topic))
    same_topic = same_topic or topics == topic * count
    if not (same_topic and topic in known_topics) and not _all_valid(topics, len(topic)):
        return None
    behind_ids = topic_end + (2 if first_byte & 0x06 else 0)
    if version == V5:
        # Properties may differ from message to message; where their length does, or needs two bytes, read one by one.
        lengths = data[behind_ids : start + count * frame_bytes : frame_bytes]
        if properties_bytes > (0 if aliases else 0x7F) or lengths.count(properties_bytes) != count:
            return None
        if properties_bytes:
            starts = range(behind_ids + 1, start + count * frame_bytes, frame_bytes)
            if not _unremarkable({data[at : at + properties_bytes] for at in starts}):
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
        same_topic,
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
    heads = first_bytes.tobytes()
    if any(heads.count(head) for head in _DUP_AT_QOS_0):
        return None
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
        if count_nonzero(lengths):
            blocks = zip((payload_starts - lengths).tolist(), payload_starts.tolist(), strict=True)
            if not _unremarkable({data[begin:end] for begin, end in blocks}):
                return None
    rows = rows_at(data, topic_starts, topic_sizes)
    if rows is None or not plainly_valid(rows.tobytes()):
        spans = zip(topic_starts.tolist(), (topic_starts + topic_sizes).tolist(), strict=True)
        if not _each_valid({data[begin:end] for begin, end in spans}):
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
        rows,
    )
    return Bulk(arrivals, answers, once_ids)


def all_acknowledgements(data: bytes, table: Offsets, first_bytes: npt.NDArray[np.uint8]) -> bool:
    """Whether all these frames are acknowledgements that cannot be malformed."""
    if count_nonzero(np.isin(first_bytes, _ACKNOWLEDGEMENTS)) != len(first_bytes):
        return False
    bodies = table[:, 1]
    # A reason and properties are looked at one by one.
    if count_nonzero(table[:, 2] - bodies != 2):
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
