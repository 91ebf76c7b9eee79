"""Payload templates: `{"free": {int:0..1}, "at": {time}}` → one text per message.

Called by the payload source. Fields are drawn by seed and sequence; other braces are plain text, so JSON stays JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from battlebrokers.errors import QuantityError
from battlebrokers.scenario import dice
from battlebrokers.scenario.patterns import DEVICE_VARIABLES, VARIABLE, nearest, parse_int_range

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FLOATS = re.compile(r"(-?\d+(?:\.\d+)?)\.\.(-?\d+(?:\.\d+)?)(?::(\d{1,2}))?")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_LONGEST_FILL = 65_536

FIELDS: dict[str, str] = {
    "int:a..b": "a whole number from a to b",
    "float:a..b:d": "a number from a to b with d decimals (2 if left out)",
    "choice:x|y|z": "one of the texts",
    "hex:n": "n random hexadecimal digits",
    "text:n": "n random letters and digits",
    "seq": "the device's message counter, from 0",
    "time": "the planned send time, ISO 8601 with microseconds",
    "unix_ms": "the planned send time in milliseconds since 1970",
    **{name: f"the device's {name}" for name in DEVICE_VARIABLES},
}


@dataclass(slots=True)
class Moment:
    """What a field may look at: random bits of its position, the message's number and time, the device's variables."""

    seed: int
    position: int
    seq: int
    planned_ns: int
    variables: Mapping[str, str]


Field = Callable[[Moment], str]


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled template."""

    pieces: tuple[str, ...]
    fields: tuple[Field, ...]
    names: frozenset[str]

    def render(self, seed: int, seq: int, planned_ns: int, variables: Mapping[str, str]) -> str:
        """The text of one message."""
        moment = Moment(seed, seq * len(self.fields), seq, planned_ns, variables)
        parts = [self.pieces[0]]
        for field, piece in zip(self.fields, self.pieces[1:], strict=True):
            parts += (field(moment), piece)
            moment.position += 1
        return "".join(parts)

    @property
    def wants_time(self) -> bool:
        """Whether the planned send time appears in it."""
        return not self.names.isdisjoint(("time", "unix_ms"))


def compile_template(text: str) -> Template:
    """Read a template; raises QuantityError for an unknown or malformed field."""
    pieces: list[str] = []
    fields: list[Field] = []
    names: set[str] = set()
    at = 0
    for match in VARIABLE.finditer(text):
        pieces.append(text[at : match.start()])
        fields.append(_field(match[0], match[1], match[2]))
        names.add(match[1])
        at = match.end()
    pieces.append(text[at:])
    return Template(tuple(pieces), tuple(fields), frozenset(names))


def _field(shown: str, name: str, arg: str | None) -> Field:
    if arg is None and name in DEVICE_VARIABLES:
        return lambda moment: moment.variables.get(name, "")
    if arg is None and name in _PLAIN:
        return _PLAIN[name]
    if arg is not None and name in _WITH_ARGUMENT:
        return _WITH_ARGUMENT[name](arg)
    valid = [field.partition(":")[0] for field in FIELDS]
    if name in valid:
        form = next(field for field in FIELDS if field.partition(":")[0] == name)
        raise QuantityError(f"{shown} is not a field", hint=f"write it like {{{form}}}")
    raise QuantityError(f"{shown} is not a field", hint=nearest(name, valid))


def _iso(moment: Moment) -> str:
    return (_EPOCH + timedelta(microseconds=moment.planned_ns // 1000)).isoformat(timespec="microseconds")


_PLAIN: dict[str, Field] = {
    "seq": lambda moment: str(moment.seq),
    "time": _iso,
    "unix_ms": lambda moment: str(moment.planned_ns // 1_000_000),
}


def _int(arg: str) -> Field:
    low, high = parse_int_range(arg)
    width = high - low + 1
    return lambda moment: str(low + dice.roll(moment.seed, moment.position) * width // 2**64)


def _float(arg: str) -> Field:
    match = _FLOATS.fullmatch(arg)
    if not match:
        raise QuantityError(f"{{float:{arg}}} is not a field", hint="write it like {float:18..25:1}")
    low, high, decimals = float(match[1]), float(match[2]), int(match[3] or 2)
    return lambda moment: f"{low + dice.unit(moment.seed, moment.position) * (high - low):.{decimals}f}"


def _choice(arg: str) -> Field:
    words = arg.split("|")
    return lambda moment: words[dice.below(moment.seed, moment.position, len(words))]


def _fill(alphabet: str) -> Callable[[str], Field]:
    def field(arg: str) -> Field:
        if not arg.isdecimal() or int(arg) > _LONGEST_FILL:
            raise QuantityError(
                f"{arg!r} is not a number of characters up to {_LONGEST_FILL}", hint="write it like {hex:8}"
            )
        count = int(arg)

        def fill(moment: Moment) -> str:
            own = dice.roll(moment.seed, moment.position)
            return "".join([alphabet[dice.below(own, place, len(alphabet))] for place in range(count)])

        return fill

    return field


_WITH_ARGUMENT: dict[str, Callable[[str], Field]] = {
    "int": _int,
    "float": _float,
    "choice": _choice,
    "hex": _fill("0123456789abcdef"),
    "text": _fill(_LETTERS),
}
