"""Texts of others made visible: what could steer a terminal is shown as an escape. Pure.

Called by `output` for all that is printed, and where a text of somebody else becomes part of one line of ours.
"""

from __future__ import annotations

import re

_STEERING = (
    r"\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction of writing
    r"\u2028\u2029"  # line and paragraph separators
    r"\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # surrogates, annotations, tags
)
_ANY = re.compile(f"[{_STEERING}]")
_ANY_BUT_BREAKS = re.compile(rf"(?!\n)[{_STEERING}]")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str, *, keep_breaks: bool = False) -> str:
    """The text with every character that could steer a terminal as an escape such as \\x1b; line breaks on request."""
    return (_ANY_BUT_BREAKS if keep_breaks else _ANY).sub(lambda found: _escape(found[0]), text)


def _escape(character: str) -> str:
    code = ord(character)
    if character in _NAMED:
        return _NAMED[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def visible_json(text: str) -> str:
    """A JSON document with the escapes of JSON for what could steer a terminal; its meaning stays the same."""
    return _ANY_BUT_BREAKS.sub(lambda found: _json_escape(found[0]), text)


def _json_escape(character: str) -> str:
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
