"""Frames of WebSocket: what kinds there are, where one lies, and where they begin among bytes from the middle.

Called by the WebSocket dissector. Pure functions over bytes; messages and what is in them are the dissector's.
"""

from __future__ import annotations

from battlebrokers.dissect.talk import CLIENT

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
KINDS = {TEXT: "TEXT", BINARY: "BINARY", CLOSE: "CLOSE", PING: "PING", PONG: "PONG"}
FIRST_BYTES = frozenset(
    final | packed | opcode for final in (0, 0x80) for packed in (0, 0x40) for opcode in (0, *KINDS)
)
CONTROL_BYTES = 125
FRAME_BYTES = 1 << 30
"""Nobody sends a larger frame: the length is wrong."""
INFLATED_BYTES = 4 << 20
"""A message that grows beyond this is not unpacked further."""


def frame_at(data: bytes, here: int) -> tuple[int, bool, int, int] | None:
    """First byte, whether it is masked, where mask and payload begin and how long both are; None: not there yet."""
    size = len(data)
    if here + 2 > size:
        return None
    length, body = data[here + 1] & 127, here + 2
    if length >= 126:
        body += 2 if length == 126 else 8
        if body > size:
            return None
        length = int.from_bytes(data[here + 2 : body], "big")
    masked = data[here + 1] > 127
    return data[here], masked, body, length + 4 * masked


def unmasked(content: bytes, mask: bytes) -> bytes:
    """The content as it was before its mask."""
    size = len(content)
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "little")
    return (int.from_bytes(content, "little") ^ key).to_bytes(size, "little")


def chain(data: bytes, here: int, sender: int) -> int:
    """How many orderly frames lie one behind the other from here (at most 3); those that end with the data count 3."""
    frames = 0
    while frames < 3 and (frame := frame_at(data, here)) is not None:
        first, masked, body, length = frame
        opcode, size = first & 15, length - 4 * masked
        if first not in FIRST_BYTES or masked != (sender == CLIENT):
            return 0
        shortest = 126 if body - here == 4 else 65536 if body - here == 10 else 0
        if size < shortest or (opcode >= CLOSE and (size > CONTROL_BYTES or first & 0xC0 != 0x80)):
            return 0
        here = body + length
        if here > len(data):
            return frames
        frames += 1
    return 3 if frames and here == len(data) else frames


def opens(data: bytes, sender: int) -> bool:
    """Whether a frame too long for what is there seems to begin here."""
    frame = frame_at(data, 0)
    if frame is None or frame[1] != (sender == CLIENT) or frame[0] not in (0x81, 0x82, 0xC1, 0xC2, 0x01, 0x02):
        return False
    return frame[2] > 2 and len(data) - frame[2] < frame[3] < INFLATED_BYTES


def search(data: bytes, start: int, sender: int) -> int:
    """Where frames seem to begin; -1 if they do not."""
    for pos in range(start, len(data)):
        if data[pos] in FIRST_BYTES and chain(data, pos, sender) >= 2:
            return pos
    return -1
