"""PostgreSQL's protocol 3: messages by their names, requests answered in order.

A Query is answered when ReadyForQuery says so (one Query may hold several statements, each with its CommandComplete),
the extended protocol's messages each by their own answer; an ErrorResponse answers its request and, up to the next
Sync, those the server discards because of it.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from struct import Struct

from battlebrokers.dissect.registry import dissector
from battlebrokers.dissect.talk import CLIENT, SERVER, Dissection, Talk

_NUMBER = Struct(">I")
_STARTUP = Struct(">II")
_MAX_BYTES = 1 << 30
_FRONT_BYTES = 8192
"""So much of a huge message is looked at."""
_NAME_CHARACTERS = 80
_TLS_HANDSHAKE = 0x16
_STATEMENTS = 4096
_WAITING = 65_536

_CLIENT_KINDS = {
    ord("B"): "Bind", ord("C"): "Close", ord("d"): "CopyData", ord("c"): "CopyDone", ord("f"): "CopyFail",
    ord("D"): "Describe", ord("E"): "Execute", ord("H"): "Flush", ord("F"): "FunctionCall", ord("P"): "Parse",
    ord("p"): "PasswordMessage", ord("Q"): "Query", ord("S"): "Sync", ord("X"): "Terminate",
}  # fmt: skip
_SERVER_KINDS = {
    ord("R"): "Authentication", ord("K"): "BackendKeyData", ord("2"): "BindComplete", ord("3"): "CloseComplete",
    ord("C"): "CommandComplete", ord("d"): "CopyData", ord("c"): "CopyDone", ord("G"): "CopyInResponse",
    ord("H"): "CopyOutResponse", ord("W"): "CopyBothResponse", ord("D"): "DataRow", ord("I"): "EmptyQueryResponse",
    ord("E"): "ErrorResponse", ord("V"): "FunctionCallResponse", ord("v"): "NegotiateProtocolVersion",
    ord("n"): "NoData", ord("N"): "NoticeResponse", ord("A"): "NotificationResponse",
    ord("t"): "ParameterDescription", ord("S"): "ParameterStatus", ord("1"): "ParseComplete",
    ord("s"): "PortalSuspended", ord("Z"): "ReadyForQuery", ord("T"): "RowDescription",
}  # fmt: skip
_KINDS = (_CLIENT_KINDS, _SERVER_KINDS)
_ASYNCHRONOUS = frozenset(("NoticeResponse", "NotificationResponse", "ParameterStatus"))
_STARTUPS = {
    196_608: "StartupMessage", 196_610: "StartupMessage", 80_877_102: "CancelRequest", 80_877_103: "SSLRequest",
    80_877_104: "GSSENCRequest",
}  # fmt: skip
_UNTIL_READY = frozenset(("Query", "Sync", "FunctionCall", "StartupMessage"))
_FINAL = {
    "ParseComplete": frozenset(("Parse",)), "BindComplete": frozenset(("Bind",)),
    "CloseComplete": frozenset(("Close",)), "NoData": frozenset(("Describe",)),
    "RowDescription": frozenset(("Describe",)), "CommandComplete": frozenset(("Execute",)),
    "EmptyQueryResponse": frozenset(("Execute",)), "PortalSuspended": frozenset(("Execute",)),
    "ReadyForQuery": _UNTIL_READY,
}  # fmt: skip
"""Answer → the requests of which it is the last word."""
_AUTHENTICATION = {
    0: "Ok", 2: "KerberosV5", 3: "CleartextPassword", 5: "MD5Password", 7: "GSS", 8: "GSSContinue", 9: "SSPI",
    10: "SASL", 11: "SASLContinue", 12: "SASLFinal",
}  # fmt: skip
_LIKELY = tuple(re.compile(b"[" + re.escape(bytes(kinds)) + b"](?=\\x00[\\x00-\\x0f])") for kinds in _KINDS)


@dataclass(slots=True)
class _Request:
    kind: str
    key: int
    answered: bool = False
    """An error said it all; only ReadyForQuery is still to come."""


class _PostgreSql:
    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._queue: deque[_Request] = deque(maxlen=_WAITING)
        self._keys = 0
        self._started = False
        self._offers: deque[_Request] = deque(maxlen=16)
        """Requests for encryption the server has not answered with its single byte yet."""
        self._authentications = 0
        self._statements: dict[bytes, str] = {}
        self._portals: dict[bytes, str] = {}
        self._discarding = False
        self._gap = False
        self._lost = [False, False]

    def feed(self, sender: int, data: bytes, at: int) -> int:
        talk, kinds = self._talk, _KINDS[sender]
        size, here = len(data), 0
        talk.need[sender] = 0
        if self._gap and not talk.doubting:
            # It has been quiet: whoever waited until now waits in vain, and is not in the way of those who ask now.
            self._queue.clear()
            self._gap = False
        if self._lost[sender]:
            here = self._search(sender, data, 0)
            talk.undecoded_bytes += here
            self._lost[sender] = here >= size
        while size - here >= 5:
            if sender == CLIENT and self._offers and data[here] == _TLS_HANDSHAKE:
                break  # until the server's answer to the offer has been read
            if sender == CLIENT and not data[here]:
                used = self._start(data, here, at)
                if not used:
                    break
                here += used
                continue
            if sender == SERVER and self._offers and data[here] in b"SNG":
                here += self._offered(data, here, at)
                if talk.next is not None:
                    break
                continue
            kind = kinds.get(data[here])
            length = _NUMBER.unpack_from(data, here + 1)[0] + 1
            if kind is None or not 5 <= length <= _MAX_BYTES:
                found = self._search(sender, data, here + 1)
                talk.broken(found - here)
                here = found
                self._lost[sender] = here >= size
                continue
            end = here + length
            front = talk.front(sender, length, size - here, _FRONT_BYTES)
            if not front:
                break
            shown = here + front
            if kind == "DataRow" or kind == "CopyData":
                number = talk.add(sender, at + here, at + end, kind, payload_bytes=length - 5)
                if sender == SERVER and self._queue:
                    talk.answer(self._queue[0].key, number, final=False)
            elif sender == CLIENT:
                self._asked(kind, data[here + 5 : shown], at + here, at + end)
            else:
                self._answered(kind, data[here + 5 : shown], at + here, at + end)
            here = shown
            if end > shown:
                talk.skip(sender, end - shown)
                break
        if sender == SERVER and self._offers and size > here and size - here < 5 and data[here] in b"SNG":
            here += self._offered(data, here, at)
        return here

    def gap(self, sender: int, missing_bytes: int) -> None:
        self._offers.clear()
        self._gap = True
        self._lost[sender] = False

    def resync(self, sender: int, data: bytes) -> int:
        if not self._started and _startup_code(data, 0) in _STARTUPS:
            return 0
        return 0 if _chain(sender, data, 0) else -1

    def _search(self, sender: int, data: bytes, start: int) -> int:
        """Where messages follow each other again; the end if nowhere."""
        for match in _LIKELY[sender].finditer(data, start):
            if _chain(sender, data, match.start()):
                return match.start()
        return len(data)

    def _start(self, data: bytes, here: int, at: int) -> int:
        """Messages without a type, which begin the conversation; 0 to wait."""
        talk, size = self._talk, len(data)
        if size - here < 8:
            return 0
        length, code = _STARTUP.unpack_from(data, here)
        kind = _STARTUPS.get(code)
        if kind is None or not 8 <= length <= 65_536:
            found = self._search(CLIENT, data, here + 1)
            talk.broken(found - here)
            self._lost[CLIENT] = found >= size
            return found - here
        if size - here < length:
            talk.need[CLIENT] = length
            return 0
        self._started = True
        name = _database(data[here + 8 : here + length]) if kind == "StartupMessage" else ""
        number = talk.add(CLIENT, at + here, at + here + length, kind, name)
        if kind == "StartupMessage":
            self._wait(kind, number, self._queue)
        elif kind != "CancelRequest":
            self._wait(kind, number, self._offers)
        return int(length)

    def _offered(self, data: bytes, here: int, at: int) -> int:
        """The single byte that accepts or refuses encryption."""
        talk, offer = self._talk, self._offers.popleft()
        word = chr(data[here])
        number = talk.add(SERVER, at + here, at + here + 1, offer.kind.replace("Request", "Response"), word)
        talk.answer(offer.key, number)
        if word != "N":
            talk.become("tls" if word == "S" else "gssapi")
        return 1

    def _wait(self, kind: str, number: int, queue: deque[_Request]) -> None:
        self._keys += 1
        queue.append(_Request(kind, self._keys))
        self._talk.ask(self._keys, number, ordered=True)

    def _asked(self, kind: str, body: bytes, start: int, end: int) -> None:
        talk = self._talk
        name, payload = "", b""
        if kind == "Query":
            name = _sql(body)
        elif kind == "Parse":
            statement, _, rest = body.partition(b"\0")
            name = _sql(rest)
            _remember(self._statements, statement, name)
        elif kind == "Bind":
            portal, statement, payload = _bound(body)
            name = self._statements.get(statement, _short(statement))
            _remember(self._portals, portal, name)
        elif kind == "Execute":
            portal = body.partition(b"\0")[0]
            name = self._portals.get(portal, _short(portal))
        elif kind in ("Describe", "Close"):
            what = body[1:].partition(b"\0")[0]
            name = (self._statements if body[:1] == b"S" else self._portals).get(what, _short(what))
        number = talk.add(
            CLIENT, start, end, kind, name, payload=payload,
            payload_bytes=len(payload) if kind == "Bind" else end - start - 5,
        )  # fmt: skip
        if kind == "Sync":
            self._discarding = False
        if kind == "PasswordMessage":
            talk.ask("authentication", number, ordered=True)
        elif kind in _ASKS and not self._discarding:
            self._wait(kind, number, self._queue)

    def _answered(self, kind: str, body: bytes, start: int, end: int) -> None:
        talk, queue = self._talk, self._queue
        name, payload = "", b""
        failed = kind == "ErrorResponse"
        if kind == "CommandComplete" or kind == "ParameterStatus":
            name = _short(body.partition(b"\0")[0])
        elif failed or kind == "NoticeResponse":
            name = _sql_state(body)
        elif kind == "NotificationResponse":
            channel, _, rest = body[4:].partition(b"\0")
            name, payload = _short(channel), rest[:-1]
        elif kind == "ReadyForQuery":
            name = _short(body[:1])
        elif kind == "Authentication" and len(body) >= 4:
            name = _AUTHENTICATION.get(_NUMBER.unpack_from(body)[0], "")
        number = talk.add(SERVER, start, end, kind, name, failed=failed, payload=payload)
        if kind == "Authentication":
            # The first one says what is wanted, each later one answers what the client gave.
            if self._authentications:
                talk.answer("authentication", number)
            self._authentications += 1
        if failed:
            self._fail(number)
        elif kind == "ReadyForQuery":
            while queue and queue[0].kind not in _UNTIL_READY:
                queue.popleft()
            if queue:
                request = queue.popleft()
                if not request.answered:
                    talk.answer(request.key, number)
        elif kind not in _ASYNCHRONOUS and queue:
            self._part(kind, number)

    def _part(self, kind: str, number: int) -> None:
        talk, queue = self._talk, self._queue
        ends = _FINAL.get(kind, frozenset())
        if ends and queue[0].kind not in _UNTIL_READY:
            # After a gap requests whose answers are lost are in front.
            while queue and queue[0].kind not in ends and queue[0].kind not in _UNTIL_READY:
                queue.popleft()
            if queue and queue[0].kind in ends:
                talk.answer(queue.popleft().key, number)
                return
        if queue and not queue[0].answered:
            talk.answer(queue[0].key, number, final=False)

    def _fail(self, number: int) -> None:
        """An error: it answers the request in front, and those the server will discard."""
        talk, queue = self._talk, self._queue
        if talk.waiting("authentication"):
            talk.answer("authentication", number)
        if not queue:
            return
        if queue[0].kind in _UNTIL_READY:
            if not queue[0].answered:
                talk.answer(queue[0].key, number)
                queue[0].answered = True
            return
        while queue and queue[0].kind != "Sync":
            talk.answer(queue.popleft().key, number)
        self._discarding = not queue


_ASKS = frozenset(("Query", "Parse", "Bind", "Describe", "Execute", "Close", "Sync", "FunctionCall"))


def _short(raw: bytes) -> str:
    return raw[: 4 * _NAME_CHARACTERS].decode("utf-8", "replace")[:_NAME_CHARACTERS]


def _sql(raw: bytes) -> str:
    """The beginning of a statement, white space made one."""
    return " ".join(_short(raw[:1024].partition(b"\0")[0].lstrip()).split())


def _remember(names: dict[bytes, str], name: bytes, sql: str) -> None:
    if len(names) >= _STATEMENTS and name not in names:
        del names[next(iter(names))]
    names[name] = sql


def _bound(body: bytes) -> tuple[bytes, bytes, bytes]:
    """Portal and statement of a Bind, and the longest of its parameters."""
    portal, _, rest = body.partition(b"\0")
    statement, _, rest = rest.partition(b"\0")
    here = 2 + 2 * int.from_bytes(rest[:2], "big")
    count = int.from_bytes(rest[here : here + 2], "big")
    here += 2
    longest = b""
    for _ in range(count):
        if here + 4 > len(rest):
            break
        size = _NUMBER.unpack_from(rest, here)[0]
        here += 4
        if size == 0xFFFFFFFF:
            continue
        if size > len(longest):
            longest = rest[here : here + size]
        here += size
    return portal, statement, longest


def _database(parameters: bytes) -> str:
    words = parameters.split(b"\0", 64)
    pairs = dict(zip(words[::2], words[1::2], strict=False))
    return _short(pairs.get(b"database", pairs.get(b"user", b"")))


def _sql_state(body: bytes) -> str:
    """Field C of an error or a notice."""
    for field in body[:2048].split(b"\0"):
        if field[:1] == b"C":
            return _short(field[1:])
    return ""


def _startup_code(data: bytes, here: int) -> int:
    if len(data) - here < 8:
        return -1
    length, code = _STARTUP.unpack_from(data, here)
    return int(code) if 8 <= length <= 65_536 else -1


def _chain(sender: int, data: bytes, here: int) -> bool:
    """Whether messages follow each other from here on: three, or as many as there are."""
    kinds = _KINDS[sender]
    for count in range(3):
        if here == len(data):
            return count > 0
        if len(data) - here < 5:
            return count > 1
        length = _NUMBER.unpack_from(data, here + 1)[0] + 1
        if data[here] not in kinds or not 5 <= length <= 1 << 24:
            return False
        here += length
        if here > len(data):
            return count > 0
    return True


def _recognise(client: bytes, server: bytes) -> float:
    if _startup_code(client, 0) in _STARTUPS:
        return 1.0
    if server[:5] == b"R\0\0\0\x08" and len(server) >= 9:
        return 0.9
    sides = [(sender, front) for sender, front in ((CLIENT, client), (SERVER, server)) if front]
    if sides and all(_chain(sender, front, 0) for sender, front in sides):
        return 0.7 if len(sides) == 2 else 0.5
    return 0.0


@dissector("postgresql", ports=(5432,), recognise=_recognise)
def postgresql(talk: Talk) -> Dissection:
    """Begin a conversation."""
    return _PostgreSql(talk)
