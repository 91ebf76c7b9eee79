"""Redis: RESP2 and RESP3, inline commands, pub/sub pushes, replication. Opened through the registry.

Answers come in the order of the commands, except that pushes come in between and some commands get none or several.
Values are scanned without recursion, once, also when they arrive in pieces; secrets (AUTH, HELLO) are never told.
"""

from __future__ import annotations

import re
from collections import deque

from battlebrokers.dissect.registry import dissector
from battlebrokers.dissect.resp_values import LEAVES, LINE_BYTES, NUMBER, WHOLE, WRONG, Scan, close, scanned, simple
from battlebrokers.dissect.talk import CLIENT, WHOLE_MESSAGE_BYTES, Dissection, Talk
from battlebrokers.tables.message_header import HEADER_BYTES

_PIPELINED = 65_536

_KINDS = {
    "+": "STRING", "-": "ERROR", ":": "INTEGER", "$": "BULK", "*": "ARRAY", "_": "NIL", ",": "DOUBLE", "#": "BOOLEAN",
    "!": "ERROR", "=": "BULK", "(": "INTEGER", "%": "MAP", "~": "SET", ">": "PUSH", "|": "MAP",
}  # fmt: skip
_PUSHES = frozenset({"message", "pmessage", "smessage"})
_SUBSCRIBING = {"SUBSCRIBE": "channel", "PSUBSCRIBE": "pattern", "SSUBSCRIBE": "shard"}
_UNSUBSCRIBING = {"UNSUBSCRIBE": "channel", "PUNSUBSCRIBE": "pattern", "SUNSUBSCRIBE": "shard"}
_ABOUT_CHANNELS = frozenset(_SUBSCRIBING | _UNSUBSCRIBING)
_NAMELESS = frozenset(
    {"AUTH", "HELLO", "PING", "ECHO", "SELECT", "INFO", "CLIENT", "CONFIG", "COMMAND", "QUIT", "EVAL"}
)
_VALUES = {
    "PUBLISH": 2, "SPUBLISH": 2, "SET": 2, "SETNX": 2, "GETSET": 2, "APPEND": 2, "LPUSH": 2, "RPUSH": 2, "LPUSHX": 2,
    "RPUSHX": 2, "SADD": 2, "SETEX": 3, "PSETEX": 3, "HSET": 3, "HMSET": 3, "ZADD": 3, "XADD": -1,
}  # fmt: skip
"""Which word of a command is the user's; -1: the last."""
_POPS = frozenset({"BLPOP", "BRPOP", "BLMPOP", "LMPOP", "XREAD", "XREADGROUP", "BZPOPMIN", "BZPOPMAX"})
"""Their replies end with the user's value."""

_INLINE = re.compile(rb"[ \t]*[A-Za-z][A-Za-z0-9_.-]{0,31}(?:[ \t][\x20-\x7e\t\x80-\xff]*)?")
_MONITORED = re.compile(rb"\d{9,12}\.\d{6} \[")
_COMMAND = re.compile(rb"\*\d{1,7}\r\n\$\d{1,9}\r\n")
_REPLY = re.compile(
    rb"(?:[*~%>]\d{1,7}|\$-1|\$\d{1,9}|:-?\d{1,18}|_|\+[\x20-\x7e]{1,200}|-[A-Z]{2,20} [\x20-\x7e]{1,200})\r\n"
)
_LATER_REPLY = re.compile(rb"(?<=\r\n)[*>]\d{1,7}\r\n[$*+:]")


def _recognise(from_client: bytes, from_server: bytes) -> float:
    if _COMMAND.match(from_client):
        return 0.95
    if not from_client and re.match(rb"[*>]\d{1,7}\r\n[$+]", from_server):
        return 0.7
    return 0.7 if re.match(rb"(?i:PING|AUTH|SUBSCRIBE|MONITOR|HELLO \d)\b[^\r\n/]*\r\n$", from_client) else 0.0


@dissector("redis", ports=(6379,), recognise=_recognise)
def redis(talk: Talk) -> Dissection:
    """Begin a conversation in Redis' protocol."""
    return _Redis(talk)


class _Redis:
    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._scans = [Scan(), Scan()]
        self._lost = [False, False]
        self._expected: deque[tuple[str, int]] = deque(maxlen=_PIPELINED)
        """Commands without an answer yet, and how many answers they get."""
        self._channels: dict[str, set[bytes]] = {"channel": set(), "pattern": set(), "shard": set()}
        self._subscribed = False
        self._silent = False
        self._mute = 0
        """Commands that get no answer because of CLIENT REPLY SKIP."""
        self._replica = False
        """The server sends commands: the client replicates it."""
        self._dump_end = b""
        """What ends the dump that is on its way."""

    def gap(self, sender: int, missing_bytes: int) -> None:
        """The value half read is gone."""
        self._scans[sender] = Scan()
        self._lost[sender] = False

    def resync(self, sender: int, data: bytes) -> int:
        """At a command; at a reply, where a segment begins with one."""
        self.gap(sender, 0)
        return _search(data, 0, sender)

    def feed(self, sender: int, data: bytes, at: int) -> int:
        """Read values until one is not whole."""
        talk = self._talk
        talk.need[sender] = 0
        pos = 0
        if self._lost[sender]:
            pos = _search(data, 0, sender)
            self._lost[sender] = pos < 0
            talk.undecoded(len(data) if pos < 0 else pos)
            if pos < 0:
                return len(data)
        size = len(data)
        while pos < size and not talk.skipping[sender]:
            if sender != CLIENT and (self._replica or self._dump_end):
                after = self._dump(sender, data, at, pos)
                if after >= 0:
                    if after == pos:
                        break
                    pos = after
                    continue
            scan = self._scans[sender]
            if sender == CLIENT and not scan.here and not scan.open and data[pos] not in b"*":
                after = self._inline(data, at, pos)
                if after == pos:
                    break
                pos = after
                continue
            after = self._value(sender, data, at, pos, scan)
            if after == pos:
                break
            pos = after
        return pos

    def _value(self, sender: int, data: bytes, at: int, pos: int, scan: Scan) -> int:
        """Read on in the value at `pos`; returns where to read on, `pos` itself if there is more to come."""
        talk = self._talk
        if not scan.here and not scan.open and (whole := simple(data, pos)) is not None:
            end, top, count, words = whole
            self._tell(sender, at + pos, at + end, top, count, words[:LEAVES], words[-1])
            if scan.top:
                self._scans[sender] = Scan()
            return end
        state = scanned(data, pos, scan)
        here = pos + scan.here
        if state == WHOLE:
            if scan.told < 0:
                self._tell_scanned(sender, at + pos, at + here, data, pos, scan, -1)
            else:
                talk.extend(scan.told, at + here, 0)
            self._scans[sender] = Scan()
            return here
        if state == WRONG:
            return self._broken(sender, data, pos, scan.here)
        bulk = -state if state < 0 else 0
        if scan.told < 0 and max(len(data) - pos, scan.here + bulk) <= WHOLE_MESSAGE_BYTES:
            if bulk:
                talk.need[sender] = scan.here + bulk
            return pos
        # Too large: told by what is there, the rest is passed over.
        front = data.find(b"\r\n", here) + 2 if bulk else here
        end = here + bulk
        if bulk and len(data) < min(front + HEADER_BYTES, end):
            talk.need[sender] = min(front + HEADER_BYTES, end) - pos
            return pos
        if scan.told < 0:
            large = front if bulk else -1
            scan.told = self._tell_scanned(sender, at + pos, at + end, data, pos, scan, large, end - 2 - front)
        else:
            talk.extend(scan.told, at + end, 0)
        scan.here = 0
        if bulk:
            talk.skip(sender, end - front)
            if close(scan):
                self._scans[sender] = Scan()
            return front
        return here

    def _tell_scanned(
        self, sender: int, start: int, end: int, data: bytes, pos: int, scan: Scan, large: int, large_bytes: int = 0
    ) -> int:
        """Tell a command or a reply; `large` is where a value begins of which only the front is there."""
        words = [data[pos + first : pos + last] if first >= 0 else b"" for first, last in scan.leaves]
        last = data[pos + scan.last[0] : pos + scan.last[1]] if scan.last[0] >= 0 else b""
        payload_bytes = -1
        if large >= 0:
            last = data[large : large + HEADER_BYTES]
            payload_bytes = large_bytes
            words.append(last)
        return self._tell(sender, start, end, scan.top, scan.count, words, last, payload_bytes)

    def _tell(
        self, sender: int, start: int, end: int, top: str, count: int, words: list[bytes], last: bytes,
        payload_bytes: int = -1,
    ) -> int:  # fmt: skip
        """Tell a command or a reply by its first words and its last one."""
        if sender == CLIENT or self._replica:
            return self._command(sender, start, end, words, count, last, payload_bytes)
        return self._reply(sender, start, end, top, count, words, last, payload_bytes)

    def _command(
        self, sender: int, start: int, end: int, words: list[bytes], count: int, last: bytes, payload_bytes: int = -1
    ) -> int:
        talk = self._talk
        kind = words[0][:32].decode("latin-1").upper() if words else ""
        which = _VALUES.get(kind, 0)
        payload = last if which < 0 else words[which] if 0 < which < len(words) else b""
        if payload_bytes >= 0 and payload != last:
            payload_bytes = -1
        number = talk.add(
            sender, start, end, kind, _name(kind, words), payload=payload,
            payload_bytes=payload_bytes if payload else -1,
        )  # fmt: skip
        if sender != CLIENT or not kind:
            return number
        option = words[1].upper() if len(words) > 1 else b""
        answers = self._answers(kind, words, count - 1) if kind in _ABOUT_CHANNELS else 1
        if kind == "CLIENT" and option == b"REPLY":
            mode = words[2].upper() if len(words) > 2 else b""
            self._silent = mode == b"OFF"
            self._mute = 1 if mode == b"SKIP" else 0
            if mode != b"ON":
                return number
        elif self._silent:
            return number
        elif self._mute:
            self._mute -= 1
            return number
        if kind == "REPLCONF" and option == b"ACK":
            return number
        talk.ask("reply", number, ordered=True)
        self._expected.append((kind, answers))
        return number

    def _answers(self, kind: str, words: list[bytes], count: int) -> int:
        """How many answers a command about channels gets: one for each of them."""
        named = set(words[1:])
        if kind in _SUBSCRIBING:
            self._subscribed = True
            channels = self._channels[_SUBSCRIBING[kind]]
            if len(channels) < _PIPELINED:
                channels |= named
            return max(1, count)
        channels = self._channels[_UNSUBSCRIBING[kind]]
        count = count or len(channels)
        channels -= named or set(channels)
        return max(1, count)

    def _reply(
        self, sender: int, start: int, end: int, top: str, count: int, words: list[bytes], last: bytes,
        payload_bytes: int,
    ) -> int:  # fmt: skip
        talk = self._talk
        expected = self._expected[0] if self._expected else ("", 1)
        kind = "NIL" if count < 0 else _KINDS[top]
        if top == "+":
            text = words[0] if words else b""
            if not self._expected and _MONITORED.match(text):
                return talk.add(sender, start, end, "MONITOR")
            kind = text.split(b" ", 1)[0][:32].decode("latin-1") or kind
        first, confirms, pushes = "", False, False
        if top in "*>":
            first = words[0][:32].decode("latin-1").lower() if words else ""
            confirms = first.upper() in _ABOUT_CHANNELS
            pushes = first in _PUSHES and (self._subscribed or not self._expected)
        if top == ">" or (top == "*" and (pushes or confirms)):
            name = words[1][:256].decode("utf-8", "replace") if len(words) > 1 else ""
            payload = last if first in _PUSHES else b""
            number = talk.add(
                sender, start, end, first or kind, name, payload=payload, payload_bytes=payload_bytes if payload else -1
            )
            if not confirms or first.upper() != expected[0]:
                return number
        else:
            user = top in "$=" or expected[0] in _POPS
            name = words[0].split(b" ", 1)[0][:64].decode("latin-1") if top in "-!" and words else ""
            number = talk.add(
                sender, start, end, kind, name, failed=top in "-!", payload=last if user else b"",
                payload_bytes=payload_bytes if user else -1,
            )  # fmt: skip
        command, answers = expected
        final = answers <= 1 or top in "-!"
        talk.answer("reply", number, final=final)
        if self._expected:
            if final:
                self._expected.popleft()
            else:
                self._expected[0] = command, answers - 1
        if command in ("PSYNC", "SYNC") and top == "+":
            self._replica = True
        return number

    def _dump(self, sender: int, data: bytes, at: int, pos: int) -> int:
        """What a replica is sent: a dump without line break behind it. Returns where to read on; -1: no dump here."""
        talk = self._talk
        if self._dump_end:
            found = data.find(self._dump_end, pos)
            after = found + len(self._dump_end) if found >= 0 else max(pos, len(data) - len(self._dump_end) + 1)
            talk.undecoded(after - pos)
            self._dump_end = b"" if found >= 0 else self._dump_end
            return after
        if data[pos] != ord("$") or self._scans[sender].open or self._scans[sender].here:
            return pos + 1 if data[pos] in b"\r\n" and not self._scans[sender].open else -1
        line = data.find(b"\r\n", pos, pos + 64)
        if line < 0:
            return pos if len(data) - pos < 64 else self._broken(sender, data, pos)
        header = data[pos + 1 : line]
        if header.startswith(b"EOF:"):
            self._dump_end = header[4:]
            talk.add(sender, at + pos, at + line + 2, "DUMP")
            return line + 2
        if not NUMBER.fullmatch(header) or int(header) < 0:
            return self._broken(sender, data, pos)
        talk.add(sender, at + pos, at + line + 2 + int(header), "DUMP", payload_bytes=int(header))
        talk.skip(sender, int(header))
        return line + 2

    def _inline(self, data: bytes, at: int, pos: int) -> int:
        """A command typed as a line."""
        stop = data.find(b"\n", pos, pos + LINE_BYTES)
        if stop < 0:
            begins = data[pos] == ord("\r") or _INLINE.match(data, pos)
            if len(data) - pos >= LINE_BYTES or not begins:
                return self._broken(CLIENT, data, pos)
            return pos
        line = data[pos:stop].rstrip(b"\r")
        if line and not _INLINE.fullmatch(line):
            return self._broken(CLIENT, data, pos)
        if words := line.split():
            self._command(CLIENT, at + pos, at + stop + 1, words, len(words), words[-1])
        return stop + 1

    def _broken(self, sender: int, data: bytes, pos: int, read: int = 0) -> int:
        """No value begins here, or it goes wrong after `read` bytes: read on where one does."""
        self._scans[sender] = Scan()
        found = _search(data, pos + max(1, read), sender)
        self._lost[sender] = found < 0
        after = found if found >= 0 else len(data)
        self._talk.broken(after - pos)
        return after


def _name(kind: str, words: list[bytes]) -> str:
    """What a command is about: its key or channels."""
    if kind in _NAMELESS or len(words) < 2:
        return ""
    if kind in ("XREAD", "XREADGROUP"):
        upper = [word.upper() for word in words]
        place = upper.index(b"STREAMS") + 1 if b"STREAMS" in upper else len(words)
        return words[place][:256].decode("utf-8", "replace") if place < len(words) else ""
    if kind not in _ABOUT_CHANNELS:
        return words[1][:256].decode("utf-8", "replace")
    return ", ".join(word[:256].decode("utf-8", "replace") for word in words[1:])


def _search(data: bytes, start: int, sender: int) -> int:
    """Where a value seems to begin; -1 if none does."""
    if sender == CLIENT:
        found = _COMMAND.search(data, start)
    else:
        found = (_REPLY.match(data) if not start else None) or _LATER_REPLY.search(data, start)
    return found.start() if found else -1
