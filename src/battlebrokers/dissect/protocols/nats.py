"""NATS, the client protocol: publishing, subscribing, requests by reply subject. Opened through the registry.

Who publishes with a reply subject asks, and so does who is delivered a message with one (a service): the first message
on that subject is the answer. In verbose mode each command is answered by `+OK`, in order.
"""

from __future__ import annotations

import re

from battlebrokers.dissect.registry import dissector
from battlebrokers.dissect.talk import CLIENT, WHOLE_MESSAGE_BYTES, Dissection, Talk
from battlebrokers.tables.message_header import HEADER_BYTES

_LINE_BYTES = 64 * 1024
_PAYLOAD_BYTES = 256 << 20
_VERBOSE = re.compile(rb'"verbose"\s*:\s*true')
_STATUS = re.compile(rb"NATS/1\.0 +(\d{3})")
_NUMBER = re.compile(rb"\d{1,9}")
_SHORTEST = {b"PUB": 2, b"HPUB": 3, b"MSG": 3, b"HMSG": 4}
"""Fewest words behind the verbs that carry a payload."""
_VERBS = frozenset({*_SHORTEST, b"SUB", b"UNSUB", b"INFO", b"CONNECT", b"PING", b"PONG", b"+OK", b"-ERR"})
_LONGEST_VERB = 7
_SOMEWHERE = re.compile(
    rb"(?:^|(?<=\r\n))(?:H?PUB \S+ (?:\S+ )?[\d ]{1,20}\r\n|H?MSG \S+ \S+ (?:\S+ )?[\d ]{1,20}\r\n|SUB \S+ |UNSUB \S+"
    rb"|PING\r\n|PONG\r\n|\+OK\r\n|-ERR '|INFO \{|CONNECT \{)"
)


def _recognise(from_client: bytes, from_server: bytes) -> float:
    if from_server.startswith((b"INFO {", b"INFO  {")) or from_client.startswith(b"CONNECT {"):
        return 0.95
    found = _SOMEWHERE.match(from_client) or _SOMEWHERE.match(from_server)
    # PING is said elsewhere, too.
    return 0.7 if found and found[0][:2] not in (b"PI", b"PO", b"+O") else 0.0


@dissector("nats", ports=(4222,), recognise=_recognise)
def nats(talk: Talk) -> Dissection:
    """Begin a conversation in NATS."""
    return _Nats(talk)


class _Nats:
    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._verbose = False
        self._lost = [False, False]

    def gap(self, sender: int, missing_bytes: int) -> None:
        """Nothing is kept between messages."""
        self._lost[sender] = False

    def resync(self, sender: int, data: bytes) -> int:
        """At the next line with a verb."""
        found = _SOMEWHERE.search(data)
        return found.start() if found else -1

    def feed(self, sender: int, data: bytes, at: int) -> int:
        """Read lines and the payloads behind them."""
        talk = self._talk
        talk.need[sender] = 0
        pos, size = 0, len(data)
        if self._lost[sender]:
            pos = max(self.resync(sender, data), -1)
            self._lost[sender] = pos < 0
            talk.undecoded(size if pos < 0 else pos)
            if pos < 0:
                return size
        while pos < size:
            line = data.find(b"\n", pos, pos + _LINE_BYTES)
            if line < 0:
                if size - pos >= _LINE_BYTES or (size - pos > _LONGEST_VERB and not _begins(data, pos)):
                    pos = self._broken(sender, data, pos)
                    continue
                break
            words = data[pos:line].split(None, 1)
            if not words:
                pos = line + 1
                continue
            verb = words[0].upper()
            if verb in _SHORTEST:
                after = self._carrier(sender, data, at, pos, line + 1, verb)
                if after == pos or talk.skipping[sender]:
                    return after
                pos = after
            elif verb in _VERBS:
                self._line(sender, at + pos, at + line + 1, verb, words[1].strip() if len(words) > 1 else b"")
                pos = line + 1
            else:
                pos = self._broken(sender, data, pos)
        return pos

    def _carrier(self, sender: int, data: bytes, at: int, pos: int, body: int, verb: bytes) -> int:
        """PUB, HPUB, MSG and HMSG; returns where to read on, `pos` if there is more to come."""
        talk = self._talk
        words = data[pos:body].split()[1:]
        shortest, headed = _SHORTEST[verb], verb[:1] == b"H"
        numbers = words[-2:] if headed else words[-1:]
        if len(words) - shortest not in (0, 1) or not all(_NUMBER.fullmatch(number) for number in numbers):
            return self._broken(sender, data, pos)
        size = int(numbers[-1])
        head = int(numbers[0]) if headed else 0
        end = body + size + 2
        if size > _PAYLOAD_BYTES or head > size:
            return self._broken(sender, data, pos)
        kind, subject = verb.decode(), words[0].decode("utf-8", "replace")
        reply = words[-len(numbers) - 1].decode("utf-8", "replace") if len(words) > shortest else ""
        if end - pos > WHOLE_MESSAGE_BYTES:
            front = body + (head if head < WHOLE_MESSAGE_BYTES // 2 else 0)
            if len(data) < front + HEADER_BYTES:
                talk.need[sender] = front + HEADER_BYTES - pos
                return pos
            payload = data[front : front + HEADER_BYTES]
            number = talk.add(
                sender, at + pos, at + end, kind, subject, reply, payload=payload, payload_bytes=size - head
            )
            talk.skip(sender, end - body)
            self._pair(sender, verb, subject, reply, number)
            return body
        if end > len(data):
            talk.need[sender] = end - pos
            return pos
        if data[end - 2 : end] != b"\r\n":
            return self._broken(sender, data, pos)
        status = _STATUS.match(data, body) if head else None
        failed = status is not None and status[1] >= b"400"
        number = talk.add(
            sender, at + pos, at + end, kind, subject, reply, failed=failed, payload=data[body + head : end - 2]
        )
        self._pair(sender, verb, subject, reply, number)
        return end

    def _pair(self, sender: int, verb: bytes, subject: str, reply: str, number: int) -> None:
        talk = self._talk
        publishes = verb.endswith(b"PUB")
        if reply:
            talk.ask(("subject", sender, reply), number)
        elif publishes and self._verbose:
            talk.ask("OK", number, ordered=True)
        talk.answer(("subject", 1 - sender, subject), number, early=True)

    def _line(self, sender: int, start: int, end: int, verb: bytes, rest: bytes) -> None:
        talk = self._talk
        name = ""
        if verb in (b"SUB", b"UNSUB"):
            name = rest.split(None, 1)[0].decode("utf-8", "replace") if rest else ""
        elif verb == b"-ERR":
            name = rest.strip(b"' ")[:256].decode("utf-8", "replace")
        number = talk.add(sender, start, end, verb.decode(), name, failed=verb == b"-ERR")
        if verb == b"PING":
            talk.ask(("PING", sender), number, ordered=True)
        elif verb == b"PONG":
            talk.answer(("PING", 1 - sender), number, early=True)
        elif verb in (b"+OK", b"-ERR"):
            talk.answer("OK", number)
        elif verb == b"CONNECT":
            self._verbose = _VERBOSE.search(rest) is not None
        if self._verbose and sender == CLIENT and verb in (b"CONNECT", b"SUB", b"UNSUB"):
            talk.ask("OK", number, ordered=True)

    def _broken(self, sender: int, data: bytes, pos: int) -> int:
        """No line of the protocol begins here: read on where one does."""
        found = _SOMEWHERE.search(data, pos + 1)
        self._lost[sender] = found is None
        after = found.start() if found else len(data)
        self._talk.broken(after - pos)
        return after


def _begins(data: bytes, pos: int) -> bool:
    """Whether a line that is not whole yet begins with a verb."""
    words = data[pos : pos + _LONGEST_VERB + 1].split(None, 1)
    return not words or words[0].upper() in _VERBS
