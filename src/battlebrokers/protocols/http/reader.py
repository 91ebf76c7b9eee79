"""Bytes of a connection become HTTP messages, whatever pieces they come in.

Fed by the connection (answers) and by the notification listener (requests). It holds at most a head and a body within
the limits; anything else raises Malformed. It knows no sockets.
"""

from __future__ import annotations

import re
from typing import Final

from battlebrokers.protocols.http.head import (
    BODY_LIMIT_BYTES,
    CHUNKED,
    HEAD_LIMIT_BYTES,
    Head,
    Malformed,
    read_request_head,
    read_response_head,
)

_HEAD_END = re.compile(rb"\n\r?\n")
_CHUNK_SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\x00\r]*)?\r?")
_LINE_LIMIT_BYTES = 4096
_METHOD_LIMIT_BYTES = 32
_SWITCHING_PROTOCOLS = 101

# Where in a message we are; plain numbers, because every chunk of bytes asks.
_IN_HEAD: Final = 0
_IN_BODY: Final = 1
_UNTIL_CLOSE: Final = 2
_AT_CHUNK_LINE: Final = 3
_IN_CHUNK: Final = 4
_AT_CHUNK_END: Final = 5
_IN_TRAILERS: Final = 6
_DONE: Final = 7


class Reader:
    """One answer at a time; `next` begins another with what was left over."""

    __slots__ = (
        "_at", "_body", "_buffer", "_left", "_searched", "_trailer_bytes", "fed_bytes", "head", "head_bytes",
        "limit_bytes", "to_head",
    )  # fmt: skip

    def __init__(self, limit_bytes: int = BODY_LIMIT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        """The longest body that is held; of a stream, what may come before it is taken."""
        self.head: Head | None = None
        """Of the message being read, as soon as it is there."""
        self.to_head = False
        """Whether the answer expected is one to HEAD."""
        self.fed_bytes = 0
        """How many bytes came since this message began, those behind it included."""
        self.head_bytes = 0
        """How many of them came before the body."""
        self._buffer = b""
        self._body: bytes | bytearray = b""
        self._left = 0
        self._searched = 0
        self._trailer_bytes = 0
        self._at = _IN_HEAD

    def feed(self, data: bytes) -> bool:
        """Take bytes; True when the message is complete."""
        self.fed_bytes += len(data)
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        place = 0
        while place >= 0:
            at = self._at
            if at == _IN_HEAD:
                place = self._read_head(data, place)
            elif at in (_IN_BODY, _IN_CHUNK):
                place = self._read_counted(data, place)
            elif at == _DONE:
                if place < len(data):
                    self._buffer = data[place:]
                return True
            elif at == _AT_CHUNK_LINE:
                place = self._read_chunk_line(data, place)
            elif at == _AT_CHUNK_END:
                place = self._read_chunk_end(data, place)
            elif at == _IN_TRAILERS:
                place = self._read_trailers(data, place)
            else:
                self._hold(data[place:])
                break
        return False

    def end(self) -> bool:
        """The connection was closed; True when that completes the message."""
        if self._at == _UNTIL_CLOSE:
            self._at = _DONE
        return self._at == _DONE

    def take(self) -> bytes:
        """The body so far, which is then forgotten: of a complete message all, of a stream what came since."""
        body, self._body = self._body, b""
        return body if isinstance(body, bytes) else bytes(body)

    @property
    def left_bytes(self) -> int:
        """Bytes behind the complete message."""
        return len(self._buffer)

    def next(self) -> bool:
        """Forget the message and begin another; True when that one is complete already."""
        left, self._buffer = self._buffer, b""
        self.head = None
        self.fed_bytes = 0
        self._body = b""
        self._at = _IN_HEAD
        return self.feed(left) if left else False

    # ── parts of a message: each says where it ends, or keeps what there is of it and says -1 ─────────────────────

    def _read_head(self, data: bytes, place: int) -> int:
        found = _HEAD_END.search(data, place + self._searched, place + HEAD_LIMIT_BYTES)
        if found is None:
            size = len(data) - place
            if size >= HEAD_LIMIT_BYTES:
                raise Malformed(f"a head of more than {HEAD_LIMIT_BYTES} bytes")
            self._buffer = data[place:]
            self._check_beginning(self._buffer)
            self._searched = max(0, size - 2)
            return -1
        self._searched = 0
        self.head_bytes = self.fed_bytes - len(data) + found.end()
        self._accept(self._parse(data[place : found.start()].removesuffix(b"\r")))
        return found.end()

    def _parse(self, data: bytes) -> Head:
        return read_response_head(data, to_head=self.to_head)

    def _check_beginning(self, data: bytes) -> None:
        """What cannot become a head any more is told at once, not when its time is over."""
        if not b"HTTP/1.".startswith(data[:7]):
            raise Malformed(f"no answer of HTTP/1.x: {repr(data[:80])[1:]}")

    def _accept(self, head: Head) -> None:
        if 0 < head.status < 200:
            if head.status == _SWITCHING_PROTOCOLS:
                raise Malformed("the server switches to another protocol, which nobody asked for")
            return
        self.head = head
        length = head.body_bytes
        if length > self.limit_bytes:
            raise Malformed(f"a body of {length} bytes is announced; the most we take is {self.limit_bytes}")
        if length > 0:
            self._left = length
            self._at = _IN_BODY
        elif length == 0:
            self._at = _DONE
        elif length == CHUNKED:
            self._trailer_bytes = 0
            self._at = _AT_CHUNK_LINE
        else:
            self._at = _UNTIL_CLOSE

    def _read_counted(self, data: bytes, place: int) -> int:
        end = place + self._left
        if end > len(data):
            self._left = end - len(data)
            self._hold(data[place:])
            return -1
        self._hold(data[place:end])
        self._at = _DONE if self._at == _IN_BODY else _AT_CHUNK_END
        return end

    def _read_chunk_line(self, data: bytes, place: int) -> int:
        end = self._line_end(data, place)
        if end < 0:
            return -1
        found = _CHUNK_SIZE.fullmatch(data, place, end)
        if found is None:
            raise Malformed(f"no chunk size: {repr(data[place : min(end, place + 80)])[1:]}")
        self._left = int(found[1], 16)
        if self._left > self.limit_bytes:
            raise Malformed(f"a chunk of {self._left} bytes is announced; the most we take is {self.limit_bytes}")
        self._at = _IN_CHUNK if self._left else _IN_TRAILERS
        return end + 1

    def _read_chunk_end(self, data: bytes, place: int) -> int:
        two = data[place : place + 2]
        if two == b"\r\n" or two[:1] == b"\n":
            self._at = _AT_CHUNK_LINE
            return place + (2 if two == b"\r\n" else 1)
        if two in (b"", b"\r"):
            self._buffer = two
            return -1
        raise Malformed(f"a chunk that does not end where it should: {repr(data[place : place + 20])[1:]}")

    def _read_trailers(self, data: bytes, place: int) -> int:
        end = self._line_end(data, place)
        if end < 0:
            return -1
        self._trailer_bytes += end - place
        if self._trailer_bytes > HEAD_LIMIT_BYTES:
            raise Malformed(f"trailers of more than {HEAD_LIMIT_BYTES} bytes")
        if data[place:end] in (b"", b"\r"):
            self._at = _DONE
        return end + 1

    def _line_end(self, data: bytes, place: int) -> int:
        end = data.find(b"\n", place, place + _LINE_LIMIT_BYTES)
        if end < 0:
            if len(data) - place >= _LINE_LIMIT_BYTES:
                raise Malformed("a line between chunks that does not end")
            self._buffer = data[place:]
        return end

    def _hold(self, piece: bytes) -> None:
        body = self._body
        if not body:
            self._body = piece
            return
        if len(body) + len(piece) > self.limit_bytes:
            raise Malformed(f"a body of more than {self.limit_bytes} bytes")
        # Bytes while there is one piece, as nearly always; a bytearray does not mind how many there are.
        if isinstance(body, bytes):
            body = self._body = bytearray(body)
        body += piece


class RequestReader(Reader):
    """The same for requests that come to us."""

    __slots__ = ()

    def _parse(self, data: bytes) -> Head:
        return read_request_head(data)

    def _check_beginning(self, data: bytes) -> None:
        beginning = data.lstrip(b"\r\n")[:_METHOD_LIMIT_BYTES]
        if len(beginning) == _METHOD_LIMIT_BYTES and b" " not in beginning:
            raise Malformed(f"no request: {repr(data[:80])[1:]}")
