"""The kinds of values a scenario holds, for pydantic: each checks what was written and keeps it as text.

Kept as text, a resolved scenario reads like the file it came from and can be read again. Used by the model only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, ValidationInfo, WithJsonSchema

from battlebrokers.errors import QuantityError
from battlebrokers.scenario.expectations import parse_expectation
from battlebrokers.scenario.paces import FORMS, parse_pace
from battlebrokers.scenario.patterns import CLIENT_VARIABLES, DEVICE_VARIABLES, compile_pattern
from battlebrokers.scenario.payloads import check_encoding
from battlebrokers.scenario.sizes import parse_size, size_text
from battlebrokers.scenario.templates import compile_template
from battlebrokers.scenario.topics import check_filter, check_share, check_topic
from battlebrokers.secrets import Secret
from battlebrokers.units import parse_count, parse_duration_ns, parse_rate

ANY_VARIABLES: Final = tuple(dict.fromkeys((*DEVICE_VARIABLES, *CLIENT_VARIABLES)))
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")
FLEET_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
RANDOM_ID: Final = re.compile(r"random(?:\s+(\d{1,5})(?:\s+characters)?)?")

_VALUE = re.compile(r"(-?\d{1,15}(?:\.(\d{1,9}))?)\s*\.\.\s*(-?\d{1,15}(?:\.(\d{1,9}))?)")
_LONGEST_TEXT = 100_000


def text_of(value: object, what: str = "text") -> str:
    """The value if it is a text of sensible length; numbers are shown with a hint to quote them."""
    if not isinstance(value, str):
        shown = "a list" if isinstance(value, list) else "a mapping" if isinstance(value, dict) else repr(value)
        hint = f'quote it: "{value}"' if isinstance(value, int | float) and not isinstance(value, bool) else ""
        raise QuantityError(f"must be {what}, not {shown}", hint=hint)
    if len(value) > _LONGEST_TEXT:
        raise QuantityError(f"is longer than {_LONGEST_TEXT} characters")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise QuantityError("is not valid Unicode text") from None
    return value


def _kept(parse: Callable[[Any], object]) -> BeforeValidator:
    """Check with a parser, keep the text."""

    def check(value: object) -> str:
        parse(value)
        return str(value).strip()

    return BeforeValidator(check)


def _positive(value: object) -> None:
    if parse_duration_ns(value) == 0:
        raise QuantityError("must be longer than 0")


def _positive_rate(value: object) -> None:
    if parse_rate(value) == 0:
        raise QuantityError("0 would never happen", hint="leave the key out if you mean as fast as possible")


def parse_duration_range(value: object) -> tuple[int, int]:
    """Both ends of "10s" (twice the same) or "10s..20s", in ns."""
    if isinstance(value, str) and ".." in value:
        first, _, last = value.partition("..")
        low, high = parse_duration_ns(first), parse_duration_ns(last)
        if low > high:
            raise QuantityError(f"{value!r} runs backwards", hint=f'write "{last.strip()}..{first.strip()}"')
        return low, high
    return (parse_duration_ns(value),) * 2


def parse_value_range(text: str) -> tuple[float, float, int]:
    """Low, high and decimals of "18.0..25.5"."""
    match = _VALUE.fullmatch(text.strip())
    if not match:
        raise QuantityError(f"{text!r} is not a range of numbers", hint='write it like "0..100" or "18.0..25.5"')
    low, high = float(match[1]), float(match[3])
    if low > high:
        raise QuantityError(f"{text!r} runs backwards", hint=f'write "{match[3]}..{match[1]}"')
    return low, high, max(len(match[2] or ""), len(match[4] or ""))


def _value_range(value: object) -> str:
    parse_value_range(text_of(value, 'a range such as "0..100"'))
    return str(value).strip()


def _size(value: object) -> str:
    parse_size(value)
    return size_text(value)


def _fixed(value: object) -> str:
    if isinstance(value, list | dict):
        raise QuantityError("must be one value")
    return text_of(value if isinstance(value, str) else str(value))


def _template(value: object) -> str:
    compile_template(text_of(value))
    return str(value)


def _encoding(value: object) -> str:
    return check_encoding(text_of(value))


def _items(value: object) -> tuple[object, ...]:
    """One text stands for a list of one."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _topic(value: object) -> str:
    check_topic(_filled(text_of(value), DEVICE_VARIABLES, ranges=True))
    return str(value)


def _filter(value: object) -> str:
    check_filter(_filled(text_of(value), CLIENT_VARIABLES, ranges=True))
    return str(value)


def _filled(text: str, allowed: tuple[str, ...], *, ranges: bool) -> str:
    """The text with harmless values in place of its variables, to check what surrounds them."""
    pattern = compile_pattern(text, allowed, ranges=ranges)
    return pattern.expand(dict.fromkeys(allowed, "x"))[0]


def _one_topic(value: object) -> str:
    check_topic(_filled(text_of(value), ANY_VARIABLES, ranges=False))
    return str(value)


def _share(value: object) -> str:
    check_share(text_of(value))
    return str(value)


def _client_id(value: object) -> str:
    text = text_of(value)
    if match := RANDOM_ID.fullmatch(text):
        if not 8 <= int(match[1] or 23) <= 65_535:
            raise QuantityError(f"{text!r} cannot be unique", hint='between 8 and 65535: "random 62 characters"')
        return text
    pattern = compile_pattern(text, ANY_VARIABLES)
    if not text:
        raise QuantityError("a client id cannot be empty", hint="leave the key out to get one made")
    if pattern.names.isdisjoint(("index", "number", "device", "client")):
        raise QuantityError(f"{text!r} is the same for every node", hint="add {index}, {number} or {device}/{client}")
    return text


def _credential(value: object) -> str:
    text = text_of(value)
    compile_pattern(text, ANY_VARIABLES, environment=True)
    return text


def _password(value: object) -> Secret:
    if isinstance(value, Secret):
        return value
    if not isinstance(value, str):
        raise QuantityError("must be text", hint="quote it")  # and not what it is: that may be the password
    try:
        return Secret(_credential(value))
    except QuantityError as error:
        if not error.message.endswith("is not a variable here"):
            raise
        # What braces hold may be a piece of the password.
        hint = "{index}, {number}, {fleet}, {device}, {client} and {env:NAME} are"
        raise QuantityError("what stands in braces is no variable here", hint=hint) from None


def _version(value: object) -> str:
    text = str(value)
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        if text in ("5", "5.0"):
            return "5"
        if text == "3.1.1":
            return text
    raise QuantityError(f"{text[:40]!r} is not an MQTT version", hint="valid: 3.1.1, 5")


def _qos(value: object) -> int:
    # True and 1.0 equal 1, and mean something else.
    if type(value) is not int or value not in (0, 1, 2):
        hint = "without quotes" if value in ("0", "1", "2") else ""
        raise QuantityError(f"must be 0, 1 or 2, not {repr(value)[:40]}", hint=hint)
    return value


def _file(value: object, info: ValidationInfo) -> str:
    """A readable file, relative to the scenario; made absolute, so that a worker elsewhere finds it."""
    text = text_of(value, "a file name")
    folder = (info.context or {}).get("folder")
    if folder is None:
        return text
    try:
        path = (Path(folder) / Path(text).expanduser()).resolve()
        missing, folder_instead = not path.is_file(), path.is_dir()
    except (OSError, ValueError, RuntimeError):
        raise QuantityError(f"{text!r} is not a file name") from None
    if folder_instead:
        raise QuantityError(f"{text} is a folder", hint="name a file in it")
    if missing:
        raise QuantityError(f"there is no file {text}", hint=f"looked for {path}")
    if not os.access(path, os.R_OK):
        raise QuantityError(f"{text} may not be read", hint=f"chmod u+r {path}")
    return str(path)


def _name(value: object) -> str:
    text = text_of(value)
    if not NAME.fullmatch(text):
        raise QuantityError(f"{text[:80]!r} cannot be a name", hint="letters, digits, - _ . and at most 80 of them")
    return text


def _address(value: object) -> str:
    text = text_of(value, "an IP address").strip()
    try:
        return str(ip_address(text))
    except ValueError:
        raise QuantityError(f"{text[:80]!r} is no IP address", hint="such as 10.0.0.5, one of this machine") from None


def _shown(kind: str, *examples: str, also: tuple[str, ...] = ()) -> WithJsonSchema:
    return WithJsonSchema({"type": ["string", *also] if also else "string", "title": kind, "examples": list(examples)})


Duration = Annotated[str, _kept(parse_duration_ns), _shown("duration", "500ms", "10s", "2min")]
PositiveDuration = Annotated[str, _kept(_positive), _shown("duration", "500ms", "10s", "2min")]
DurationRange = Annotated[str, _kept(parse_duration_range), _shown("duration or range", "10s", "10s..20s")]
Rate = Annotated[str, _kept(_positive_rate), _shown("rate", "100/s", "5k/s", "20/min")]
Count = Annotated[int, BeforeValidator(parse_count), _shown("count", "10k", also=("integer",))]
Pace = Annotated[str, _kept(parse_pace), _shown("pace", *FORMS)]
Size = Annotated[
    str, BeforeValidator(_size), _shown("size", "2KiB", "180..400", "normal 256KiB ± 64KiB", also=("integer", "array"))
]
ValueRange = Annotated[str, BeforeValidator(_value_range), _shown("range of numbers", "0..100", "18.0..25.5")]
Fixed = Annotated[str, BeforeValidator(_fixed), _shown("any value", "21.5", also=("number", "boolean"))]
Template = Annotated[str, BeforeValidator(_template), _shown("template", '{"free": {int:0..1}}')]
Encoding = Annotated[str, BeforeValidator(_encoding), _shown("encoding", "none", "base64", "binhex", "utf-16")]
Text = Annotated[str, BeforeValidator(text_of), _shown("text")]
Name = Annotated[str, BeforeValidator(_name), _shown("name", "smart-city")]
Topic = Annotated[str, BeforeValidator(_topic)]
Topics = Annotated[
    tuple[Topic, ...], BeforeValidator(_items), _shown("topic or list", "city/air/{device}", also=("array",))
]
Filter = Annotated[str, BeforeValidator(_filter)]
Filters = Annotated[
    tuple[Filter, ...], BeforeValidator(_items), _shown("filter or list", "city/#", "test/{index}", also=("array",))
]
Addresses = Annotated[
    tuple[Annotated[str, BeforeValidator(_address)], ...],
    BeforeValidator(_items),
    _shown("address or list", "10.0.0.5", also=("array",)),
]
OneTopic = Annotated[str, BeforeValidator(_one_topic), _shown("topic", "city/status/{device}")]
Share = Annotated[str, BeforeValidator(_share), _shown("group name", "archive")]
ClientId = Annotated[
    str, BeforeValidator(_client_id), _shown("client id pattern", "{fleet}-{index}", "random 62 characters")
]
UserName = Annotated[str, BeforeValidator(_credential), _shown("text with variables", "dev-{index}", "{env:PASSWORD}")]
Password = Annotated[Secret, BeforeValidator(_password), _shown("text with variables", "dev-{index}", "{env:PASSWORD}")]
Version = Annotated[
    Literal["3.1.1", "5"], BeforeValidator(_version), _shown("3.1.1 or 5", "3.1.1", "5", also=("number",))
]
Qos = Annotated[Literal[0, 1, 2], BeforeValidator(_qos), WithJsonSchema({"enum": [0, 1, 2]})]
File = Annotated[str, BeforeValidator(_file), _shown("file", "certs/ca.pem")]
Expected = Annotated[str, _kept(parse_expectation), _shown("expectation", "delivery_p99 < 50ms", "lost == 0")]
