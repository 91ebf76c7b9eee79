"""Quantities as people write them: "10ms", "5k/s", "2KiB", "0.01%". Parsers, and formatters for reports.

Called by the scenario language, the command line and the reports. Parsers are exact (no float on the way) and
raise QuantityError; zero is zero, and a number without a unit is refused where a unit decides its meaning.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

from battlebrokers.errors import QuantityError

_NUMBER = r"(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
_DURATION_NS: dict[str, int] = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "min": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
}
_SIZE_BYTES: dict[str, int] = {
    "": 1,
    "b": 1,
    "byte": 1,
    "bytes": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
}
_FACTOR: dict[str, int] = {"": 1, "k": 1000, "K": 1000, "M": 1_000_000, "G": 1_000_000_000}

_DURATION = re.compile(rf"(?:{_NUMBER}\s*(?:ns|us|µs|μs|ms|min|s|m|h|d)\s*)+")
_DURATION_PART = re.compile(rf"({_NUMBER})\s*(ns|us|µs|μs|ms|min|s|m|h|d)")
_RATE = re.compile(rf"({_NUMBER})\s*([kKMG]?)\s*/\s*(s|sec|second|m|min|minute|h|hour)")
_SIZE = re.compile(rf"({_NUMBER})\s*([A-Za-z]*)")
_COUNT = re.compile(rf"({_NUMBER}|[0-9]{{1,3}}(?: [0-9]{{3}})+)\s*([kKMG]?)")
_PERCENT = re.compile(rf"({_NUMBER})\s*%")
_PER_NS: dict[str, int] = {
    "s": _DURATION_NS["s"],
    "sec": _DURATION_NS["s"],
    "second": _DURATION_NS["s"],
    "m": _DURATION_NS["min"],
    "min": _DURATION_NS["min"],
    "minute": _DURATION_NS["min"],
    "h": _DURATION_NS["h"],
    "hour": _DURATION_NS["h"],
}
_LONGEST_TEXT = 64
LONGEST_NS = 2**62
"""No duration may be longer (146 years): sums of two still fit into 64 bits."""


def _text(value: object, what: str, hint: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise QuantityError(f"{_shown(value)} is not {what}", hint=hint)
    text = str(value).strip()
    if len(text) > _LONGEST_TEXT or not text.isprintable():
        raise QuantityError(f"{_shown(text)} is not {what}", hint=hint)
    return text


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…"


def parse_duration_ns(value: object) -> int:
    """Nanoseconds of "10ms", "1.5s", "1m30s"; a bare number is refused, except 0."""
    hint = 'write it like "500ms", "10s", "1m30s" or "2h"'
    text = _text(value, "a duration", hint)
    if re.fullmatch(r"0+(?:\.0+)?", text):
        return 0
    if re.fullmatch(_NUMBER, text):
        raise QuantityError(f"{text} has no unit", hint=f'a duration needs one: "{text}s" or "{text}ms"')
    if not _DURATION.fullmatch(text):
        raise QuantityError(f"{_shown(value)} is not a duration", hint=hint)
    total = sum((Fraction(n) * _DURATION_NS[unit] for n, unit in _DURATION_PART.findall(text)), Fraction(0))
    if total > LONGEST_NS:
        raise QuantityError(f"{_shown(value)} is longer than 146 years", hint=hint)
    return round(total)


def parse_rate(value: object) -> Fraction:
    """Exact events per second of "100/s", "5k/s", "20/min"."""
    hint = 'write it like "100/s", "5k/s" or "20/min"'
    text = _text(value, "a rate", hint)
    match = _RATE.fullmatch(text)
    if not match:
        if re.fullmatch(rf"{_NUMBER}\s*[kKMG]?", text):
            raise QuantityError(f"{text} has no unit", hint=f'a rate needs one: "{text}/s"')
        raise QuantityError(f"{_shown(value)} is not a rate", hint=hint)
    number, factor, per = match.groups()
    rate = Fraction(number) * _FACTOR[factor] * _DURATION_NS["s"] / _PER_NS[per]
    if rate > _FACTOR["G"]:
        raise QuantityError(f"{_shown(value)} is faster than one a nanosecond", hint=hint)
    return rate


def parse_rate_per_s(value: object) -> float:
    """Events per second of "100/s", "5k/s", "20/min"."""
    return float(parse_rate(value))


def parse_size_bytes(value: object) -> int:
    """Bytes of 30, "30B", "2KiB", "1MB"; a bare whole number means bytes."""
    hint = 'write it like 30, "2KiB" or "1MB"'
    text = _text(value, "a size", hint)
    match = _SIZE.fullmatch(text)
    if not match or match[2].lower() not in _SIZE_BYTES:
        raise QuantityError(f"{_shown(value)} is not a size", hint=hint)
    size = Fraction(match[1]) * _SIZE_BYTES[match[2].lower()]
    if size.denominator != 1:
        raise QuantityError(f"{_shown(value)} is not a whole number of bytes", hint=hint)
    return int(size)


def parse_count(value: object) -> int:
    """A whole number: 50, "10k", "1.5M", "50 messages"."""
    hint = 'write it like 50, "10k" or "1M"'
    text = _text(value, "a count", hint)
    match = _COUNT.fullmatch(text.removesuffix("messages").removesuffix("message").strip())
    if not match:
        raise QuantityError(f"{_shown(value)} is not a count", hint=hint)
    count = Fraction(match[1].replace(" ", "")) * _FACTOR[match[2]]
    if count.denominator != 1:
        raise QuantityError(f"{_shown(value)} is not a whole number", hint=hint)
    return int(count)


def parse_percent(value: object) -> float:
    """The fraction a percentage stands for: "0.01%" is 0.0001."""
    text = _text(value, "a percentage", 'write it like "0.01%"')
    match = _PERCENT.fullmatch(text)
    if not match:
        raise QuantityError(f"{_shown(value)} is not a percentage", hint='write it like "0.01%"')
    return float(Fraction(match[1]) / 100)


def _digits(value: float) -> str:
    """Three significant digits, no exponent, no trailing zeros."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else ("∞" if value > 0 else "-∞")
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{min(decimals, 12)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _grouped(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def format_duration(duration_ns: float) -> str:
    """Nanoseconds for people: "850 ns", "31.2 ms", "4.5 s", "90 s", "30 min", "2 h 5 min"; infinity is "∞"."""
    if not math.isfinite(duration_ns):
        return _digits(duration_ns)
    if duration_ns == 0:
        return "0 s"
    if duration_ns < 0:
        return "-" + format_duration(-duration_ns)
    for limit, divisor, unit in ((1e3, 1, "ns"), (1e6, 1e3, "µs"), (1e9, 1e6, "ms"), (120e9 + 1, 1e9, "s")):
        # 999.6 µs rounds to 1000 µs: better said as 1 ms.
        if duration_ns < limit * (0.9995 if limit < 1e10 else 1):
            return f"{_digits(duration_ns / divisor)} {unit}"
    minutes, seconds = divmod(round(duration_ns / 1e9), 60)
    if minutes < 60:
        return f"{minutes} min" + (f" {seconds} s" if seconds else "")
    hours, minutes = divmod(round(duration_ns / 60e9), 60)
    return f"{_grouped(hours)} h" + (f" {minutes} min" if minutes else "")


def format_size(size_bytes: float) -> str:
    """Bytes for people: "30 B", "3.4 KiB", "1 MiB"."""
    if not math.isfinite(size_bytes):
        return _digits(size_bytes)
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1023.5:
            return f"{_digits(value)} {unit}"
        value /= 1024
    return f"{_digits(value)} TiB"


def format_count(count: float) -> str:
    """A number for people, grouped by thousands: "1 203 114"."""
    if not math.isfinite(count):
        return _digits(count)
    if abs(count) < 100 and count != int(count):
        return _digits(count)
    return _grouped(round(count))


def format_rate(per_s: float) -> str:
    """Events per second for people: "0.5/s", "135/s", "12 031/s"."""
    return f"{format_count(per_s)}/s"


def format_percent(fraction: float) -> str:
    """A fraction as a percentage for people: 0.0001 is "0.01 %"."""
    return f"{_digits(fraction * 100)} %"


def duration_text(duration_ns: int) -> str:
    """The shortest text that parses back to exactly these nanoseconds."""
    for unit in ("h", "min", "s", "ms", "us"):
        if duration_ns and duration_ns % _DURATION_NS[unit] == 0:
            return f"{duration_ns // _DURATION_NS[unit]}{unit}"
    return f"{duration_ns}ns" if duration_ns else "0s"
