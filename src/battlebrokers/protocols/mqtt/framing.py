"""Where one MQTT frame ends and the next begins: the receiver's hot loop.

Called by the link with every chunk of bytes. It looks at lengths only; what a frame says is `decode`'s business.
"""

from __future__ import annotations

from typing import NamedTuple

from battlebrokers.protocols.mqtt.malformed import MalformedPacket
from battlebrokers.protocols.mqtt.varint import MAX_VARINT

MAX_FRAME_BYTES = MAX_VARINT + 5


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
    raise NotImplementedError


def equal_frames(buffer: bytes, start: int = 0, *, same_topic: bool = True) -> tuple[int, int, int] | None:
    """(count, frame_size, body_offset) when `buffer[start:]` begins with 8 or more frames alike in type, flags and size.

    PUBLISH frames are alike when their topic is the same too (`same_topic=False`: only its length). `body_offset`
    counts from a frame's start. None when there are too few.
    """
    raise NotImplementedError
