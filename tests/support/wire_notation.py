"""Packets as one writes them by hand: hex bytes, 'quoted text', and `..` for the length of what follows."""

from __future__ import annotations

import re


def raw(notation: str) -> bytes:
    """The bytes; a length is one byte, so what follows `..` has fewer than 128."""
    head, dots, tail = notation.partition("..")
    parts = [
        b"".join(t.encode() if not h else bytes.fromhex(h) for t, h in re.findall(r"'([^']*)'|([0-9a-f]{2})", part))
        for part in (head, tail)
    ]
    return parts[0] + (bytes((len(parts[1]),)) if dots else b"") + parts[1]
