"""WebSocket (RFC 6455) with permessage-deflate (RFC 7692): frames to messages, protocols inside. Follows an upgrade.

Messages that carry another protocol (MQTT) are told as that protocol's, others as `TEXT`, `BINARY` or by the type in
their JSON, paired by the ids in it or by the contender's hints. What the server says unasked is a push, no exchange.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass, field
from typing import Any, cast

from battlebrokers.dissect.hints import Hints, at_path
from battlebrokers.dissect.nested import Nested
from battlebrokers.dissect.registry import Dissector, dissector, dissectors, recognised
from battlebrokers.dissect.talk import CLIENT, SERVER, WHOLE_MESSAGE_BYTES, Dissection, Talk
from battlebrokers.dissect.websocket_frames import (
    CLOSE,
    CONTINUATION,
    CONTROL_BYTES,
    FIRST_BYTES,
    FRAME_BYTES,
    INFLATED_BYTES,
    KINDS,
    PING,
    TEXT,
    chain,
    frame_at,
    opens,
    search,
    unmasked,
)
from battlebrokers.tables.message_header import HEADER_BYTES

_JSON_BYTES = 64 * 1024
_TRIES = 4
"""Messages of a side that are looked at for a protocol inside."""
_GOOD_CLOSES = frozenset({1000, 1001})

_TYPES = ("type", "action", "method", "event", "op", "cmd", "command")
_IDS = ("id", "requestId", "request_id", "reqId", "correlationId", "invocationId", "msgId")
_NAMES = ("topic", "channel", "destination", "path", "subject")
_SOCKET_IO = re.compile(rb"4([0-6])(?:/[^,]{0,64},)?(\d{0,12})(.*)", re.DOTALL)
_EVENT, _ACK = b"2", b"3"


def _recognise(from_client: bytes, from_server: bytes) -> float:
    # Captured from the middle: the client's frames are masked, which random bytes hardly ever look like for long.
    frames = chain(from_client, 0, CLIENT), chain(from_server, 0, SERVER)
    if from_client and from_server:
        return 0.7 if frames[0] >= 2 and frames[1] >= 1 else 0.0
    return 0.6 if frames[0] >= 3 else 0.0


@dissector("websocket", recognise=_recognise)
def websocket(talk: Talk) -> Dissection:
    """Begin a conversation in WebSocket."""
    return _WebSocket(talk)


@dataclass(slots=True)
class _Side:
    """One sender."""

    scanned: int = 0
    """Bytes of the message at the front that were read already."""
    opcode: int = 0
    """Of the message that is not whole yet; 0: none."""
    packed: bool = False
    parts: list[bytes] = field(default_factory=list)
    size: int = 0
    large: int = -1
    """Number of a message told already that goes on."""
    orphaned: bool = False
    """After a gap: what continues now began before it."""
    inflater: Any = None
    fresh: bool = False
    """Each message is packed for itself."""
    fronts: list[bytes] = field(default_factory=list)
    lost: bool = False


class _WebSocket:
    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._hints = talk.hints if isinstance(talk.hints, Hints) else None
        extensions = talk.notes.get("extensions")
        self._unpacks = extensions is None or "permessage-deflate" in extensions
        self._sides = (_Side(), _Side())
        for side, who in zip(self._sides, ("client", "server"), strict=True):
            side.fresh = f"{who}_no_context_takeover" in (extensions or "")
        self._graphql = talk.notes.get("subprotocol", "").startswith("graphql")
        inner = _by_subprotocol(talk.notes.get("subprotocol", ""))
        self._nested = Nested(talk, inner) if inner else None

    def gap(self, sender: int, missing_bytes: int) -> None:
        """What was packed with reference to the missing bytes cannot be unpacked, what follows perhaps."""
        old = self._sides[sender]
        new = _Side(orphaned=True, fresh=old.fresh, fronts=old.fronts)
        self._sides = (new, self._sides[1]) if sender == 0 else (self._sides[0], new)
        if self._nested:
            self._nested.gap(sender, missing_bytes)

    def resync(self, sender: int, data: bytes) -> int:
        """Segments mostly begin with a frame."""
        self.gap(sender, 0)
        if chain(data, 0, sender) or opens(data, sender):
            return 0
        return search(data, 1, sender)

    def feed(self, sender: int, data: bytes, at: int) -> int:
        """Read frames; a message is held back until its last one is there, unless it gets too large."""
        talk, side = self._talk, self._sides[sender]
        talk.need[sender] = 0
        if side.lost:
            found = search(data, 0, sender)
            side.lost = found < 0
            talk.undecoded(len(data) if found < 0 else found)
            if found != 0:
                return len(data) if found < 0 else found
        begin, here = 0, side.scanned
        while True:
            frame = frame_at(data, here)
            if frame is None:
                break
            first, masked, body, length = frame
            opcode, end = first & 15, body + length
            if not self._allowed(side, first, length):
                begin = here = self._broken(sender, data, here)
                continue
            if opcode < CLOSE and end - begin > WHOLE_MESSAGE_BYTES:
                if end > len(data) and len(data) < body + HEADER_BYTES + 4 * masked:
                    break
                self._large(sender, data, at, begin, body, end, first, masked=masked)
                side.scanned = 0
                return body
            if end > len(data):
                talk.need[sender] = end - begin
                break
            content = data[body:end]
            if masked:
                content = unmasked(content[4:], content[:4])
            if opcode >= CLOSE:
                self._control(sender, at + here, at + end, opcode, content)
                here = end
                if not side.opcode or side.large >= 0:
                    begin = here
                continue
            here = end
            self._data(sender, at + begin, at + end, first, content)
            if not side.opcode or side.large >= 0:
                begin = here
        side.scanned = max(0, here - begin)
        return min(begin, len(data))

    def _allowed(self, side: _Side, first: int, length: int) -> bool:
        opcode, final, packed = first & 15, first & 0x80, first & 0x40
        if first not in FIRST_BYTES or (packed and not self._unpacks) or length > FRAME_BYTES:
            return False
        if opcode >= CLOSE:
            return bool(final) and not packed and length <= CONTROL_BYTES + 4
        if opcode == CONTINUATION:
            return not packed and (side.opcode > 0 or side.orphaned)
        return not side.opcode

    def _data(self, sender: int, start: int, end: int, first: int, content: bytes) -> None:
        """A whole frame of a message."""
        side = self._sides[sender]
        opcode, final = first & 15, first & 0x80
        if opcode == CONTINUATION and not side.opcode:
            self._talk.undecoded(len(content))
            side.orphaned = not final
            return
        if opcode:
            side.opcode, side.packed, side.orphaned = opcode, bool(first & 0x40), False
        if side.large >= 0:
            self._talk.extend(side.large, end, len(content))
        else:
            side.parts.append(content)
            side.size += len(content)
        if not final:
            return
        if side.large < 0:
            payload: bytes | None = b"".join(side.parts)
            if side.packed:
                payload = self._inflated(side, cast("bytes", payload))
            self._message(sender, start, end, side.opcode, side.size, payload)
        side.parts, side.size, side.opcode, side.large = [], 0, 0, -1

    def _large(
        self, sender: int, data: bytes, at: int, begin: int, body: int, end: int, first: int, *, masked: bool
    ) -> None:
        """A message too large to hold: told by its front, its frames are passed over."""
        talk, side = self._talk, self._sides[sender]
        opcode, length = first & 15 or side.opcode, end - body - 4 * masked
        if not opcode:  # continues what began before a gap
            talk.undecoded(end - body)
            side.orphaned = not first & 0x80
        elif side.large >= 0:
            talk.extend(side.large, at + end, length)
        else:
            packed = bool(first & 0x40) or side.packed
            front = b"".join(side.parts)[:HEADER_BYTES]
            if not front and not packed:
                front = data[body : body + HEADER_BYTES + 4 * masked]
                front = unmasked(front[4:], front[:4]) if masked else front
            size = side.size + length
            side.large = talk.add(
                sender, at + begin, at + end, KINDS[opcode], payload=b"" if packed else front, payload_bytes=size
            )
            side.opcode, side.packed, side.parts, side.size = opcode, packed, [], 0
            side.inflater = None
            if self._nested:
                self._nested.gap(sender, size)
        talk.skip(sender, end - body)
        if first & 0x80:
            side.opcode, side.large, side.size = 0, -1, 0

    def _inflated(self, side: _Side, packed: bytes) -> bytes | None:
        """The message unpacked; None if it cannot be, then later ones begin anew.

        An inflater without history refuses references to what it does not know, so nothing wrong ever comes out.
        """
        inflater = side.inflater
        if inflater is None or side.fresh or inflater.eof:
            inflater = side.inflater = zlib.decompressobj(-15)
        try:
            unpacked: bytes = inflater.decompress(packed + b"\x00\x00\xff\xff", INFLATED_BYTES)
        except zlib.error:
            side.inflater = None
            return None
        if inflater.unconsumed_tail:
            side.inflater = None
            return None
        return unpacked

    def _control(self, sender: int, start: int, end: int, opcode: int, content: bytes) -> None:
        talk = self._talk
        if opcode == CLOSE:
            code = int.from_bytes(content[:2], "big") if len(content) >= 2 else 1000
            name = f"{code} {content[2:].decode('utf-8', 'replace')}".strip() if content else ""
            talk.add(sender, start, end, "CLOSE", name, failed=code not in _GOOD_CLOSES)
            return
        number = talk.add(sender, start, end, KINDS[opcode], correlation=content[:16].hex())
        if opcode == PING:
            talk.ask(("PING", sender, content), number)
        else:
            talk.answer(("PING", 1 - sender, content), number, early=True)

    def _message(self, sender: int, start: int, end: int, opcode: int, size: int, payload: bytes | None) -> None:
        """A whole message; `payload` is None if it could not be unpacked."""
        talk = self._talk
        if payload is None:
            talk.undecoded(size)
            talk.add(sender, start, end, KINDS[opcode], payload_bytes=size)
            if self._nested:
                self._nested.gap(sender, size)
            return
        if self._nested is None:
            self._look_inside(sender, payload)
        if self._nested is not None:
            self._nested.feed(sender, payload, start, end)
            return
        kind = KINDS[opcode]
        if len(payload) <= _JSON_BYTES:
            if payload[:1] in (b"{", b"["):
                document = _json(payload)
                if isinstance(document, dict) or (self._hints and document is not None):
                    self._document(sender, start, end, kind, document, payload)
                    return
            elif opcode == TEXT and (match := _SOCKET_IO.fullmatch(payload)):
                self._socket_io(sender, start, end, match, payload)
                return
        talk.add(sender, start, end, kind, payload=payload)

    def _look_inside(self, sender: int, payload: bytes) -> None:
        side = self._sides[sender]
        if len(side.fronts) >= _TRIES or not payload or payload[:1] in (b"{", b"["):
            return
        side.fronts.append(payload[:512])
        fronts = (payload, b"") if sender == CLIENT else (b"", payload)
        found = recognised("tcp", 0, 0, *fronts)
        if found is not None and found[1] == "content" and found[0].name not in ("http", "websocket"):
            self._nested = Nested(self._talk, found[0])

    def _document(self, sender: int, start: int, end: int, kind: str, document: Any, payload: bytes) -> None:
        """A JSON message: pair it by hints, by JSON-RPC's rules, or by the usual names of ids."""
        talk, hints = self._talk, self._hints
        type_ = _short(at_path(document, hints.type_path) if hints and hints.type_path else _first(document, _TYPES))
        ack = document.get("ack") if isinstance(document, dict) else None
        id_ = _short(at_path(document, hints.id_path) if hints and hints.id_path else _first(document, _IDS) or ack)
        number = talk.add(
            sender, start, end, type_ or kind, _short(_first(document, _NAMES)), id_,
            failed=_failed(document, type_), payload=payload,
        )  # fmt: skip
        if hints and type_ and self._hinted(hints, sender, type_, id_, number):
            return
        if not id_:
            return
        own, other = ("id", sender, id_), ("id", 1 - sender, id_)
        fields = document if isinstance(document, dict) else {}
        if "method" in fields and "result" not in fields:
            talk.ask(own, number)
        elif "result" in fields or "error" in fields or _short(ack) == id_:
            talk.answer(other, number, early=True)
        elif talk.waiting(other):
            talk.answer(other, number, final=not (self._graphql and type_ in ("next", "data")))
        elif sender == CLIENT:
            talk.ask(own, number)

    def _hinted(self, hints: Hints, sender: int, type_: str, id_: str, number: int) -> bool:
        """Pair by the contender's table; False if it says nothing about this type.

        Many answer in the type they were asked in: then whoever comes second answers.
        """
        talk = self._talk
        if type_ in hints.unanswered:
            return True
        asked = ("hint", 1 - sender, id_ or type_)
        answers = type_ in hints.answers.values()
        if talk.waiting(asked) or (answers and type_ not in hints.answers):
            talk.answer(asked, number, early=True)
            return True
        if type_ in hints.answers and not (answers and sender == SERVER):
            talk.ask(("hint", sender, id_ or hints.answers[type_]), number, ordered=not id_, hinted=True)
            return True
        return answers

    def _socket_io(self, sender: int, start: int, end: int, match: re.Match[bytes], payload: bytes) -> None:
        """Socket.IO: events may ask for an acknowledgement by a number."""
        packet, id_ = match[1], match[2].decode()
        document = _json(match[3]) if match[3] else None
        event = _short(document[0]) if packet == _EVENT and isinstance(document, list) and document else ""
        number = self._talk.add(
            sender, start, end, event or ("ack" if packet == _ACK else "TEXT"), "", id_, payload=payload
        )
        if id_ and packet == _EVENT:
            self._talk.ask(("io", sender, id_), number)
        elif id_ and packet == _ACK:
            self._talk.answer(("io", 1 - sender, id_), number, early=True)

    def _broken(self, sender: int, data: bytes, pos: int) -> int:
        """No frame begins here: read on where one does."""
        side = self._sides[sender]
        found = search(data, pos + 1, sender)
        side.lost = found < 0
        side.opcode, side.parts, side.size, side.large, side.inflater = 0, [], 0, -1, None
        side.orphaned = True
        after = found if found >= 0 else len(data)
        self._talk.broken(after - pos)
        return after


def _by_subprotocol(subprotocol: str) -> Dissector | None:
    """`mqtt`, `mqttv3.1`: the protocol that its name begins with."""
    for part in subprotocol.lower().split(","):
        for name, known in dissectors().items():
            if part.strip().startswith(name) and known.transport == "tcp" and name not in ("http", "websocket"):
                return known
    return None


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _first(document: Any, names: tuple[str, ...]) -> object:
    if not isinstance(document, dict):
        return None
    return next((document[name] for name in names if isinstance(document.get(name), str | int)), None)


def _short(value: object) -> str:
    """A type, id or name as text; empty if it is something else."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    return str(value)[:128] if not isinstance(value, int) or abs(value) < 1 << 64 else ""


def _failed(document: Any, type_: str) -> bool:
    if type_ == "error" or not isinstance(document, dict):
        return type_ == "error"
    return bool(document.get("error")) or document.get("success") is False
