"""Text with variables in braces, such as `city/{fleet}/{device}` or `test/{int:1..5}`.

Used for topics, filters, client ids and credentials. Braces around anything but a lower-case word are plain text.
"""

from __future__ import annotations

import difflib
import itertools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from battlebrokers.errors import QuantityError

VARIABLE = re.compile(r"\{([a-z_][a-z0-9_]*)(?::([^{}]*))?\}")
DEVICE_VARIABLES = ("device", "fleet", "index", "number", "category", "run")
CLIENT_VARIABLES = ("client", "fleet", "index", "number", "run")
MOST_EXPANDED = 10_000
_MOST_NAMED = 24

_RANGE = re.compile(r"(-?\d{1,18})\.\.(-?\d{1,18})")


def nearest(word: str, valid: tuple[str, ...] | list[str]) -> str:
    """A hint naming the valid word most like this one, or all of them if they are few."""
    close = difflib.get_close_matches(word, valid, n=1, cutoff=0.5)
    if close:
        return f"did you mean `{close[0]}`?"
    return "valid: " + ", ".join(f"`{name}`" for name in valid) if 0 < len(valid) <= _MOST_NAMED else ""


def parse_int_range(text: str) -> tuple[int, int]:
    """The two ends of "1..5"."""
    match = _RANGE.fullmatch(text.strip())
    if not match:
        raise QuantityError(f"{text!r} is not a range of whole numbers", hint='write it like "1..5"')
    low, high = int(match[1]), int(match[2])
    if low > high:
        raise QuantityError(f"{text!r} runs backwards", hint=f'write "{high}..{low}"')
    return low, high


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled text: `%s` where a value goes, and what goes there."""

    text: str
    template: str
    fields: tuple[tuple[str, str], ...]
    names: frozenset[str]
    """The variables it uses."""

    def render(self, values: Mapping[str, str]) -> str:
        """The text for one node; a pattern with `{int:…}` needs `expand`."""
        if not self.fields:
            return self.text
        return self.template % tuple([values[name] if name != "env" else os.environ[arg] for name, arg in self.fields])

    def expand(self, values: Mapping[str, str]) -> list[str]:
        """One text per combination of its `{int:a..b}`, in order."""
        if "int" not in self.names:
            return [self.render(values)]
        columns: list[list[str]] = []
        for name, arg in self.fields:
            if name == "int":
                low, high = parse_int_range(arg)
                columns.append([str(n) for n in range(low, high + 1)])
            else:
                columns.append([values[name]])
        return [self.template % combination for combination in itertools.product(*columns)]


def compile_pattern(text: str, allowed: tuple[str, ...], *, ranges: bool = False, environment: bool = False) -> Pattern:
    """Read a text with variables; raises QuantityError for an unknown one, naming the nearest."""
    pieces: list[str] = []
    fields: list[tuple[str, str]] = []
    expanded = 1
    at = 0
    valid = (*allowed, *(("int:a..b",) if ranges else ()), *(("env:NAME",) if environment else ()))
    for match in VARIABLE.finditer(text):
        name, arg = match[1], match[2]
        if name == "int" and ranges and arg is not None:
            low, high = parse_int_range(arg)
            expanded *= high - low + 1
        elif name == "env" and environment and arg:
            if arg not in os.environ:
                raise QuantityError(f"the environment has no {arg}", hint=f"export {arg}=… before running")
        elif name not in allowed or arg is not None:
            raise QuantityError(f"{match[0]} is not a variable here", hint=nearest(name, valid))
        pieces += [text[at : match.start()].replace("%", "%%"), "%s"]
        fields.append((name, arg or ""))
        at = match.end()
    if expanded > MOST_EXPANDED:
        raise QuantityError(f"{text!r} stands for {expanded} texts", hint=f"at most {MOST_EXPANDED}")
    pieces.append(text[at:].replace("%", "%%"))
    return Pattern(text, "".join(pieces), tuple(fields), frozenset(name for name, _ in fields))
