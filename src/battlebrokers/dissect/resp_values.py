"""Values of Redis' protocol (RESP2 and RESP3): where their parts lie. Used by the Redis dissector only.

Scanned without recursion, once, also when they arrive in pieces; whole and simple ones take a short cut. What they mean
is not known here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

LINE_BYTES = 64 * 1024
_BULK_BYTES = 512 << 20
_DEPTH = 32
LEAVES = 10
"""Parts of a command or reply that are looked at."""
_AGGREGATES, _BULKS, _SIMPLE = b"*~%>|", b"$=!", b"+-:,#_("
NUMBER = re.compile(rb"-?\d{1,18}")
WHOLE, WRONG, _MORE = 2, 1, 0
_STRING = ord("$")
_SHORT_LINE_BYTES = 20
_FEW_PARTS = 64


@dataclass(slots=True)
class Scan:
    """A value that is being read; places are relative to its first byte."""

    here: int = 0
    open: list[int] = field(default_factory=list)
    """Per aggregate we are in: how many values of it are still to come."""
    top: str = ""
    count: int = 0
    """The number at the top: how many parts or bytes; negative: nil."""
    leaves: list[tuple[int, int]] = field(default_factory=list)
    """Where its first parts lie; (-1, -1) for nil."""
    last: tuple[int, int] = (-1, -1)
    told: int = -1
    """Number of its message, when it was too large to wait for its end."""


def simple(data: bytes, pos: int) -> tuple[int, str, int, list[bytes]] | None:
    """A line, a string or a list of strings that is whole: where it ends, its type, its number and its words.

    None when it is anything else, or goes on: then it is to be scanned.
    """
    top = data[pos]
    line = data.find(b"\r\n", pos, pos + _SHORT_LINE_BYTES)
    if line < 0:
        return None
    if top in b"+-:":
        return line + 2, chr(top), 0, [data[pos + 1 : line]]
    digits = data[pos + 1 : line]
    if top not in b"*$" or not digits.isdigit():
        return None
    number = int(digits)
    here = line + 2
    if top == _STRING:
        end = here + number + 2
        if number + 2 > _BULK_BYTES or data[end - 2 : end] != b"\r\n":
            return None
        return end, "$", number, [data[here : end - 2]]
    words: list[bytes] = []
    if not 0 < number <= _FEW_PARTS:
        return None
    for _ in range(number):
        line = data.find(b"\r\n", here, here + _SHORT_LINE_BYTES)
        digits = data[here + 1 : line]
        if line < 0 or data[here] != _STRING or not digits.isdigit():
            return None
        start = line + 2
        here = start + int(digits) + 2
        if data[here - 2 : here] != b"\r\n" or here - start > _BULK_BYTES:
            return None
        words.append(data[start : here - 2])
    return here, "*", number, words


def scanned(data: bytes, pos: int, scan: Scan) -> int:
    """Read on: `WHOLE`, `WRONG`, `_MORE` to come, or minus the length of a string (with its line) that is not there.

    `scan.here` stays at the beginning of what could not be read yet.
    """
    size = len(data)
    while True:
        here = pos + scan.here
        line = data.find(b"\r\n", here, here + LINE_BYTES)
        if line < 0:
            known = here >= size or data[here] in _AGGREGATES + _BULKS + _SIMPLE
            return _MORE if size - here < LINE_BYTES and known else WRONG
        kind = data[here]
        if not scan.top and not scan.open:
            scan.top = chr(kind)
        after = line + 2
        leaf = here + 1 - pos, line - pos
        if kind in _AGGREGATES or kind in _BULKS:
            if not NUMBER.fullmatch(data, here + 1, line):
                return WRONG
            count = int(data[here + 1 : line])
            if not scan.open and kind != ord("|"):
                scan.count = count
            if count < 0 or (not count and kind in _AGGREGATES):
                leaf = -1, -1
            elif kind in _BULKS:
                end = after + count + 2
                if count > _BULK_BYTES:
                    return WRONG
                if end > size:
                    return here - end
                if data[end - 2 : end] != b"\r\n":
                    return WRONG
                leaf, after = (after - pos, end - 2 - pos), end
            elif count:
                if len(scan.open) >= _DEPTH:
                    return WRONG
                # A map has two values per entry; attributes come before the value they belong to.
                scan.open.append(count * 2 if kind == ord("%") else count * 2 + 1 if kind == ord("|") else count)
                scan.here = after - pos
                continue
        elif kind not in _SIMPLE:
            return WRONG
        if len(scan.open) <= 1 and len(scan.leaves) < LEAVES:
            scan.leaves.append(leaf)
        scan.last = leaf
        scan.here = after - pos
        if close(scan):
            return WHOLE


def close(scan: Scan) -> bool:
    """A part has been read: whether that was the last one."""
    while scan.open:
        scan.open[-1] -= 1
        if scan.open[-1]:
            return False
        scan.open.pop()
    return True
