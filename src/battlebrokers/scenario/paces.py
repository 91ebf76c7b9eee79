"""Paces as written: `1s`, `100/s`, `20s..60s`, `poisson 5s`, `burst 10 every 1s`, `ramp 10/s..100/s over 30s`.

Called by the scenario model, the expansion and the estimates. When exactly a device speaks is `pacing`'s business.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

from battlebrokers.errors import QuantityError
from battlebrokers.scenario import dice
from battlebrokers.scenario.nodes import NEVER_NS, PacePlan
from battlebrokers.units import parse_count, parse_duration_ns, parse_rate

SECOND_NS = 1_000_000_000
FORMS = ("1s", "100/s", "20s..60s", "poisson 5s", "burst 10 every 1s", "ramp 10/s..100/s over 30s")

_HINT = "write it like " + ", ".join(f'"{form}"' for form in FORMS)
_BURST = re.compile(r"burst\s+(\S+(?:\s+messages)?)\s+every\s+(.+)")
_RAMP = re.compile(r"ramp\s+(.+?)\s*\.\.\s*(.+?)\s+over\s+(.+)")


def parse_pace(value: object) -> PacePlan:
    """Read a pace; offset and start are filled in for each device later."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise QuantityError(f"{value!r} is not a pace", hint=_HINT)
    text = str(value).strip()
    if len(text) > 200:
        raise QuantityError("this pace is too long to be one", hint=_HINT)
    if match := _RAMP.fullmatch(text):
        return _ramp(match[1], match[2], match[3])
    if match := _BURST.fullmatch(text):
        size = parse_count(match[1])
        if size < 1:
            raise QuantityError("a burst of 0 messages says nothing", hint="leave the fleet out, or use `at_most: 0`")
        return PacePlan("burst", _interval_ns(match[2]), burst_size=size)
    if text.startswith("poisson"):
        return PacePlan("poisson", _interval_ns(text.removeprefix("poisson")))
    if ".." in text:
        low, _, high = text.partition("..")
        low_ns, high_ns = parse_duration_ns(low), parse_duration_ns(high)
        if low_ns > high_ns:
            raise QuantityError(f"{text!r} runs backwards", hint=f'write "{high.strip()}..{low.strip()}"')
        if high_ns == 0:
            raise QuantityError(f"{text!r} leaves no time between messages", hint=_HINT)
        return PacePlan("uniform", low_ns, high_ns)
    if "/" in text:
        return _steady(_positive_rate(text))
    if text[:1].isalpha():
        raise QuantityError(f"{text!r} is not a pace", hint=_HINT)
    return PacePlan("steady", _interval_ns(text))


def _positive_rate(text: str) -> Fraction:
    rate = parse_rate(text.strip())
    if rate == 0:
        raise QuantityError(f"{text!r} never speaks", hint="use `at_most: 0` for devices that only connect")
    return rate


def _interval_ns(text: str) -> int:
    """A gap given as a duration or as a rate."""
    text = text.strip()
    interval_ns = round(SECOND_NS / _positive_rate(text)) if "/" in text else parse_duration_ns(text)
    if interval_ns == 0:
        raise QuantityError(f"{text!r} leaves no time between messages", hint=_HINT)
    return interval_ns


def _steady(rate: Fraction) -> PacePlan:
    interval = SECOND_NS / rate
    return PacePlan("steady", interval.numerator, per_interval=interval.denominator)


def _ramp(first: str, last: str, over: str) -> PacePlan:
    low, high, ramp_ns = parse_rate(first), parse_rate(last), parse_duration_ns(over)
    if low == high == 0:
        raise QuantityError("a ramp from 0/s to 0/s never speaks", hint=_HINT)
    if ramp_ns == 0:
        raise QuantityError("a ramp over 0s is a step", hint=f'write just "{last}"')
    start, end = (round(SECOND_NS / rate) if rate else NEVER_NS for rate in (low, high))
    return PacePlan("ramp", start, end, ramp_ns=ramp_ns)


def stagger_ns(pace: PacePlan, place: int, of: int, seed: int) -> int:
    """The offset of the place-th (from 0) of so many alike devices, spread over one interval so that they take turns.

    Random intervals start in their steady state: the first gap is what is left of one already running.
    """
    match pace.kind:
        case "steady":
            return pace.interval_ns * place // (of * pace.per_interval)
        case "burst":
            return pace.interval_ns * place // of
        case "ramp":
            return int(_first_ramp_gap_ns(pace) * place / of)
        case "uniform":
            low, high = float(pace.interval_ns), float(pace.interval_max_ns)
            phase = dice.branch(seed, dice.PHASE)
            running = math.sqrt(low * low + dice.unit(phase, 0) * (high * high - low * low))
            return int(running * dice.unit(phase, 1))
        case _:
            return 0


def placed(pace: PacePlan, offset_ns: int, start_ns: int) -> PacePlan:
    """The pace of one device (`dataclasses.replace` costs as much as all the rest of a device)."""
    return PacePlan(
        pace.kind,
        pace.interval_ns,
        pace.interval_max_ns,
        pace.burst_size,
        pace.ramp_ns,
        offset_ns,
        start_ns,
        pace.per_interval,
    )


def _ramp_rates(pace: PacePlan) -> tuple[float, float]:
    """Messages per nanosecond at the two ends of a ramp."""
    return tuple(0.0 if gap == NEVER_NS else 1 / gap for gap in (pace.interval_ns, pace.interval_max_ns))  # type: ignore[return-value]


def _first_ramp_gap_ns(pace: PacePlan) -> float:
    """How long after its first message a ramp owes the second; at most the ramp itself."""
    low, high = _ramp_rates(pace)
    slope = (high - low) / pace.ramp_ns
    root = low * low + 2 * slope
    if root < 0 or low + math.sqrt(root) == 0:
        return float(pace.ramp_ns)
    return min(2 / (low + math.sqrt(root)), float(pace.ramp_ns))


def messages_until(pace: PacePlan, time_ns: int) -> float:
    """How many messages a device of a staggered fleet owes before that time of the load, on average."""
    since = float(time_ns - pace.start_ns)
    if since <= 0:
        return 0.0
    match pace.kind:
        case "steady":
            return since * pace.per_interval / pace.interval_ns
        case "burst":
            return since * pace.burst_size / pace.interval_ns
        case "uniform":
            return since * 2 / (pace.interval_ns + pace.interval_max_ns)
        case "ramp":
            low, high = _ramp_rates(pace)
            rising = min(since, float(pace.ramp_ns))
            return rising * (low + (high - low) * rising / pace.ramp_ns / 2) + (since - rising) * high
        case _:
            return since / pace.interval_ns
