"""Header fields of HTTP/1 messages, as far as they say how a message goes on. Used by the HTTP dissector only.

Most heads are written again and again, so those that were read are remembered.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_HEADER = re.compile(
    rb"(?:^|\n)(?:[\v\f\r\x1c-\x1f\x85\xa0][\t\v\f\r\x1c-\x20\x85\xa0]*)?"
    rb"(content-length|transfer-encoding|connection|upgrade|sec-websocket-extensions|sec-websocket-protocol)"
    rb"[\t\v\f\r\x1c-\x20\x85\xa0]*:([^\n]*(?:\n[ \t][^\n]*)*)",
    re.IGNORECASE,
)
"""Spaces are those of `str.strip`."""
_MANY_HEADS, _SHORT_HEAD_BYTES = 2048, 1024


@dataclass(frozen=True, slots=True)
class Head:
    """The header fields of a message, and what they say about its body."""

    fields: dict[str, str]
    coding: str
    length: int | None
    wrong_length: bool
    """Told, but no number."""
    upgrades: bool


HEADS: dict[bytes, Head] = {}
"""Header lines that were read; so many are remembered, if they are no longer."""


def read_head(lines: bytes) -> Head:
    """What the lines behind the first one say; most are written again and again."""
    fields = _headers(lines)
    length = _content_length(fields.get("content-length", ""))
    head = Head(
        fields,
        coding=fields.get("transfer-encoding", "").rpartition(",")[2].strip().lower(),
        length=length,
        wrong_length=length is None and "content-length" in fields,
        upgrades="upgrade" in fields and "upgrade" in fields.get("connection", "").lower(),
    )
    if len(lines) <= _SHORT_HEAD_BYTES:
        if len(HEADS) >= _MANY_HEADS:
            HEADS.clear()
        HEADS[lines] = head
    return head


def _headers(head: bytes) -> dict[str, str]:
    """The header fields that matter, by lower-case name; repeated ones joined, folded lines unfolded."""
    fields: dict[str, str] = {}
    for name, text in _HEADER.findall(head):
        key = name.decode("ascii").lower()
        value = " ".join([line.strip() for line in text.decode("latin-1").split("\n")])
        fields[key] = f"{fields[key]}, {value}" if key in fields else value
    return fields


def _content_length(value: str) -> int | None:
    """Also when it is repeated; None if it is no number."""
    if "," in value:
        values = {part.strip() for part in value.split(",")}
        value = values.pop() if len(values) == 1 else ""
    value = value.strip()
    return int(value) if value.isascii() and value.isdigit() and len(value) <= 18 else None
