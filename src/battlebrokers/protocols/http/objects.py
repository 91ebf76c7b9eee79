"""A body that never ends becomes pieces, one for each notification: lines, objects one after the other, or events.

Fed by streams. Pure; holds at most one unfinished piece within the limit.
"""

from __future__ import annotations

import json

from battlebrokers.protocols.http.head import BODY_LIMIT_BYTES, Malformed

_DECODER = json.JSONDecoder()
_TRIED_BYTES = 1 << 20
"""Up to here a piece without a line end is tried as a whole object each time more of it comes."""


class Objects:
    """Finds the pieces; `are_events` says that they come as server-sent events."""

    __slots__ = ("_are_events", "_buffer", "_limit_bytes", "_searched")

    def __init__(self, *, are_events: bool = False, limit_bytes: int = BODY_LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._are_events = are_events
        self._buffer = bytearray()
        self._searched = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The pieces that are complete now."""
        buffer = self._buffer
        buffer += data
        found: list[bytes] = []
        while (end := buffer.find(b"\n", self._searched)) >= 0:
            found += self._pieces(bytes(buffer[:end]).strip())
            del buffer[: end + 1]
            self._searched = 0
        self._searched = len(buffer)
        if len(buffer) > self._limit_bytes:
            raise Malformed(f"a piece of a stream of more than {self._limit_bytes} bytes")
        if not self._are_events and buffer and buffer[-1] in b"}]" and len(buffer) <= _TRIED_BYTES:
            objects = objects_in(bytes(buffer))
            if objects is not None:
                found += objects
                buffer.clear()
                self._searched = 0
        return found

    def _pieces(self, line: bytes) -> list[bytes]:
        if self._are_events:
            return [line[5:].strip()] if line.startswith(b"data:") else []
        if b"}{" in line or b"} {" in line:
            return objects_in(line) or [line]
        return [line] if line else []


def objects_in(data: bytes) -> list[bytes] | None:
    """The JSON values that follow each other in these bytes; None when they are anything else."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    found: list[bytes] = []
    place = 0
    while place < len(text):
        if text[place].isspace():
            place += 1
            continue
        try:
            _, end = _DECODER.raw_decode(text, place)
        except (ValueError, RecursionError):
            return None
        found.append(text[place:end].encode())
        place = end
    return found
