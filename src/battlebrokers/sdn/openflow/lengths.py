"""Whether the lengths inside a message add up. Pure; asked by the channel before os-ken reads one.

os-ken believes every length it meets: one of zero would keep it busy for ever. Contents are not its matter.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from battlebrokers.sdn.openflow import wire

_MULTIPART_HEAD: Final = 16
_FLOW_HEAD: Final = 48
_REMOVED_HEAD: Final = 48
_GROUP_HEAD: Final = 40
_BUCKET_COUNTER: Final = 16
_METER_HEAD: Final = 40
_BAND_COUNTER: Final = 16
_WITH_ACTIONS: Final = frozenset({3, 4})
"""Instructions that hold actions: write and apply."""
_INSTRUCTIONS: Final = {1: 8, 2: 24, 6: 8}
_ACTIONS: Final = {0: 16} | dict.fromkeys((*range(11, 13), *range(15, 25), 26, 27), 8)
"""Those of one size. os-ken goes on behind that size, whatever the message says."""
_EXPERIMENTER: Final = 0xFFFF
_TRACK: Final = struct.pack("!IH", 0x2320, 35)
"""Open vSwitch's connection tracking, the one action that holds others."""
_EXACT: Final = {wire.FEATURES_REPLY: 32, wire.BARRIER_REPLY: 8, wire.PORT_STATUS: 80}


class _DoesNotAddUpError(Exception):
    """Some length leads out of what holds it, or nowhere."""


def adds_up(message: bytes) -> bool:
    """Whether a message of the kinds we ask for can be read to its end."""
    kind = message[1]
    try:
        if kind == wire.MULTIPART_REPLY:
            if len(message) < _MULTIPART_HEAD:
                return False
            (part,) = struct.unpack_from("!H", message, 8)
            _PARTS[part](message, _MULTIPART_HEAD, len(message))
        elif kind == wire.FLOW_REMOVED:
            return _match(message, _REMOVED_HEAD, len(message)) == len(message)
        else:
            return _EXACT[kind] == len(message)
    except (_DoesNotAddUpError, LookupError, struct.error):
        return False
    return True


def _each(
    message: bytes, at: int, end: int, smallest: int, inside: Callable[[bytes, int, int], object], *, size_at: int = 0
) -> None:
    """Things one after another, each with its length in it."""
    while at < end:
        if end - at < smallest:
            raise _DoesNotAddUpError
        (size,) = struct.unpack_from("!H", message, at + size_at)
        if size < smallest or size > end - at:
            raise _DoesNotAddUpError
        inside(message, at, at + size)
        at += size


def _flat(_message: bytes, _at: int, _end: int) -> None:
    """Nothing inside has a length."""


def _match(message: bytes, at: int, end: int) -> int:
    """Returns where what follows the match begins."""
    if end - at < 8:
        raise _DoesNotAddUpError
    (size,) = struct.unpack_from("!H", message, at + 2)
    after: int = at + (size + 7) // 8 * 8
    if size < 4 or after > end:
        raise _DoesNotAddUpError
    field, last = at + 4, at + size
    while field < last:
        if last - field < 4 or field + 4 + message[field + 3] > last:
            raise _DoesNotAddUpError
        field += 4 + message[field + 3]
    return after


def _action(message: bytes, at: int, end: int) -> None:
    (kind,) = struct.unpack_from("!H", message, at)
    if _ACTIONS.get(kind, end - at) != end - at:
        raise _DoesNotAddUpError
    if kind == _EXPERIMENTER and message[at + 4 : at + 10] == _TRACK:
        if end - at < 24:
            raise _DoesNotAddUpError
        _actions(message, at + 24, end)


def _actions(message: bytes, at: int, end: int) -> None:
    _each(message, at, end, 8, _action, size_at=2)


def _instruction(message: bytes, at: int, end: int) -> None:
    (kind,) = struct.unpack_from("!H", message, at)
    if _INSTRUCTIONS.get(kind, end - at) != end - at:
        raise _DoesNotAddUpError
    if kind in _WITH_ACTIONS:
        _actions(message, at + 8, end)


def _flow(message: bytes, at: int, end: int) -> None:
    _each(message, _match(message, at + _FLOW_HEAD, end), end, 8, _instruction, size_at=2)


def _group(_message: bytes, at: int, end: int) -> None:
    if (end - at - _GROUP_HEAD) % _BUCKET_COUNTER:
        raise _DoesNotAddUpError


def _counted_meter(_message: bytes, at: int, end: int) -> None:
    if (end - at - _METER_HEAD) % _BAND_COUNTER:
        raise _DoesNotAddUpError


def _bucket(message: bytes, at: int, end: int) -> None:
    _actions(message, at + 16, end)


def _described_group(message: bytes, at: int, end: int) -> None:
    _each(message, at + 8, end, 16, _bucket)


def _meter(message: bytes, at: int, end: int) -> None:
    _each(message, at + 8, end, 12, _flat, size_at=2)


def _of_size(size: int) -> Callable[[bytes, int, int], None]:
    def check(_message: bytes, at: int, end: int) -> None:
        if (end - at) % size:
            raise _DoesNotAddUpError

    return check


def _one(_message: bytes, at: int, end: int) -> None:
    if end - at != 1056:
        raise _DoesNotAddUpError


_PARTS: Final[dict[int, Callable[[bytes, int, int], None]]] = {
    wire.DESCRIPTION: _one,
    wire.FLOWS: lambda message, at, end: _each(message, at, end, _FLOW_HEAD + 8, _flow),
    wire.PORT_COUNTERS: _of_size(112),
    wire.GROUP_COUNTERS: lambda message, at, end: _each(message, at, end, _GROUP_HEAD, _group),
    wire.GROUPS: lambda message, at, end: _each(message, at, end, 8, _described_group),
    wire.METER_COUNTERS: lambda message, at, end: _each(message, at, end, _METER_HEAD, _counted_meter, size_at=4),
    wire.METERS: lambda message, at, end: _each(message, at, end, 8, _meter),
    wire.PORTS: _of_size(64),
}
