"""Where one MQTT frame ends and the next begins: the receiver's hot loop.

Called by the link with every chunk of bytes. It looks at lengths only; what a frame says is `decode`'s business.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from battlebrokers.protocols.mqtt.malformed import MALFORMED, PACKET_TOO_LARGE, MalformedPacket
from battlebrokers.protocols.mqtt.varint import MAX_VARINT

MAX_FRAME_BYTES = MAX_VARINT + 5
FEWEST_EQUAL_FRAMES = 8

_PUBLISH = 0x30
_TYPE = 0xF0


class Split(NamedTuple):
    """The complete frames of a buffer and what is left of it."""

    frames: list[tuple[int, int, int]]
    """(frame_start, body_start, end) of each complete frame."""
    consumed: int
    """Where the unfinished rest begins: `buffer[consumed:]` comes first next time."""
    wanted_bytes: int
    """How long the rest must become to hold its frame; 0 when there is no rest or its length is not known yet."""
    fault: MalformedPacket | None
    """Set when the bytes at `consumed` can never become a frame: handle `frames`, then close."""


def split_frames(
    buffer: bytes | bytearray, start: int = 0, max_frame_bytes: int = MAX_FRAME_BYTES, version: int = 4
) -> Split:
    """Every complete frame from `start` on; never raises, a bad length is told in `fault`."""
    frames: list[tuple[int, int, int]] = []
    size = len(buffer)
    # One comparison serves both "is the length one byte?" and "is the frame small enough?".
    short = min(0x7F, max_frame_bytes - 2)
    wanted_bytes = 0
    try:
        while True:
            # The IndexError at the buffer's end replaces a bounds check per frame.
            length = buffer[start + 1]
            body = start + 2
            if length > short:
                if length > 0x7F:
                    byte = buffer[body]
                    body = start + 3
                    length += (byte << 7) - 0x80
                    shift = 14
                    while byte > 0x7F:
                        if shift == 28:
                            return _faulty(frames, start, "the remaining length is longer than four bytes")
                        byte = buffer[body]
                        body += 1
                        # Each further byte replaces the continuation bit the previous one left in `length`.
                        length += (byte << shift) - (0x80 << (shift - 7))
                        shift += 7
                    # 3.1.1 does not forbid padded lengths, MQTT 5 does [MQTT-1.5.5-1].
                    if byte == 0 and version == 5:
                        return _faulty(frames, start, "the remaining length uses more bytes than it needs")
                if body - start + length > max_frame_bytes:
                    words = f"a frame of {body - start + length} bytes is larger than the agreed {max_frame_bytes}"
                    return _faulty(frames, start, words, PACKET_TOO_LARGE)
            end = body + length
            if end > size:
                wanted_bytes = end - start
                break
            frames.append((start, body, end))
            start = end
    except IndexError:
        pass
    return Split(frames, start, wanted_bytes, None)


def equal_frames(buffer: bytes, start: int = 0, *, same_topic: bool = True) -> tuple[int, int, int] | None:
    """(count, frame_size, body_offset) when `buffer[start:]` begins with 8 or more frames of one type and size.

    The first bytes of all are equal: flags too, and of PUBLISH the topic (`same_topic=False`: only its length).
    `body_offset` counts from a frame's start. None when there are too few; bytes that are no frame are too few as well.
    """
    try:
        length = buffer[start + 1]
        body = start + 2
        if length > 0x7F:
            length &= 0x7F
            for shift in (7, 14, 21):
                byte = buffer[body]
                body += 1
                length |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
            else:
                return None
        prefix = body - start
        frame_size = prefix + length
        count = (len(buffer) - start) // frame_size
        if count < FEWEST_EQUAL_FRAMES:
            return None
        body_offset = prefix
        if buffer[start] & _TYPE == _PUBLISH:
            prefix += 2
            if same_topic:
                prefix += buffer[body] << 8 | buffer[body + 1]
            if prefix > frame_size:
                return None
    except IndexError:
        return None
    head = buffer[start : start + prefix]
    # Mixed traffic, the common failure, is told without numpy: look at the second and the eighth frame.
    second = start + frame_size
    eighth = start + (FEWEST_EQUAL_FRAMES - 1) * frame_size
    if buffer[second : second + prefix] != head or buffer[eighth : eighth + prefix] != head:
        return None
    # One strided copy and one memcmp beat an element-wise comparison several times over.
    heads = np.ndarray((count,), f"V{prefix}", buffer, start, (frame_size,))
    if heads.tobytes() != head * count:
        rows = np.ndarray((count, prefix), np.uint8, buffer, start, (frame_size, 1))
        count = int((rows == rows[0]).all(axis=1).argmin())
        if count < FEWEST_EQUAL_FRAMES:
            return None
    return count, frame_size, body_offset


def _faulty(frames: list[tuple[int, int, int]], start: int, words: str, reason: int = MALFORMED) -> Split:
    return Split(frames, start, 0, MalformedPacket(words, reason))
