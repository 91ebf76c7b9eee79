"""PUBLISH frames in bulk: the sender's hot path.

Called by the link with a whole batch for one topic. Pure: payloads and ids in, bytes out; the codec's `encode` is
the truth it is tested against.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from battlebrokers.protocols.base import Bytes2D
from battlebrokers.protocols.mqtt.varint import MAX_VARINT, encode_varint

PUBLISH = 0x30
DUP = 0x08
QOS_BITS = 0x06

NO_PROPERTIES_311 = b""
NO_PROPERTIES_5 = b"\x00"

FEW = 4
"""Below so many messages, joining bytes is faster than filling a matrix."""

# Every packet id as its two bytes on the wire: a slice of it is the id column of a batch.
_ID_BYTES: Bytes2D = np.arange(65_536, dtype=">u2").view(np.uint8).reshape(-1, 2)


def alias_properties(alias: int) -> bytes:
    """The properties of a message that names its topic by number."""
    return b"\x03\x23" + alias.to_bytes(2, "big")


def frame_bytes(topic: bytes, qos: int, properties: bytes, payload_bytes: int) -> int:
    """How long the frame becomes; above `MAX_FRAME_BYTES` it cannot be written."""
    remaining = 2 + len(topic) + (2 if qos else 0) + len(properties) + payload_bytes
    if remaining < 128:
        return remaining + 2
    return remaining + (3 if remaining < 16_384 else 4 if remaining < 2_097_152 else 5)


@lru_cache(maxsize=4096)
def head(topic: bytes, first_byte: int, properties: bytes, payload_bytes: int) -> bytes:
    """Everything before the payload, with packet id 0 where there is one."""
    packet_id = b"\x00\x00" if first_byte & QOS_BITS else b""
    remaining = 2 + len(topic) + len(packet_id) + len(properties) + payload_bytes
    return b"".join(
        (
            bytes((first_byte,)),
            encode_varint(min(remaining, MAX_VARINT)),
            len(topic).to_bytes(2, "big"),
            topic,
            packet_id,
            properties,
        )
    )


@lru_cache(maxsize=4096)
def _head_row(topic: bytes, first_byte: int, properties: bytes, payload_bytes: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer(head(topic, first_byte, properties, payload_bytes), np.uint8)


def matrix_frames(topic: bytes, first_byte: int, properties: bytes, payloads: Bytes2D, first_id: int) -> Bytes2D:
    """One frame a row for payloads of one size; above QoS 0 the ids are `first_id`, `first_id + 1`, …."""
    count, payload_bytes = payloads.shape
    row = _head_row(topic, first_byte, properties, payload_bytes)
    width = row.size
    frames = np.empty((count, width + payload_bytes), np.uint8)
    frames[:, :width] = row
    frames[:, width:] = payloads
    if first_byte & QOS_BITS:
        at = width - len(properties) - 2
        frames[:, at : at + 2] = _ID_BYTES[first_id : first_id + count]
    return frames


def joined_frames(topic: bytes, first_byte: int, properties: bytes, payloads: Sequence[bytes], first_id: int) -> bytes:
    """The frames of few payloads, or of payloads of several sizes, one after the other."""
    if not first_byte & QOS_BITS:
        before = head(topic, first_byte, properties, len(payloads[0]))
        if len(payloads) == 1:
            return before + payloads[0]
        if len(set(map(len, payloads))) == 1:
            return before + before.join(payloads)
        return b"".join(
            [part for payload in payloads for part in (head(topic, first_byte, properties, len(payload)), payload)]
        )
    behind = len(properties) + 2
    if len(payloads) == 1:
        payload = payloads[0]
        before = head(topic, first_byte, properties, len(payload))
        return before[:-behind] + first_id.to_bytes(2, "big") + properties + payload
    parts: list[bytes] = []
    for packet_id, payload in enumerate(payloads, first_id):
        before = head(topic, first_byte, properties, len(payload))
        parts += (before[:-behind], packet_id.to_bytes(2, "big"), properties, payload)
    return b"".join(parts)
