"""TLS: recognised, its records counted, the handshake's open part read. Opened through the registry.

With secrets from a key log records are opened and what is inside is read by its own dissector; without, application
data is told by its size and counted as undecoded.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from battlebrokers.dissect.hints import Hints
from battlebrokers.dissect.nested import Nested
from battlebrokers.dissect.registry import dissector, recognised
from battlebrokers.dissect.talk import CLIENT, Dissection, Talk

if TYPE_CHECKING:
    from battlebrokers.dissect.tls_secrets import Opener

_CHANGE_CIPHER, _ALERT, _HANDSHAKE, _APPLICATION, _HEARTBEAT = 20, 21, 22, 23, 24
_RECORD_BYTES = 16384 + 2048
_HEADER = 5
_KINDS = {
    _CHANGE_CIPHER: "ChangeCipherSpec", _ALERT: "Alert", _HANDSHAKE: "Handshake", _APPLICATION: "ApplicationData",
    _HEARTBEAT: "Heartbeat",
}  # fmt: skip
_HANDSHAKES = {
    0: "HelloRequest", 1: "ClientHello", 2: "ServerHello", 4: "NewSessionTicket", 8: "EncryptedExtensions",
    11: "Certificate", 12: "ServerKeyExchange", 13: "CertificateRequest", 14: "ServerHelloDone",
    15: "CertificateVerify", 16: "ClientKeyExchange", 20: "Finished", 22: "CertificateStatus", 24: "KeyUpdate",
}  # fmt: skip
_CLIENT_HELLO, _SERVER_HELLO = 1, 2
_RANDOM_BYTES = 32
_TLS_1_3 = 0x0304
_SERVER_NAME, _SUPPORTED_VERSIONS = 0, 43
_TRIES = 4
"""So many first records of a side may tell what is spoken inside."""
_CLOSE_NOTIFY = 0
_HELLO = re.compile(rb"\x16\x03[\x00-\x04]..[\x01\x02]\x00..\x03", re.DOTALL)


def _recognise(from_client: bytes, from_server: bytes) -> float:
    if _HELLO.match(from_client) or _HELLO.match(from_server):
        return 0.95
    return 0.7 if _chain(from_client, 0) >= 2 or _chain(from_server, 0) >= 2 else 0.0


@dissector("tls", ports=(443, 8443, 8883, 5671, 5684, 9443), recognise=_recognise)
def tls(talk: Talk) -> Dissection:
    """Begin a conversation in TLS."""
    return _Tls(talk)


class _Tls:
    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._sealed = [False, False]
        """From its ChangeCipherSpec on a side's records are encrypted."""
        self._lost = [False, False]
        self._secrets = talk.hints.tls_secrets if isinstance(talk.hints, Hints) else {}
        self._client_random = b""
        self._openers: tuple[Opener, Opener] | None = None
        self._hides_kinds = False
        """From TLS 1.3 on records say what they are inside."""
        self._handshake_left = [0, 0]
        """How much of an opened handshake message is still to come."""
        self._nested: Nested | None = None
        self._tries = [0, 0]

    def gap(self, sender: int, missing_bytes: int) -> None:
        """The change of ciphers may have been in what is missing."""
        self._sealed[sender] = True
        self._lost[sender] = False
        self._handshake_left[sender] = 0
        if self._openers is not None:
            self._openers[sender].gap(missing_bytes)
        if self._nested is not None:
            self._nested.gap(sender, missing_bytes, lost=True)

    def resync(self, sender: int, data: bytes) -> int:
        """Where records lie one behind the other."""
        return _search(data, 0)

    def feed(self, sender: int, data: bytes, at: int) -> int:
        """Read records."""
        talk = self._talk
        talk.need[sender] = 0
        pos, size = 0, len(data)
        if self._lost[sender]:
            pos = _search(data, 0)
            self._lost[sender] = pos < 0
            talk.undecoded(size if pos < 0 else pos)
            if pos < 0:
                return size
        while pos + _HEADER <= size:
            length = _record(data, pos)
            if length < 0:
                found = _search(data, pos + 1)
                self._lost[sender] = found < 0
                after = found if found >= 0 else size
                talk.broken(after - pos)
                pos = after
                continue
            end = pos + _HEADER + length
            if end > size:
                talk.need[sender] = end - pos
                break
            self._tell(sender, data, at, pos, end)
            pos = end
        return pos

    def _tell(self, sender: int, data: bytes, at: int, pos: int, end: int) -> None:
        kind, body = data[pos], pos + _HEADER
        if kind == _CHANGE_CIPHER:
            self._sealed[sender] = True
        elif self._openers is not None and (kind == _APPLICATION or self._sealed[sender]):
            content = self._openers[sender].open(data[pos:body], data[body:end])
            if content is not None:
                self._tell_opened(sender, at + pos, at + end, kind, content)
                return
        self._tell_closed(sender, at + pos, at + end, kind, data[body:end])

    def _tell_closed(self, sender: int, start: int, end: int, kind: int, content: bytes) -> None:
        """A record as it is on the wire."""
        talk = self._talk
        name, failed, label, payload_bytes = "", False, _KINDS[kind], 0
        handshake = content[0] if kind == _HANDSHAKE and content and not self._sealed[sender] else -1
        if kind == _APPLICATION:
            payload_bytes = len(content)
            talk.undecoded(payload_bytes)
            if self._nested is not None:
                self._nested.gap(sender, payload_bytes, lost=True)
        elif kind == _ALERT and len(content) == 2:
            name, failed = _alert(content)
        elif handshake in _HANDSHAKES:
            label = _HANDSHAKES[handshake]
            if handshake == _CLIENT_HELLO:
                name = _server_name(content)
                self._client_random = content[6 : 6 + _RANDOM_BYTES]
            elif handshake == _SERVER_HELLO and self._client_random in self._secrets:
                self._agree(content)
        number = talk.add(sender, start, end, label, name, failed=failed, payload_bytes=payload_bytes)
        if handshake == _CLIENT_HELLO:
            talk.ask(("hello", sender), number, ordered=True)
        elif handshake == _SERVER_HELLO or failed:
            talk.answer(("hello", 1 - sender), number, early=handshake == _SERVER_HELLO)

    def _agree(self, hello: bytes) -> None:
        # Imported only for those who have secrets: it takes a while.
        from battlebrokers.dissect.tls_secrets import Agreement, openers

        at = 6 + _RANDOM_BYTES
        at += 1 + hello[at] if at < len(hello) else 0
        chosen = int.from_bytes(_extension(hello, at + 3, _SUPPORTED_VERSIONS)[:2], "big")
        version = chosen or int.from_bytes(hello[4:6], "big")
        suite = int.from_bytes(hello[at : at + 2], "big")
        agreed = Agreement(version, suite, self._client_random, hello[6 : 6 + _RANDOM_BYTES])
        self._openers = openers(agreed, self._secrets[self._client_random])
        self._hides_kinds = version == _TLS_1_3

    def _tell_opened(self, sender: int, start: int, end: int, kind: int, content: bytes) -> None:
        """A record that was decrypted; in TLS 1.3 its true kind stands behind what it holds."""
        talk = self._talk
        if self._hides_kinds:
            content = content.rstrip(b"\x00")
            kind, content = (content[-1], content[:-1]) if content else (-1, b"")
        if kind == _APPLICATION:
            self._inside(sender, start, end, content)
        elif kind == _HANDSHAKE:
            talk.add(sender, start, end, self._handshake(sender, content))
        elif kind == _ALERT and len(content) == 2:
            name, failed = _alert(content)
            talk.add(sender, start, end, "Alert", name, failed=failed)
            if self._nested is not None:
                self._nested.end()
        else:
            talk.add(sender, start, end, _KINDS.get(kind, "Record"))

    def _handshake(self, sender: int, content: bytes) -> str:
        """Which message of the handshake begins first in here; those that only go on have no name."""
        label, pos = "", self._handshake_left[sender]
        while pos + 4 <= len(content):
            label = label or _HANDSHAKES.get(content[pos], "")
            pos += 4 + int.from_bytes(content[pos + 1 : pos + 4], "big")
        self._handshake_left[sender] = max(0, pos - len(content))
        return label or "Handshake"

    def _inside(self, sender: int, start: int, end: int, content: bytes) -> None:
        """What the application said."""
        if not content:
            return
        if self._nested is None and self._tries[sender] < _TRIES:
            self._tries[sender] += 1
            found = recognised("tcp", 0, 0, *((content, b"") if sender == CLIENT else (b"", content)))
            if found is not None and found[0].name != "tls":
                self._nested = Nested(self._talk, found[0])
        if self._nested is not None:
            self._nested.feed(sender, content, start, end)
            return
        self._talk.undecoded(len(content))
        self._talk.add(sender, start, end, _KINDS[_APPLICATION], payload_bytes=len(content))


def _alert(content: bytes) -> tuple[str, bool]:
    """Its number, and whether it says that something went wrong."""
    return str(content[1]), content[0] == 2 and content[1] != _CLOSE_NOTIFY


def _record(data: bytes, pos: int) -> int:
    """Length of the record at `pos`; -1 if there is none."""
    if data[pos] not in _KINDS or data[pos + 1] != 3 or data[pos + 2] > 4:
        return -1
    length = data[pos + 3] << 8 | data[pos + 4]
    return length if length <= _RECORD_BYTES and (length or data[pos] == _APPLICATION) else -1


def _chain(data: bytes, pos: int) -> int:
    """How many records lie one behind the other, at most 3; the last may go beyond the data, a single one not."""
    records = 0
    while records < 3 and pos + _HEADER <= len(data):
        length = _record(data, pos)
        if length < 0:
            return 0
        pos += _HEADER + length
        records += 1
    return records if pos <= len(data) or records > 1 else 0


def _search(data: bytes, start: int) -> int:
    """Where records seem to begin; -1 if they do not."""
    pos = start
    while (pos := data.find(b"\x03", pos + 1)) > 0:
        if pos + 4 > len(data):
            break
        # One record that ends with the data, or several in a row.
        length = _record(data, pos - 1)
        if pos - 1 >= start and length >= 0 and (pos + 4 + length == len(data) or _chain(data, pos - 1) >= 2):
            return pos - 1
        if pos - 1 == 0 == start and length > 1024:
            return 0  # a long record at the beginning of a segment
    return -1


def _server_name(hello: bytes) -> str:
    """The server's name in a ClientHello; empty if there is none."""
    here = 4 + 2 + 32
    for width in (1, 2, 1):  # session id, cipher suites, compression methods
        here += width + int.from_bytes(hello[here : here + width], "big")
    name = _extension(hello, here, _SERVER_NAME)
    return name[5 : 5 + int.from_bytes(name[3:5], "big")].decode("ascii", "replace")


def _extension(hello: bytes, here: int, wanted: int) -> bytes:
    """What an extension says, of those that begin with their length at `here`; empty if there is none."""
    here += 2
    while here + 4 <= len(hello):
        kind, length = int.from_bytes(hello[here : here + 2], "big"), int.from_bytes(hello[here + 2 : here + 4], "big")
        here += 4
        if kind == wanted:
            return hello[here : here + length]
        here += length
    return b""
