"""DNS over UDP and TCP: requests are `QUERY A`, `NOTIFY SOA`, …, answers their result (`NOERROR`, `NXDOMAIN`, …).

An answer belongs to the request with its id and question. Opened by the registry; over TCP under the name `dns-tcp`,
with messages still called `dns`.
"""

from __future__ import annotations

from struct import Struct

from battlebrokers.dissect.registry import dissector
from battlebrokers.dissect.talk import Dissection, Talk

_HEADER = Struct(">HHHHHH")
_QUESTION = Struct(">HH")
_JUMPS = 32
_FRONT_BYTES = 510
"""What is shown for recognising a protocol may be cut here."""
_NAME_BYTES = 255
_OPCODES = {0: "QUERY", 1: "IQUERY", 2: "STATUS", 4: "NOTIFY", 5: "UPDATE", 6: "DSO"}
_RESULTS = {
    0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED", 6: "YXDOMAIN", 7: "YXRRSET",
    8: "NXRRSET", 9: "NOTAUTH", 10: "NOTZONE",
}  # fmt: skip
_TYPES = {
    1: "A", 2: "NS", 5: "CNAME", 6: "SOA", 12: "PTR", 15: "MX", 16: "TXT", 28: "AAAA", 33: "SRV", 35: "NAPTR",
    43: "DS", 46: "RRSIG", 47: "NSEC", 48: "DNSKEY", 52: "TLSA", 64: "SVCB", 65: "HTTPS", 251: "IXFR", 252: "AXFR",
    255: "ANY", 257: "CAA",
}  # fmt: skip
_REMEMBERED = 8192


class _Dns:
    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._questions: dict[tuple[int, int], tuple[str, int]] = {}
        """Asker and id → question, for answers that do not repeat it."""

    def read(self, sender: int, data: bytes, start: int, end: int) -> bool:
        """One message; False if it is none."""
        read = _read(data)
        if read is None:
            return False
        identity, flags, question = read
        name, kind = question if question is not None else ("", -1)
        talk, word = self._talk, _TYPES.get(kind, f"TYPE{kind}") if kind >= 0 else ""
        if not flags & 0x8000:
            opcode = flags >> 11 & 15
            label = f"{_OPCODES.get(opcode, f'OPCODE{opcode}')} {word}".rstrip()
            number = talk.add(sender, start, end, label, name, f"{identity:04x}")
            key = (sender, identity, name.lower(), kind)
            if not talk.waiting(key):  # else it is the same question once more
                talk.ask(key, number)
            if len(self._questions) >= _REMEMBERED:
                self._questions.clear()
            self._questions[sender, identity] = (name.lower(), kind)
            return True
        result = flags & 15
        asked = (name.lower(), kind) if question else self._questions.get((1 - sender, identity), ("", -1))
        number = talk.add(
            sender, start, end, _RESULTS.get(result, f"RCODE{result}"), name or asked[0], f"{identity:04x}",
            failed=result != 0,
        )  # fmt: skip
        talk.answer((1 - sender, identity, *asked), number)
        return True


class _Datagrams(_Dns):
    def feed(self, sender: int, data: bytes, at: int) -> int:
        return len(data) if self.read(sender, data, at, at + len(data)) else 0

    def gap(self, sender: int, missing_bytes: int) -> None:
        """Datagrams stand for themselves."""

    def resync(self, sender: int, data: bytes) -> int:
        return 0


class _Framed(_Dns):
    def feed(self, sender: int, data: bytes, at: int) -> int:
        here, size = 0, len(data)
        self._talk.need[sender] = 0
        while size - here >= 2:
            end = here + 2 + int.from_bytes(data[here : here + 2], "big")
            if end > size:
                self._talk.need[sender] = end - here
                break
            if not self.read(sender, data[here + 2 : end], at + here, at + end):
                self._talk.broken(end - here)
            here = end
        return here

    def gap(self, sender: int, missing_bytes: int) -> None:
        """Nothing is held between messages."""

    def resync(self, sender: int, data: bytes) -> int:
        length = int.from_bytes(data[:2], "big")
        return 0 if length >= 12 and _read(data[2 : 2 + length]) is not None else -1


def _read(data: bytes) -> tuple[int, int, tuple[str, int] | None] | None:
    """Id, flags, first question (if any); None if it is not DNS."""
    if len(data) < _HEADER.size:
        return None
    identity, flags, questions, answers, authorities, additional = _HEADER.unpack_from(data)
    if flags >> 11 & 15 > 6 or flags & 0x40 or questions > 1:
        return None
    if not questions and not flags & 0x8000 and not additional:
        return None
    if (answers + authorities + additional) * 11 > len(data) and len(data) < _FRONT_BYTES:
        return None  # no room for so many records
    if not questions:
        return identity, flags, None
    name, here = _name(data, _HEADER.size)
    if name is None or here + 4 > len(data):
        return None
    kind, _ = _QUESTION.unpack_from(data, here)
    return identity, flags, (name, kind)


def _name(data: bytes, here: int) -> tuple[str | None, int]:
    """A name, and where it ends; None if it leads nowhere."""
    labels: list[bytes] = []
    size, jumps, end = 0, 0, -1
    while here < len(data):
        length = data[here]
        if length >= 0xC0:
            if here + 1 >= len(data) or jumps >= _JUMPS:
                return None, here
            end = here + 2 if end < 0 else end
            here = (length & 0x3F) << 8 | data[here + 1]
            jumps += 1
            continue
        here += 1
        if not length:
            return b".".join(labels).decode("utf-8", "replace"), here if end < 0 else end
        size += length + 1
        if length > 63 or size > _NAME_BYTES or here + length > len(data):
            return None, here
        labels.append(data[here : here + length])
        here += length
    return None, here


def _recognise(client: bytes, server: bytes) -> float:
    fronts = [_read(front) for front in (client, server) if front]
    if not fronts or None in fronts:
        return 0.0
    questions = [front[2] for front in fronts if front is not None and front[2] is not None]
    return 0.7 if questions and all(kind in _TYPES for _, kind in questions) else 0.3


def _recognise_framed(client: bytes, server: bytes) -> float:
    fronts = [front for front in (client, server) if front]
    if any(int.from_bytes(front[:2], "big") < 12 for front in fronts):
        return 0.0
    return _recognise(client[2:], server[2:])


@dissector("dns", ports=(53,), transport="udp", recognise=_recognise)
def dns(talk: Talk) -> Dissection:
    """Begin a conversation in datagrams."""
    return _Datagrams(talk)


@dissector("dns-tcp", ports=(53,), recognise=_recognise_framed)
def dns_tcp(talk: Talk) -> Dissection:
    """Begin a conversation over TCP."""
    talk.protocol = "dns"
    return _Framed(talk)
