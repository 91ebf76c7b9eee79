"""OpenFlow 1.0 to 1.5 between switch and controller; kinds are the message types without their OFPT_.

Requests pair with replies by transaction id (multipart replies until the last part, errors with whatever they name);
PACKET_IN pairs with the PACKET_OUT or FLOW_MOD for its buffer, or, without one, with the PACKET_OUT that carries the
same packet: that delay is the controller's. FLOW_MOD and the like ask nothing, but an error answers them.
"""

from __future__ import annotations

import re
from struct import Struct

from battlebrokers.dissect.payload_marks import fingerprint_of
from battlebrokers.dissect.registry import dissector
from battlebrokers.dissect.talk import CLIENT, Dissection, Talk

_HEADER = Struct(">BBHI")
_PAIR = Struct(">HH")
_NUMBER = Struct(">I")
_NO_BUFFER = 0xFFFFFFFF
_REMEMBERED = 4096

_EARLY = (
    "HELLO", "ERROR", "ECHO_REQUEST", "ECHO_REPLY", "EXPERIMENTER", "FEATURES_REQUEST", "FEATURES_REPLY",
    "GET_CONFIG_REQUEST", "GET_CONFIG_REPLY", "SET_CONFIG", "PACKET_IN", "FLOW_REMOVED", "PORT_STATUS", "PACKET_OUT",
    "FLOW_MOD",
)  # fmt: skip
_TYPES_10 = (
    *_EARLY, "PORT_MOD", "STATS_REQUEST", "STATS_REPLY", "BARRIER_REQUEST", "BARRIER_REPLY",
    "QUEUE_GET_CONFIG_REQUEST", "QUEUE_GET_CONFIG_REPLY",
)  # fmt: skip
_TYPES_11 = (
    *_EARLY, "GROUP_MOD", "PORT_MOD", "TABLE_MOD", "MULTIPART_REQUEST", "MULTIPART_REPLY", "BARRIER_REQUEST",
    "BARRIER_REPLY", "QUEUE_GET_CONFIG_REQUEST", "QUEUE_GET_CONFIG_REPLY", "ROLE_REQUEST", "ROLE_REPLY",
    "GET_ASYNC_REQUEST", "GET_ASYNC_REPLY", "SET_ASYNC", "METER_MOD", "ROLE_STATUS", "TABLE_STATUS", "REQUESTFORWARD",
    "BUNDLE_CONTROL", "BUNDLE_ADD_MESSAGE",
)  # fmt: skip
_SILENT = frozenset((
    "SET_CONFIG", "PACKET_OUT", "FLOW_MOD", "GROUP_MOD", "PORT_MOD", "TABLE_MOD", "SET_ASYNC", "METER_MOD",
    "EXPERIMENTER", "BUNDLE_CONTROL", "BUNDLE_ADD_MESSAGE", "HELLO",
))  # fmt: skip
"""What is answered only when it fails."""
_STATISTICS = {
    0: "DESC", 1: "FLOW", 2: "AGGREGATE", 3: "TABLE", 4: "PORT_STATS", 5: "QUEUE", 6: "GROUP", 7: "GROUP_DESC",
    8: "GROUP_FEATURES", 9: "METER", 10: "METER_CONFIG", 11: "METER_FEATURES", 12: "TABLE_FEATURES", 13: "PORT_DESC",
    0xFFFF: "EXPERIMENTER",
}  # fmt: skip
_COMMANDS = ("ADD", "MODIFY", "MODIFY_STRICT", "DELETE", "DELETE_STRICT")
_LIKELY = re.compile(b"[\\x01-\\x06](?=[\\x00-\\x22])")


class _OpenFlow:
    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._silent: dict[tuple[int, int], int] = {}
        """Sender and transaction id → number of the last message that is answered only when it fails."""
        self._errors: dict[tuple[int, int], int] = {}
        """Errors whose cause has not been read yet, by the same key."""
        self._lost = [False, False]

    def feed(self, sender: int, data: bytes, at: int) -> int:
        talk, size, here = self._talk, len(data), 0
        talk.need[sender] = 0
        if self._lost[sender]:
            here = _search(data, 0)
            talk.undecoded_bytes += here
            self._lost[sender] = here >= size
        while size - here >= 8:
            version, kind, length, identity = _HEADER.unpack_from(data, here)
            if not _plausible(version, kind, length):
                found = _search(data, here + 1)
                talk.broken(found - here)
                here = found
                self._lost[sender] = here >= size
                continue
            end = here + length
            if end > size:
                talk.need[sender] = length
                break
            name = (_TYPES_10 if version == 1 else _TYPES_11)[kind]
            self._message(sender, version, name, identity, data[here:end], at + here)
            here = end
        return here

    def gap(self, sender: int, missing_bytes: int) -> None:
        self._lost[sender] = False

    def resync(self, sender: int, data: bytes) -> int:
        return 0 if _chain(data, 0) else -1

    def _message(self, sender: int, version: int, kind: str, identity: int, data: bytes, at: int) -> None:
        talk, early = self._talk, sender == CLIENT
        name, payload, buffer = _about(version, kind, data)
        number = talk.add(
            sender, at, at + len(data), kind, name, f"{identity:08x}", failed=kind == "ERROR", payload=payload
        )  # fmt: skip
        more = kind in _MULTIPART and len(data) >= 12 and bool(data[11] & 1)
        if kind == "ERROR":
            self._failed(1 - sender, identity, number)
        elif kind in _REQUESTS:
            if not more:
                talk.ask((sender, identity, _REQUESTS[kind]), number)
                error = self._errors.pop((sender, identity), -1) if self._errors else -1
                if error >= talk.taken:
                    talk.answer((sender, identity, _REQUESTS[kind]), error)
        elif kind in _REPLIES:
            talk.answer((1 - sender, identity, kind), number, final=not more, early=early)
        elif kind == "PACKET_IN":
            carried = ("buffer", buffer) if buffer != _NO_BUFFER else ("packet", fingerprint_of(payload))
            talk.ask((sender, *carried), number)
        if kind in ("PACKET_OUT", "FLOW_MOD") and buffer != _NO_BUFFER:
            talk.answer((1 - sender, "buffer", buffer), number, early=early)
        elif kind == "PACKET_OUT" and payload:
            talk.answer((1 - sender, "packet", fingerprint_of(payload)), number, early=early)
        if kind in _SILENT:
            self._unless_failed(sender, identity, number)

    def _failed(self, asker: int, identity: int, number: int) -> None:
        """An error names a message of the other side by its transaction id."""
        talk = self._talk
        for reply in _REPLIES:
            if talk.answer((asker, identity, reply), number):
                return
        cause = self._silent.pop((asker, identity), -1)
        if cause >= talk.taken:
            talk.ask((asker, identity, "silent"), cause)
            talk.answer((asker, identity, "silent"), number)
        else:
            if len(self._errors) >= _REMEMBERED:
                self._errors.clear()
            self._errors[asker, identity] = number

    def _unless_failed(self, sender: int, identity: int, number: int) -> None:
        error = self._errors.pop((sender, identity), -1)
        if error >= self._talk.taken:
            self._talk.ask((sender, identity, "silent"), number)
            self._talk.answer((sender, identity, "silent"), error)
            return
        if len(self._silent) >= _REMEMBERED:
            self._silent.clear()
        self._silent[sender, identity] = number


_REQUESTS = {kind: kind.replace("_REQUEST", "_REPLY") for kind in (*_TYPES_10, *_TYPES_11) if kind.endswith("_REQUEST")}
_REPLIES = frozenset(_REQUESTS.values())
_MULTIPART = frozenset(("STATS_REQUEST", "STATS_REPLY", "MULTIPART_REQUEST", "MULTIPART_REPLY"))


def _about(version: int, kind: str, data: bytes) -> tuple[str, bytes, int]:
    """Name, carried packet, buffer."""
    if kind in _MULTIPART and len(data) >= 12:
        statistics = _PAIR.unpack_from(data, 8)[0]
        return _STATISTICS.get(statistics, str(statistics)), b"", _NO_BUFFER
    if kind == "ERROR" and len(data) >= 12:
        group, code = _PAIR.unpack_from(data, 8)
        return f"{group}/{code}", b"", _NO_BUFFER
    if kind == "PACKET_IN" and len(data) >= 18:
        reason, start = (data[16], 18) if version == 1 else (data[14], _packet_in_data(version, data))
        return str(reason), data[start:], _NUMBER.unpack_from(data, 8)[0]
    if kind == "PACKET_OUT" and len(data) >= 16:
        start = 16 + _PAIR.unpack_from(data, 14)[0] if version == 1 else 24 + _PAIR.unpack_from(data, 16)[0]
        return "", data[start:], _NUMBER.unpack_from(data, 8)[0]
    if kind == "FLOW_MOD" and len(data) >= 40:
        if version == 1:
            if len(data) < 72:
                return "", b"", _NO_BUFFER
            command, buffer = _PAIR.unpack_from(data, 56)[0], _NUMBER.unpack_from(data, 64)[0]
        else:
            command, buffer = data[25], _NUMBER.unpack_from(data, 32)[0]
        return _COMMANDS[command] if command < len(_COMMANDS) else str(command), b"", buffer
    return "", b"", _NO_BUFFER


def _packet_in_data(version: int, data: bytes) -> int:
    """Where the packet begins in a PACKET_IN with a match in front of it."""
    match = 24 if version >= 4 else 16  # 1.3 added the cookie
    if len(data) < match + 4:
        return len(data)
    length = int(_PAIR.unpack_from(data, match)[1])
    return match + (length + 7) // 8 * 8 + 2


def _plausible(version: int, kind: int, length: int) -> bool:
    return 1 <= version <= 6 and kind < len(_TYPES_10 if version == 1 else _TYPES_11) and length >= 8


def _chain(data: bytes, here: int) -> bool:
    """Whether messages follow each other from here on: three, or as many as there are."""
    versions = set()
    for count in range(3):
        if here == len(data):
            return count > 0
        if len(data) - here < 8:
            return count > 1
        version, kind, length, _ = _HEADER.unpack_from(data, here)
        versions.add(version)
        if not _plausible(version, kind, length) or len(versions) > 1:
            return False
        here += length
        if here > len(data):
            return count > 0
    return True


def _search(data: bytes, start: int) -> int:
    """Where messages follow each other again; the end if nowhere."""
    for match in _LIKELY.finditer(data, start):
        if _chain(data, match.start()):
            return match.start()
    return len(data)


def _recognise(client: bytes, server: bytes) -> float:
    fronts = [front for front in (client, server) if len(front) >= 8]
    if not fronts or not all(_plausible(*_HEADER.unpack_from(front)[:3]) for front in fronts):
        return 0.0
    if all(front[1] == 0 and _HEADER.unpack_from(front)[2] <= 64 for front in fronts):
        return 0.9
    return 0.6 if all(_chain(front, 0) for front in fronts) else 0.2


@dissector("openflow", ports=(6633, 6653), recognise=_recognise)
def openflow(talk: Talk) -> Dissection:
    """Begin a conversation."""
    return _OpenFlow(talk)
