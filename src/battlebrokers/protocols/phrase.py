"""Templates of a script made ready: what is known is folded in once, what changes with each message is filled in fast.

Used by links. A name nobody knows is a mistake of the contender's file and raises InputError when it is compiled.
Also reads answers: values by path, patterns. Hostile JSON is answered with "not found", never with an exception.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import msgspec

from battlebrokers.errors import InputError

Value = str | bytes | int | list[str]
_PLACEHOLDER = re.compile(r"\$\{([a-z][a-z0-9_.]*)(?:\|([a-z0-9]+))?\}")
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(-?\d+)\]")


def _text(value: Value) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _bytes(value: Value) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _in_json(value: Value) -> bytes:
    # Bytes have no place in JSON as they are; neither base64 nor a number has anything to escape.
    if isinstance(value, bytes):
        return binascii.b2a_base64(value, newline=False)
    return str(value).encode() if isinstance(value, int) else json.dumps(value)[1:-1].encode()


_FILTERS: dict[str, Callable[[Value], bytes]] = {
    "base64": lambda value: base64.b64encode(_bytes(value)),
    "hex": lambda value: _bytes(value).hex().encode(),
    "text": lambda value: json.dumps(_text(value))[1:-1].encode(),
    "url": lambda value: quote(_text(value), safe="").encode(),
    "path": lambda value: quote(_text(value), safe="/").encode(),
    "dots": lambda value: _bytes(value).replace(b"/", b"."),
    "flat": lambda value: re.sub(rb"[^A-Za-z0-9_-]", b"-", _bytes(value)),
    "number": _bytes,
    "json": _bytes,
}
_UNQUOTED = frozenset({"number", "json"})

Part = bytes | tuple[str, Callable[[Value], bytes], bytes, bytes]
"""Literal bytes, or (name, encoder, what stands before and after each value when there are several)."""


class Phrase:
    """A compiled template."""

    __slots__ = ("_parts",)

    def __init__(self, parts: list[Part]) -> None:
        folded: list[Part] = []
        for part in parts:
            if isinstance(part, bytes) and folded and isinstance(folded[-1], bytes):
                folded[-1] += part
            elif part != b"":
                folded.append(part)
        self._parts = folded

    @property
    def names(self) -> set[str]:
        """What is still to be filled in."""
        return {part[0] for part in self._parts if isinstance(part, tuple)}

    def bind(self, known: Mapping[str, Value]) -> Phrase:
        """The same with these values folded in for good."""
        return Phrase(
            [_filled(part, known) if isinstance(part, tuple) and part[0] in known else part for part in self._parts]
        )

    def render(self, values: Mapping[str, Value]) -> bytes:
        """The bytes; every name must be in `values`."""
        parts = self._parts
        if len(parts) == 1 and isinstance(parts[0], bytes):
            return parts[0]
        return b"".join([part if isinstance(part, bytes) else _filled(part, values) for part in parts])

    def require(self, *later: str) -> Phrase:
        """Itself, if nothing but these names is left; else InputError."""
        unknown = sorted(self.names - set(later))
        if unknown:
            raise InputError(
                f"${{{unknown[0]}}} is not known when it is needed",
                hint=f"Known then: {', '.join(later)}, what `keep` took from earlier answers, and the node's values.",
            )
        return self


def plain(template: str, *, url: bool = False) -> Phrase:
    """A text; bytes go in as they are. In a URL values are quoted unless a filter says otherwise."""
    return Phrase(list(_pieces(template, _FILTERS["path"] if url else _bytes)))


def structure(value: Any) -> Phrase:
    """A JSON structure with templates in its texts and keys."""
    return Phrase(list(_json(value)))


def _filled(part: tuple[str, Callable[[Value], bytes], bytes, bytes], values: Mapping[str, Value]) -> bytes:
    name, encode, before, after = part
    value = values[name]
    if isinstance(value, list):
        return (after + b"," + before).join(encode(each) for each in value)
    return encode(value)


def _pieces(
    template: str, default: Callable[[Value], bytes], before: bytes = b"", after: bytes = b"", *, in_json: bool = False
) -> Iterator[Part]:
    end = 0
    for found in _PLACEHOLDER.finditer(template):
        literal = template[end : found.start()]
        yield json.dumps(literal)[1:-1].encode() if in_json else literal.encode()
        encode = _FILTERS.get(found[2], default) if found[2] else default
        if found[2] and found[2] not in _FILTERS:
            raise InputError(f"{found[0]} has no such filter", hint=f"There are: {', '.join(sorted(_FILTERS))}.")
        yield (found[1], encode, before, after)
        end = found.end()
    literal = template[end:]
    yield json.dumps(literal)[1:-1].encode() if in_json else literal.encode()


def _json(value: Any) -> Iterator[Part]:
    if isinstance(value, dict):
        yield b"{"
        for place, (key, item) in enumerate(value.items()):
            yield b"," if place else b""
            yield from _json(str(key))
            yield b":"
            yield from _json(item)
        yield b"}"
    elif isinstance(value, list):
        yield b"["
        for place, item in enumerate(value):
            yield b"," if place else b""
            yield from _json(item)
        yield b"]"
    elif isinstance(value, str):
        whole = _PLACEHOLDER.fullmatch(value)
        if whole is not None and whole[2] in _UNQUOTED:
            yield from _pieces(value, _bytes)
        else:
            yield b'"'
            yield from _pieces(value, _in_json, b'"', b'"', in_json=True)
            yield b'"'
    else:
        yield json.dumps(value).encode()


MISSING: Any = object()
_decode = msgspec.json.Decoder().decode


def at_path(document: Any, path: str) -> Any:
    """The value at `$.a.b[0]`, or MISSING. A name is found with and without a `prefix:` (dialects differ in it)."""
    here = document
    for step in _steps(path):
        if isinstance(step, int):
            if not isinstance(here, list) or not -len(here) <= step < len(here):
                return MISSING
            here = here[step]
            continue
        if not isinstance(here, dict):
            return MISSING
        if step in here:
            here = here[step]
            continue
        bare = step.rpartition(":")[2]
        name = next((key for key in here if isinstance(key, str) and key.rpartition(":")[2] == bare), None)
        if name is None:
            return MISSING
        here = here[name]
    return here


@lru_cache(maxsize=1024)
def _steps(path: str) -> tuple[str | int, ...]:
    found = _STEP.finditer(path.removeprefix("$"))
    return tuple(step[1] if step[2] is None else int(step[2]) for step in found)


def fits(document: Any, pattern: Mapping[str, Any]) -> bool:
    """Whether a document has these values at these paths; None asks only that there is one."""
    for path, wanted in pattern.items():
        found = at_path(document, path)
        if found is MISSING or (wanted is not None and found != wanted):
            return False
    return True


def read_json(body: bytes | str) -> Any:
    """The document, or MISSING when it is none."""
    try:
        return _decode(body)
    except (ValueError, RecursionError):
        # The fast reader is stricter than some servers are: NaN, single surrogates, a mark at the beginning.
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            return MISSING


def picked(where: str, document: Any, headers: Mapping[str, str], status: int) -> str | None:
    """The value a `keep` names; None when the answer does not have it. Header names are lower case."""
    source, _, pattern = where.partition(" ~ ")
    if source.startswith("header:"):
        found: Any = headers.get(source[7:].lower(), MISSING)
    elif source == "status":
        found = status
    else:
        found = at_path(document, source)
    if found is MISSING or found is None or isinstance(found, dict | list):
        return None
    text = str(found)
    if pattern:
        try:
            match = re.search(pattern, text)
        except re.error:
            return None
        return None if match is None else match[match.re.groups and 1]
    return text


def payload_of(found: Any, encoding: str) -> bytes | None:
    """The payload written at a place, or None when it cannot be read there."""
    if isinstance(found, bytes) and encoding == "raw":
        return found
    text = found.decode("latin-1") if isinstance(found, bytes) else found if isinstance(found, str) else None
    if text is None:
        # What is no text was never written as base64 or hex: it is something else in the payload's place.
        if found is MISSING or encoding in ("base64", "hex"):
            return None
        return json.dumps(found, separators=(",", ":")).encode()
    try:
        if encoding == "base64":
            return base64.b64decode(text, validate=True)
        if encoding == "hex":
            return bytes.fromhex(text)
    except ValueError:
        return None
    return text.encode("utf-8", "surrogatepass")
