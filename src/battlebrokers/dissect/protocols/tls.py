"""TLS: recognised, its records counted, the handshake's open part read. Opened through the registry.

Nothing is decrypted, with or without keys: application data is told by its size and counted as undecoded. What is
inside can be measured where the traffic is not encrypted: behind the TLS terminator.
"""

from __future__ import annotations

import re

from battlebrokers.dissect.registry import dissector
from battlebrokers.dissect.talk import Dissection, Talk

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
    15: "CertificateVerify", 16: "ClientKeyExchange", 20: "Finished", 22: "CertificateStatus",
}  # fmt: skip
_CLIENT_HELLO, _SERVER_HELLO = 1, 2
_SERVER_NAME = 0
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

    def gap(self, sender: int, missing_bytes: int) -> None:
        """The change of ciphers may have been in what is missing."""
        self._sealed[sender] = True
        self._lost[sender] = False

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
        talk = self._talk
        kind, body = data[pos], pos + _HEADER
        name, failed, label, payload_bytes = "", False, _KINDS[kind], 0
        handshake = data[body] if kind == _HANDSHAKE and end > body and not self._sealed[sender] else -1
        if kind == _APPLICATION:
            payload_bytes = end - body
            talk.undecoded(payload_bytes)
        elif kind == _CHANGE_CIPHER:
            self._sealed[sender] = True
        elif kind == _ALERT and end - body == 2:
            name = str(data[body + 1])
            failed = data[body] == 2 and data[body + 1] != _CLOSE_NOTIFY
        elif handshake in _HANDSHAKES:
            label = _HANDSHAKES[handshake]
            if handshake == _CLIENT_HELLO:
                name = _server_name(data[body:end])
        number = talk.add(sender, at + pos, at + end, label, name, failed=failed, payload_bytes=payload_bytes)
        if handshake == _CLIENT_HELLO:
            talk.ask(("hello", sender), number, ordered=True)
        elif handshake == _SERVER_HELLO or failed:
            talk.answer(("hello", 1 - sender), number, early=handshake == _SERVER_HELLO)


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
    here += 2
    while here + 4 <= len(hello):
        kind, length = int.from_bytes(hello[here : here + 2], "big"), int.from_bytes(hello[here + 2 : here + 4], "big")
        here += 4
        if kind == _SERVER_NAME:
            size = int.from_bytes(hello[here + 3 : here + 5], "big")
            return hello[here + 5 : here + 5 + size].decode("ascii", "replace")
        here += length
    return ""
