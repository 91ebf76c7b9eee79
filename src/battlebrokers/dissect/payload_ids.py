"""Identifiers inside payloads: what stays when services wrap a message into JSON, base64, MessagePack or CBOR.

`payload_id` gives the same number wherever the same identifier is found. Pure and cheap: it looks at the first 2 KiB,
and most payloads without an identifier are seen to be so before any pattern is tried.
"""

from __future__ import annotations

import binascii
import re
from hashlib import blake2b
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from battlebrokers.clock import SECOND_NS
from battlebrokers.tables.message_header import HEADER_BYTES, MAX_DEVICE, SEQ_MASK, VERSION

LOOKED_AT_BYTES = 2048
_PLANNED_WITHIN_NS = 7 * 24 * 3600 * SECOND_NS
"""Our header was planned about when the message was seen; clocks differ, and a quiet stream is dated by its front."""
_HEADER_RANK, _UUID_RANK, _NO_RANK = 0, 5, 6

_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-"
_AS_WORDS = bytes(ord("a") if octet in _LETTERS else ord(" ") for octet in range(256))
_LONG_WORD = b"a" * 22
"""Our header in base64 is so long; UUIDs and headers in other forms are longer."""
_AS_ALPHANUMERICS = bytes(ord("a") if octet in _LETTERS[:62] else ord(" ") for octet in range(256))
_DASHED_SHAPE = b" ".join(b"a" * digits for digits in (8, 4, 4, 4, 12))
"""What a UUID looks like then: to look for that is many times faster than to try a pattern everywhere."""
_STANDARD_BASE64 = bytes.maketrans(b"-_", b"+/")
# A literal first character lets the search run at the speed of memchr; what stands before it is looked at afterwards.
_BASE64_HEADER = re.compile(rb"s(?<![A-Za-z0-9+/=_-]s)[Q-Za-f][A-Za-z0-9+/_-]{20}")
_HEX_HEADER = re.compile(rb"[bB]1(?<![0-9A-Fa-f]..)[0-9A-Fa-f]{30}", re.DOTALL)
_BINARY_LENGTHS = ((0xC4, 1), (0xC5, 2), (0xC6, 4), (0x58, 1), (0x59, 2), (0x5A, 4))
"""How MessagePack and CBOR begin bytes: one that says so, then the length in so many."""
_BASE64_JSON = re.compile(
    rb"(?:eyJ(?<![A-Za-z0-9+/_.-]...)|eyAi(?<![A-Za-z0-9+/_.-]....)|W3si(?<![A-Za-z0-9+/_.-]....)"
    rb"|ewog(?<![A-Za-z0-9+/_.-]....))[A-Za-z0-9+/_-]{12,2048}+(?!\.)",
    re.DOTALL,
)
"""Text that begins with `{"`, `{ "`, `[{` or `{` and a line break; a web token's parts stand beside full stops."""
_DASHED_UUID = re.compile(rb"(?<![0-9A-Za-z])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Za-z])")
_PLAIN_UUID = re.compile(rb"(?<![0-9A-Za-z])[0-9A-Fa-f]{12}[1-8][0-9A-Fa-f]{3}[89ABab][0-9A-Fa-f]{15}(?![0-9A-Za-z])")
"""Thirty-two digits are one only with the version and the variant of one."""
_KEYED = re.compile(
    rb'"(?:((?:message|msg|event)[_-]?id)|(uuid|guid)|((?:correlation|request|trace|transaction)[_-]?id)|(_?id|\$oid))'
    rb'\\{0,3}"[ \t\r\n]{0,8}:[ \t\r\n]{0,8}'
    rb'(?:\\{0,3}"([^"\\\x00-\x1f]{6,128})\\{0,3}"|(-?[0-9]{6,20})(?=[ \t\r\n,}\]]))',
    re.IGNORECASE,
)
"""Keys by how surely they name one message; quotes may be escaped, as in JSON that is a string in other JSON."""
_ONLY_UUID = re.compile(
    rb"(?:urn:uuid:|\{)?([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})\}?"
)
_UUID_DIGITS = 32
_ALONE = b" %b " % (b"a" * _UUID_DIGITS)
_MEANINGLESS = frozenset((b"0" * _UUID_DIGITS, b"f" * _UUID_DIGITS))

Ranked = tuple[int, int | None]
"""How good an identifier is (smaller is better), and its number."""
N = TypeVar("N", int, npt.NDArray[np.int64])

Named = tuple[int | None, bool]
"""The number of an identifier, and whether it is our header: then `header_of` tells device and sequence number."""
_NAMELESS: Named = (None, False)


def payload_id(payload: bytes, seen_ns: int) -> int | None:
    """The number of the best identifier in a payload, signed, 64 bits; None if there is none.

    `seen_ns` is about when it was seen, in nanoseconds since 1970: without that chance would make many headers.
    """
    return named(payload, seen_ns)[0]


def named(payload: bytes, seen_ns: int) -> Named:
    """The same, and whose it is."""
    if payload[:1] == b"\xb1" and _is_header(payload, seen_ns):
        return _number_of_header(payload), True
    head = payload if len(payload) <= LOOKED_AT_BYTES else payload[:LOOKED_AT_BYTES]
    if 0xB1 in head and (header := _packed_header(head, len(payload), seen_ns)) is not None:
        return header, True
    # Single octets first: looking for one is several times faster than for two.
    keyed = 0x22 in head and 0x3A in head and (b'":' in head or b'" :' in head)
    worded = _LONG_WORD in head.translate(_AS_WORDS)
    if not keyed and not worded:
        return _NAMELESS
    rank, number = _best(head, seen_ns, keyed=keyed, worded=worded)
    if not worded or rank == _HEADER_RANK or not (0x65 in head or 0x57 in head):
        return number, rank == _HEADER_RANK
    if (found := _BASE64_JSON.search(head)) is not None:
        inner = _decoded(found[0])
        inner_rank, inner_number = _best(inner, seen_ns, keyed=True, worded=True)
        # What was wrapped is the older one: on a tie it counts.
        if inner_rank <= rank:
            return inner_number, inner_rank == _HEADER_RANK
    return number, False


def header_of(number: int) -> tuple[int, int]:
    """Device and sequence number of a payload whose number is that of our header."""
    return number >> 32 & MAX_DEVICE, number & SEQ_MASK


def header_id(device: N, seq: N) -> N:
    """What `payload_id` says of a payload with our header: its first eight bytes, read as a signed number.

    Whole columns give a column.
    """
    return (VERSION - 0x100) << 56 | device << 32 | seq & SEQ_MASK


def _best(text: bytes, seen_ns: int, *, keyed: bool, worded: bool) -> Ranked:
    """The best identifier in a text."""
    number = _embedded_header(text, seen_ns) if worded else None
    if number is not None:
        return _HEADER_RANK, number
    best: Ranked = (_NO_RANK, None)
    # All keys end so.
    if keyed and (b'id"' in (lower := text.lower()) or b"id\\" in lower):
        for found in _KEYED.finditer(text):
            rank = 1 if found[1] else 2 if found[2] else 3 if found[3] else 4
            if rank < best[0] and (number := _number_of(found[5] or found[6])) is not None:
                best = rank, number
    if worded and best[1] is None:
        match = _uuid(text)
        if match is not None and (number := _number_of(match[0])) is not None:
            best = _UUID_RANK, number
    return best


def _embedded_header(text: bytes, seen_ns: int) -> int | None:
    """Our header, as base64 or hexadecimal digits."""
    for found in _BASE64_HEADER.finditer(text) if 0x73 in text else ():
        raw = _decoded(found[0])
        if _is_header(raw, seen_ns):
            return _number_of_header(raw)
    for found in _HEX_HEADER.finditer(text) if 0x62 in text or 0x42 in text else ():
        raw = bytes.fromhex(found[0].decode("ascii"))
        if _is_header(raw, seen_ns):
            return _number_of_header(raw)
    return None


def _packed_header(head: bytes, size: int, seen_ns: int) -> int | None:
    """Our header as bytes in MessagePack or CBOR: with their length before it, and room for it in the payload."""
    start = head.find(0xB1)
    while start >= 0:
        raw = head[start : start + HEADER_BYTES]
        if _is_header(raw, seen_ns):
            for mark, width in _BINARY_LENGTHS:
                if start > width and head[start - width - 1] == mark:
                    length = int.from_bytes(head[start - width : start], "big")
                    if HEADER_BYTES <= length <= size - start:
                        return _number_of_header(raw)
        start = head.find(0xB1, start + 1)
    return None


def _uuid(text: bytes) -> re.Match[bytes] | None:
    """The first UUID with dashes, else the first one without."""
    shapes = text.translate(_AS_ALPHANUMERICS)
    found = _DASHED_UUID.search(text) if 0x2D in text and _DASHED_SHAPE in shapes else None
    if found is None and _ALONE in b" %b " % shapes:
        found = _PLAIN_UUID.search(text)
    return found


def _is_header(raw: bytes, seen_ns: int) -> bool:
    if len(raw) < HEADER_BYTES or raw[0] != VERSION:
        return False
    return -_PLANNED_WITHIN_NS < int.from_bytes(raw[8:HEADER_BYTES], "big") - seen_ns < _PLANNED_WITHIN_NS


def _number_of_header(raw: bytes) -> int:
    return int.from_bytes(raw[:8], "big", signed=True)


def _decoded(base64: bytes) -> bytes:
    """Base64 of either alphabet, padded or not."""
    whole = base64 if len(base64) % 4 != 1 else base64[:-1]
    try:
        return binascii.a2b_base64(whole.translate(_STANDARD_BASE64) + b"=" * (-len(whole) % 4))
    except binascii.Error:
        return b""


def _number_of(value: bytes) -> int | None:
    """A UUID is the same however it is written; anything else is what it is."""
    uuid = _ONLY_UUID.fullmatch(value.lower()) if len(value) >= _UUID_DIGITS else None
    if uuid is not None:
        value = b"".join(uuid.groups())
        if value in _MEANINGLESS:
            return None
    return int.from_bytes(blake2b(value, digest_size=8, person=b"payload id").digest(), "little", signed=True)
