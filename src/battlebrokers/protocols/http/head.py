"""The head of an HTTP/1.x message: status or request line, headers, and what they say about the body.

Called by the reader with everything up to the empty line. Pure; what is no head raises Malformed, with words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

HEAD_LIMIT_BYTES = 64 * 1024
BODY_LIMIT_BYTES = 64 * 1024 * 1024

CHUNKED = -1
"""As a body's length: it comes in chunks."""
UNTIL_CLOSE = -2
"""As a body's length: it ends with the connection."""

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_STATUS_LINE = re.compile(rb"HTTP/1\.([0-9]) ([1-9][0-9][0-9])(?: [^\x00\r]*)?")
_REQUEST_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]{1,31}) ([\x21-\xff]+) HTTP/1\.([0-9])")
_CONTROL = re.compile(rb"[\x00\r]")
_CACHED_BYTES = 1024
_MOST_DIGITS = 18


class Malformed(ValueError):  # noqa: N818 - reads as the sentence it is
    """What came is no HTTP; says why."""


@dataclass(frozen=True, slots=True)
class Head:
    """What a message says before its body."""

    status: int
    """Of an answer; 0 in a request."""
    method: str
    target: str
    headers: dict[str, str]
    """Names in lower case; several of one name are joined with commas."""
    body_bytes: int
    """The body's length, or CHUNKED, or UNTIL_CLOSE."""
    keeps_alive: bool
    """Whether the connection may be used again afterwards."""


def read_response_head(data: bytes, *, to_head: bool = False) -> Head:
    """The head of an answer; `to_head` says that HEAD was asked, whose answers have no body."""
    # Servers say the same all the time: within one second even the date is the same.
    if len(data) <= _CACHED_BYTES:
        return _cached_response_head(data, to_head)
    return _response_head(data, to_head)


def _response_head(data: bytes, to_head: bool) -> Head:
    first, lines = _lines(data)
    found = _STATUS_LINE.fullmatch(first)
    if found is None:
        raise Malformed(f"no status line: {_shown(first)}")
    status = int(found[2])
    headers = _headers(lines)
    length = _body_bytes(headers)
    if to_head or status < 200 or status in (204, 304):
        length = 0
    elif length is None:
        length = UNTIL_CLOSE
    keeps_alive = _keeps_alive(headers, found[1]) and length != UNTIL_CLOSE
    return Head(status, "", "", headers, length, keeps_alive)


_cached_response_head = lru_cache(maxsize=256)(_response_head)


def read_request_head(data: bytes) -> Head:
    """The head of a request."""
    # Some clients end a body with a line end too many; it is no part of the next request (RFC 9112, 2.2).
    first, lines = _lines(data.lstrip(b"\r\n"))
    found = _REQUEST_LINE.fullmatch(first)
    if found is None:
        raise Malformed(f"no request line: {_shown(first)}")
    headers = _headers(lines)
    length = _body_bytes(headers)
    method, target = found[1].decode("ascii"), found[2].decode("latin-1")
    return Head(0, method, target, headers, 0 if length is None else length, _keeps_alive(headers, found[3]))


def _lines(data: bytes) -> tuple[bytes, Sequence[bytes]]:
    # A bare line feed ends a line too (RFC 9112, 2.2).
    first, *rest = [line.removesuffix(b"\r") for line in data.split(b"\n")]
    return first, rest


def _headers(lines: Sequence[bytes]) -> dict[str, str]:
    headers: dict[str, str] = {}
    latest = ""
    for line in lines:
        if _CONTROL.search(line):
            raise Malformed(f"a control character in a header: {_shown(line)}")
        if line[:1] in (b" ", b"\t"):
            if not latest:
                raise Malformed("the first header continues nothing")
            headers[latest] += f" {line.strip().decode('latin-1')}"
            continue
        name, colon, value = line.partition(b":")
        if not colon or _NAME.fullmatch(name) is None:
            raise Malformed(f"no header: {_shown(line)}")
        latest = name.decode("ascii").lower()
        text = value.strip(b" \t").decode("latin-1")
        headers[latest] = f"{headers[latest]}, {text}" if latest in headers else text
    return headers


def _body_bytes(headers: dict[str, str]) -> int | None:
    coding = headers.get("transfer-encoding")
    if coding is not None:
        if coding.lower() != "chunked":
            raise Malformed(f"transfer encoding {coding[:80]!r} is not understood")
        return CHUNKED
    said = headers.get("content-length")
    if said is None:
        return None
    lengths = {each.strip() for each in said.split(",")}
    length = lengths.pop()
    if lengths or not length.isascii() or not length.isdigit():
        raise Malformed(f"no length: {said[:80]!r}")
    if len(length.lstrip("0")) > _MOST_DIGITS or int(length) > BODY_LIMIT_BYTES:
        raise Malformed(f"a body of {length[:40]} bytes is announced; the most we take is {BODY_LIMIT_BYTES}")
    return int(length)


def _keeps_alive(headers: dict[str, str], minor: bytes) -> bool:
    said = headers.get("connection")
    if said is None:
        return minor != b"0"
    words = {word.strip() for word in said.lower().split(",")}
    return "close" not in words and (minor != b"0" or "keep-alive" in words)


def _shown(line: bytes) -> str:
    return repr(line[:80])[1:]
