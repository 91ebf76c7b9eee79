"""HTTP/1.0 and 1.1: pipelining, every way a body may end, upgrades. Opened through the registry.

Messages up to a quarter MiB are read whole; of larger ones the front, the rest is passed over. Who sends an Upgrade or
CONNECT is not read on before its answer is there, for it decides what the following bytes are.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field, replace

from battlebrokers.dissect.http_heads import HEADS, Head, read_head
from battlebrokers.dissect.registry import dissector
from battlebrokers.dissect.talk import WHOLE_MESSAGE_BYTES, Dissection, Talk
from battlebrokers.tables.message_header import HEADER_BYTES

_REQUEST = re.compile(rb"([A-Za-z!#$%&'*+.^_`|~-]{1,32}) +([^ \r\n]+)(?: +HTTP/(\d)\.\d)?[ \t]*$")
_STATUS = re.compile(rb"HTTP/1\.\d +(\d{3})(?: |$)")
_BEGINNING = re.compile(rb"[A-Za-z!#$%&'*+.^_`|~-]{1,32}(?:/1?\.?\d?)?(?: |$)")
_SOMEWHERE = re.compile(rb"(?:^|(?<=\n))(?:HTTP/1\.\d \d{3}[ \r\n]|[A-Z]{3,16} [^ \r\n]{1,2048} HTTP/1\.\d\r?\n)")
_OPENING = re.compile(rb"[A-Z]{3,16} [^ \r\n]+ HTTP/1\.\d\r?\n")
_METHODS = re.compile(rb"(?:GET|HEAD|POST|PUT|DELETE|OPTIONS|PATCH|TRACE|CONNECT) (?:/|\*|https?:)")
_CHUNK = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\n]*)?\r?$")

_HEAD_BYTES = 64 * 1024
_CHUNK_LINE_BYTES = 4096
_HELD_BYTES = 4 << 20
"""How much may follow an Upgrade before its answer is given up."""
_PIPELINED = 65_536
_INTERIM = 16
_TO_THE_END, _IN_CHUNKS = "end", "chunks"
_CR = 13


def _recognise(from_client: bytes, from_server: bytes) -> float:
    for front in (from_client, from_server):
        if _OPENING.match(front) or front.startswith((b"HTTP/1.1 ", b"HTTP/1.0 ")):
            return 0.95
    return 0.8 if _METHODS.match(from_client) and b"\n" not in from_client else 0.0


@dissector("http", ports=(80, 3000, 8000, 8008, 8080, 8081, 8888, 15672), recognise=_recognise)
def http(talk: Talk) -> Dissection:
    """Begin a conversation in HTTP."""
    return _Http(talk)


@dataclass(slots=True)
class _Side:
    """One sender."""

    scanned: int = 0
    """How much of a head that is not whole was searched for its end."""
    chunks: list[tuple[int, int]] = field(default_factory=list)
    """Chunks of the message at the front, relative to its beginning."""
    chunked_to: int = 0
    """Up to where they were read; 0: not begun."""
    rest: str = ""
    """Inside a body told already that lasts `_TO_THE_END` or goes on `_IN_CHUNKS`."""
    told: int = -1
    """The number of its message."""
    holding: bool = False
    """Waits for the answer that decides what follows."""
    asked: deque[str] = field(default_factory=lambda: deque(maxlen=_PIPELINED))
    """Methods of its requests without an answer yet."""
    interim: list[int] = field(default_factory=list)
    """Interim answers to a request whose body is still on its way."""
    lost: bool = False


class _Http:
    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._sides = (_Side(), _Side())

    def gap(self, sender: int, missing_bytes: int) -> None:
        """What was half read is gone; requests stay asked."""
        old = self._sides[sender]
        new = _Side(holding=old.holding, asked=old.asked)
        self._sides = (new, self._sides[1]) if sender == 0 else (self._sides[0], new)

    def resync(self, sender: int, data: bytes) -> int:
        """At the next start line."""
        self.gap(sender, 0)
        found = _SOMEWHERE.search(data)
        return found.start() if found else -1

    def feed(self, sender: int, data: bytes, at: int) -> int:
        """Read messages until one is not whole."""
        talk, side, pos = self._talk, self._sides[sender], 0
        talk.need[sender] = 0
        while pos < len(data) and talk.next is None:
            if side.holding:
                talk.need[sender] = _HELD_BYTES
                break
            if side.rest:
                after = self._go_on(sender, data, at, pos)
            elif side.lost:
                found = _SOMEWHERE.search(data, pos)
                after = found.start() if found else len(data)
                side.lost = found is None
                talk.undecoded(after - pos)
            elif data[pos] in b"\r\n":
                after = pos + 1  # empty lines before a message are forgiven
            else:
                after = self._message(sender, data, at, pos)
            if after == pos:
                break
            pos = after
            if talk.skipping[sender]:
                break
        return pos

    def _message(self, sender: int, data: bytes, at: int, pos: int) -> int:
        """The message at `pos`; returns where it ends, `pos` itself if there is more to come."""
        side = self._sides[sender]
        body = _head_end(data, max(pos, pos + side.scanned - 3))
        if body < 0:
            if len(data) - pos > _HEAD_BYTES or not _BEGINNING.match(data, pos, pos + 33):
                return self._broken(sender, data, pos)
            side.scanned = len(data) - pos
            return pos
        stop = data.find(b"\n", pos, body)
        rest = data[stop + 1 : body]
        while stop > pos and data[stop - 1] == _CR:
            stop -= 1
        head = HEADS.get(rest) or read_head(rest)
        if status := _STATUS.match(data, pos, stop):
            return self._response(sender, data, at, pos, body, int(status[1]), head)
        request = _REQUEST.match(data, pos, stop)
        if not request:
            return self._broken(sender, data, pos)
        return self._request(sender, data, at, pos, body, request, head)

    def _request(
        self, sender: int, data: bytes, at: int, pos: int, body: int, line: re.Match[bytes], head: Head
    ) -> int:
        talk, side = self._talk, self._sides[sender]
        method, path = line[1].decode(), line[2].partition(b"?")[0].decode("utf-8", "replace")
        if method == "PRI" and line[3] == b"2":
            talk.add(sender, at + pos, at + body, "PRI")
            talk.become("http2")
            return body
        end, number = self._tell(sender, data, at, pos, body, method, path, head, until_close=False)
        if number < 0:
            return end
        talk.ask(sender, number, ordered=True)
        if not side.asked:
            for interim in side.interim:
                talk.answer(sender, interim, final=False)
        side.interim = []
        side.asked.append(method)
        # Answered before it was whole, or given up by the talk: no answer to that one is to come.
        while len(side.asked) > talk.waiting(sender):
            side.asked.popleft()
        side.holding = bool(side.asked) and (method == "CONNECT" or head.upgrades)
        return end

    def _response(self, sender: int, data: bytes, at: int, pos: int, body: int, status: int, head: Head) -> int:
        talk, asker = self._talk, self._sides[1 - sender]
        method = asker.asked[0] if asker.asked else ""
        tunnel = method == "CONNECT" and 200 <= status < 300
        if status < 200 or status in (204, 304) or method == "HEAD" or tunnel:
            head = replace(head, coding="", length=0, wrong_length=False)
        end, number = self._tell(sender, data, at, pos, body, str(status), "", head, until_close=True)
        if number < 0:
            return end
        final = status >= 200 or status == 101
        if final or asker.asked:
            talk.answer(1 - sender, number, final=final, early=True)
        elif len(asker.interim) < _INTERIM:
            asker.interim.append(number)
        if not final:
            return end
        if asker.asked:
            asker.asked.popleft()
        if status == 101:
            talk.notes["extensions"] = head.fields.get("sec-websocket-extensions", "")
            talk.notes["subprotocol"] = head.fields.get("sec-websocket-protocol", "")
            talk.become(head.fields.get("upgrade", "websocket").strip().lower())
        elif tunnel:
            talk.become("")
        if asker.holding and not asker.asked:
            asker.holding = False
            talk.need[1 - sender] = 0
        return end

    def _tell(
        self, sender: int, data: bytes, at: int, pos: int, body: int, kind: str, name: str, head: Head, *,
        until_close: bool,
    ) -> tuple[int, int]:  # fmt: skip
        """Tell a message with its body; returns where to read on and its number, -1 if it is not whole yet."""
        talk, side = self._talk, self._sides[sender]
        chunked, length = head.coding == "chunked", head.length
        if head.wrong_length and not chunked:
            return self._broken(sender, data, pos), -1
        failed = kind >= "400" and kind.isdigit()
        if chunked:
            end, payload = self._chunked(sender, data, pos, body)
            if end < 0:
                return self._broken(sender, data, pos), -1
            if end == 0:
                return pos, -1
            side.told = talk.add(sender, at + pos, at + end, kind, name, failed=failed, payload=payload)
        elif length is not None or not until_close:
            end = body + (length or 0)
            if end - pos > WHOLE_MESSAGE_BYTES:
                if len(data) < body + HEADER_BYTES:
                    talk.need[sender] = body + HEADER_BYTES - pos
                    return pos, -1
                front = data[body : body + HEADER_BYTES]
                number = talk.add(
                    sender, at + pos, at + end, kind, name, failed=failed, payload=front, payload_bytes=end - body
                )
                talk.skip(sender, end - body)
                side.scanned = 0
                return body, number
            if end > len(data):
                talk.need[sender] = end - pos
                return pos, -1
            side.told = talk.add(sender, at + pos, at + end, kind, name, failed=failed, payload=data[body:end])
        else:
            end = len(data)
            if not talk.ended and end - pos <= WHOLE_MESSAGE_BYTES:
                talk.need[sender] = WHOLE_MESSAGE_BYTES
                return pos, -1
            side.told = talk.add(sender, at + pos, at + end, kind, name, failed=failed, payload=data[body:end])
            side.rest = _TO_THE_END
        side.scanned = 0
        return end, side.told

    def _chunked(self, sender: int, data: bytes, pos: int, body: int) -> tuple[int, bytes]:
        """Where a chunked message ends and its body; (0, …): not yet, (-1, …): it is none.

        One that grows too large is told as far as it is there, and goes on.
        """
        talk, side = self._talk, self._sides[sender]
        here = pos + side.chunked_to if side.chunked_to else body
        while True:
            size, start = _chunk(data, here)
            if size < 0:
                side.chunked_to = here - pos
                break
            if size == 0:
                end = _trailer_end(data, start)
                if end > 0:
                    payload = b"".join([data[pos + first : pos + last] for first, last in side.chunks])
                    side.chunks, side.chunked_to = [], 0
                    return end, payload
                side.chunked_to = here - pos
                start = end  # negative: too long
                break
            after = start + size + _line_break(data, start + size)
            if after > len(data) or after == start + size:
                # The line break behind the chunk is missing, or something else is there.
                if after == start + size and len(data) >= after + 2:
                    start = -1
                side.chunked_to = here - pos
                if start >= 0:
                    talk.need[sender] = min(after + 1 - pos, WHOLE_MESSAGE_BYTES)
                break
            side.chunks.append((start - pos, start + size - pos))
            here = after
        if start < 0:
            side.chunks, side.chunked_to = [], 0
            return -1, b""
        if len(data) - pos > WHOLE_MESSAGE_BYTES - _CHUNK_LINE_BYTES:
            payload = b"".join([data[pos + first : pos + last] for first, last in side.chunks])
            side.chunks, side.chunked_to = [], 0
            side.rest = _IN_CHUNKS
            talk.need[sender] = 0
            return here, payload
        return 0, b""

    def _go_on(self, sender: int, data: bytes, at: int, pos: int) -> int:
        """The rest of a large body of unknown length."""
        talk, side = self._talk, self._sides[sender]
        if side.rest == _TO_THE_END:
            talk.extend(side.told, at + len(data), len(data) - pos)
            return len(data)
        if data[pos] in b"\r\n":
            return pos + 1  # behind the chunk before, when that one was passed over
        size, start = _chunk(data, pos)
        if size < 0:
            return pos if start >= 0 else self._broken(sender, data, pos)
        if size == 0:
            end = _trailer_end(data, start)
            if end < 0:
                return self._broken(sender, data, pos)
            if end:
                talk.extend(side.told, at + end, 0)
                side.rest = ""
            return end or pos
        talk.extend(side.told, at + start + size, size)
        after = start + size
        if after <= len(data):
            return after + _line_break(data, after)
        talk.skip(sender, size)
        return start

    def _broken(self, sender: int, data: bytes, pos: int) -> int:
        """No message begins here: read on where one does."""
        side = self._sides[sender]
        found = _SOMEWHERE.search(data, pos + 1)
        after = found.start() if found else len(data)
        side.lost = found is None
        side.scanned, side.rest, side.chunks, side.chunked_to = 0, "", [], 0
        self._talk.broken(after - pos)
        return after


def _head_end(data: bytes, start: int) -> int:
    """Where the body begins; -1 if the empty line is not there yet. A bare LF ends a line, too."""
    stop = start + _HEAD_BYTES + 4
    found = data.find(b"\n\r\n", start, stop)
    bare = data.find(b"\n\n", start, found + 1 if found >= 0 else stop)
    return bare + 2 if bare >= 0 else found + 3 if found >= 0 else -1


def _chunk(data: bytes, here: int) -> tuple[int, int]:
    """Size of the chunk at `here` and where it begins; (-1, 0): not there yet, (-1, -1): no chunk."""
    stop = data.find(b"\n", here, here + _CHUNK_LINE_BYTES)
    if stop < 0:
        return -1, 0 if len(data) - here < _CHUNK_LINE_BYTES else -1
    match = _CHUNK.match(data[here:stop])
    return (int(match[1], 16), stop + 1) if match else (-1, -1)


def _line_break(data: bytes, here: int) -> int:
    """Length of the line break at `here`; 0 if there is none (yet)."""
    return 2 if data.startswith(b"\r\n", here) else 1 if data.startswith(b"\n", here) else 0


def _trailer_end(data: bytes, here: int) -> int:
    """Where the trailers end; 0: not there yet, -1: too long."""
    if skip := _line_break(data, here):
        return here + skip
    end = _head_end(data, here)
    if end >= 0:
        return end
    return 0 if len(data) - here < _HEAD_BYTES else -1
