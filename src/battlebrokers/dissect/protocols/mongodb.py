"""MongoDB's wire protocol: commands under their names, replies as `reply`, paired by request id.

A client's `moreToCome` means that no reply comes, a server's that the next reply continues this one. Compressed
messages are opened when zlib packed them, else told as `OP_COMPRESSED`. Opened by the registry.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from struct import Struct

from battlebrokers.dissect.registry import dissector
from battlebrokers.dissect.talk import CLIENT, SERVER, WHOLE_MESSAGE_BYTES, Dissection, Talk

_HEADER = Struct("<iiii")
_COMPRESSED = Struct("<iiB")
_NUMBER = Struct("<i")
_DOUBLE = Struct("<d")
_MAX_BYTES = 64 << 20
_FRONT_BYTES = 64 * 1024
_ELEMENTS = 512
_CHAINS = 4096

_OP_REPLY, _OP_UPDATE, _OP_INSERT, _OP_QUERY, _OP_GET_MORE, _OP_DELETE = 1, 2001, 2002, 2004, 2005, 2006
_OP_COMMAND, _OP_COMMAND_REPLY, _OP_COMPRESSED, _OP_MSG = 2010, 2011, 2012, 2013
_OPERATIONS = {
    _OP_REPLY: "reply", _OP_UPDATE: "OP_UPDATE", _OP_INSERT: "OP_INSERT", _OP_QUERY: "OP_QUERY",
    _OP_GET_MORE: "OP_GET_MORE", _OP_DELETE: "OP_DELETE", 2007: "OP_KILL_CURSORS", _OP_COMMAND: "OP_COMMAND",
    _OP_COMMAND_REPLY: "reply", _OP_COMPRESSED: "OP_COMPRESSED", _OP_MSG: "OP_MSG",
}  # fmt: skip
_ASKS = frozenset((_OP_QUERY, _OP_GET_MORE, _OP_COMMAND, _OP_COMPRESSED, _OP_MSG))
_CHECKSUM, _MORE_TO_COME = 1, 2
_NO_COMPRESSION, _ZLIB = 0, 2
_FOREVER = frozenset(("hello", "isMaster", "ismaster"))
"""Commands whose chain of replies does not end: the first one is the answer."""
_WORD = re.compile(rb"[A-Za-z_][A-Za-z0-9_]{0,39}\Z")
_LIKELY = re.compile(b"\\x01\\x00\\x00\\x00|[\\xd1-\\xdd]\\x07\\x00\\x00")
_FIXED = {
    0x01: 8, 0x06: 0, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x10: 4, 0x11: 8, 0x12: 8, 0x13: 16, 0x7F: 0, 0xFF: 0,
}  # fmt: skip
"""BSON type → bytes of its value."""


@dataclass(slots=True)
class _Read:
    """What was found in one message."""

    kind: str
    name: str = ""
    failed: bool = False
    more: bool = False
    payload: bytes = b""
    payload_bytes: int = 0


class _MongoDb:
    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._chains: dict[int, int] = {}
        """Id of a reply that is continued → id of the request."""
        self._endless: set[int] = set()
        self._lost = [False, False]

    def feed(self, sender: int, data: bytes, at: int) -> int:
        talk, size, here = self._talk, len(data), 0
        talk.need[sender] = 0
        if self._lost[sender]:
            here = _search(data, 0)
            talk.undecoded_bytes += here
            self._lost[sender] = here >= size
        while size - here >= 16:
            length, identity, response_to, operation = _HEADER.unpack_from(data, here)
            if operation not in _OPERATIONS or not 16 <= length <= _MAX_BYTES:
                found = _search(data, here + 1)
                talk.broken(found - here)
                here = found
                self._lost[sender] = here >= size
                continue
            end = here + length
            front = talk.front(sender, length, size - here, _FRONT_BYTES)
            if not front:
                break
            shown = here + front
            read = _message(sender, operation, data[here + 16 : shown], end - here - 16)
            if read is None:
                talk.broken()
                read = _Read(_OPERATIONS[operation])
            number = talk.add(
                sender, at + here, at + end, read.kind, read.name, str(response_to if sender == SERVER else identity),
                failed=read.failed, payload=read.payload, payload_bytes=read.payload_bytes,
            )  # fmt: skip
            if sender == CLIENT:
                self._asked(operation, identity, read, number)
            else:
                self._answered(identity, response_to, read, number)
            here = shown
            if end > shown:
                talk.skip(sender, end - shown)
                break
        return here

    def gap(self, sender: int, missing_bytes: int) -> None:
        self._lost[sender] = False

    def resync(self, sender: int, data: bytes) -> int:
        found = _search(data, 0)
        return found if found < len(data) else -1

    def _asked(self, operation: int, identity: int, read: _Read, number: int) -> None:
        if operation not in _ASKS or read.more:
            return
        self._talk.ask(identity, number)
        if read.kind in _FOREVER:
            if len(self._endless) >= _CHAINS:
                self._endless.clear()
            self._endless.add(identity)

    def _answered(self, identity: int, response_to: int, read: _Read, number: int) -> None:
        request = self._chains.pop(response_to, response_to)
        more = read.more and request not in self._endless
        self._talk.answer(request, number, final=not more)
        if read.more:
            if len(self._chains) >= _CHAINS:
                self._chains.clear()
            self._chains[identity] = request


def _message(sender: int, operation: int, body: bytes, size: int) -> _Read | None:
    """The inside of a message; `size` is how long the body is of which the front is shown."""
    if operation == _OP_COMPRESSED:
        return _unpacked(sender, body, size)
    if operation == _OP_MSG:
        return _modern(sender, body, size)
    if operation == _OP_QUERY:
        collection, _, rest = body[4:].partition(b"\0")
        elements = _elements(rest[8:]) or {}
        kind = _OPERATIONS[operation]
        if collection.endswith(b".$cmd"):
            kind = _command(elements) or kind
        return _Read(kind, collection[:200].decode("utf-8", "replace"))
    if operation == _OP_REPLY:
        if len(body) < 20:
            return None
        elements = _elements(body[20:]) or {}
        return _Read("reply", failed=bool(body[0] & 2) or _failed(elements))
    name = ""
    if operation in (_OP_INSERT, _OP_UPDATE, _OP_DELETE, _OP_GET_MORE):
        name = body[4:204].partition(b"\0")[0].decode("utf-8", "replace")
    return _Read(_OPERATIONS[operation], name)


def _unpacked(sender: int, body: bytes, size: int) -> _Read | None:
    if len(body) < _COMPRESSED.size:
        return None
    operation, unpacked_size, method = _COMPRESSED.unpack_from(body)
    packed = body[_COMPRESSED.size :]
    if operation not in _OPERATIONS or operation == _OP_COMPRESSED or len(body) < size:
        return _Read("OP_COMPRESSED")
    if method == _NO_COMPRESSION:
        return _message(sender, operation, packed, len(packed))
    if method != _ZLIB:
        return _Read("OP_COMPRESSED")
    try:
        inside = zlib.decompressobj().decompress(packed, WHOLE_MESSAGE_BYTES)
    except zlib.error:
        return None
    return _message(sender, operation, inside, max(len(inside), unpacked_size))


def _modern(sender: int, body: bytes, size: int) -> _Read | None:
    """OP_MSG: flags, one document, sequences of documents."""
    if len(body) < 5:
        return None
    flags = _NUMBER.unpack_from(body)[0]
    here, end = 4, min(len(body), size - 4 if flags & _CHECKSUM else size)
    elements: dict[bytes, tuple[int, bytes]] | None = None
    payload, payload_bytes = b"", 0
    while here < end:
        section = body[here]
        here += 1
        if end - here < 4:
            return None
        length = _NUMBER.unpack_from(body, here)[0]
        if length < 5 or section > 1:
            return None
        if section == 0 and elements is None:
            elements = _elements(body[here : here + length])
        elif section == 1:
            _, _, documents = body[here + 4 : min(end, here + length)].partition(b"\0")
            payload_bytes += length
            payload = payload or documents
        here += length
    if here > end and len(body) >= size:
        return None
    more = bool(flags & _MORE_TO_COME)
    if elements is None:
        return _Read("OP_MSG", more=more) if len(body) < size else None
    if sender == SERVER:
        return _Read("reply", failed=_failed(elements), more=more)
    return _Read(
        _command(elements) or "OP_MSG", _collection(elements), more=more, payload=payload,
        payload_bytes=len(payload) if len(body) >= size else payload_bytes,
    )  # fmt: skip


def _elements(document: bytes) -> dict[bytes, tuple[int, bytes]] | None:
    """The elements of a BSON document's first level, as far as it is shown, without looking into their values."""
    if len(document) < 5:
        return None
    end = min(len(document), _NUMBER.unpack_from(document)[0])
    found: dict[bytes, tuple[int, bytes]] = {}
    here = 4
    while here < end and document[here] and len(found) < _ELEMENTS:
        kind = document[here]
        stop = document.find(b"\0", here + 1, end)
        if stop < 0:
            break
        name, here = document[here + 1 : stop], stop + 1
        size = _value_size(document, here, kind, end)
        if size < 0:
            break
        found[name] = kind, document[here : here + min(size, 256)]
        here += size
    return found


def _value_size(document: bytes, here: int, kind: int, end: int) -> int:
    """How long a BSON value is; negative if that cannot be."""
    if kind in _FIXED:
        return _FIXED[kind]
    if kind == 0x0B:  # a regular expression: two strings
        first = document.find(b"\0", here, end)
        second = document.find(b"\0", first + 1, end) if first >= 0 else -1
        return second + 1 - here if second >= 0 else -1
    if here + 4 > end:
        return -1
    length: int = _NUMBER.unpack_from(document, here)[0]
    if length < 0:
        return -1
    if kind in (0x02, 0x0D, 0x0E):  # strings
        return 4 + length
    if kind == 0x05:  # binary
        return 5 + length
    if kind in (0x03, 0x04, 0x0F):  # documents, which count their own length
        return length if length >= 5 else -1
    return 16 + length if kind == 0x0C else -1


def _command(elements: dict[bytes, tuple[int, bytes]]) -> str:
    first = next(iter(elements), b"")
    return first.decode() if _WORD.match(first) else ""


def _string(element: tuple[int, bytes] | None) -> str:
    return element[1][4:].partition(b"\0")[0].decode("utf-8", "replace") if element and element[0] == 0x02 else ""


def _collection(elements: dict[bytes, tuple[int, bytes]]) -> str:
    database, collection = _string(elements.get(b"$db")), _string(next(iter(elements.values()), None))
    if not collection:
        collection = _string(elements.get(b"collection"))  # getMore
    return f"{database}.{collection}" if collection else database


def _failed(elements: dict[bytes, tuple[int, bytes]]) -> bool:
    if b"writeErrors" in elements or b"$err" in elements:
        return True
    kind, value = elements.get(b"ok", (0x08, b"\1"))
    if kind == 0x01 and len(value) == 8:
        return bool(_DOUBLE.unpack(value)[0] == 0)
    return not any(value)


def _begins(data: bytes, here: int) -> bool:
    length, _, _, operation = _HEADER.unpack_from(data, here)
    return operation in _OPERATIONS and 16 <= length <= _MAX_BYTES


def _search(data: bytes, start: int) -> int:
    """Where the next message begins, told by its operation and by what follows it; the end if nowhere."""
    for match in _LIKELY.finditer(data, start + 12):
        here = match.start() - 12
        if not _begins(data, here):
            continue
        end = here + _HEADER.unpack_from(data, here)[0]
        if end + 16 <= len(data):
            if _begins(data, end):
                return here
        elif end == len(data) or data[here + 12 : here + 16] == b"\xdd\x07\0\0":
            return here
    return len(data)


def _recognise(client: bytes, server: bytes) -> float:
    fronts = [front for front in (client, server) if len(front) >= 16]
    if not fronts or not all(_begins(front, 0) for front in fronts):
        return 0.0
    if all(_HEADER.unpack_from(front)[3] > _OP_REPLY for front in fronts[:1]):
        return 0.9
    return 0.4


@dissector("mongodb", ports=(27017, 27018, 27019), recognise=_recognise)
def mongodb(talk: Talk) -> Dissection:
    """Begin a conversation."""
    return _MongoDb(talk)
