"""Payload sizes as written (`30`, `180..400`, `normal 256KiB ± 64KiB`, `[30, 4KiB]`) and as drawn, one per message.

Called by the scenario model, the payload source and the estimates. Pure: a size depends on seed and sequence only.
"""

from __future__ import annotations

import re
from statistics import NormalDist

from battlebrokers.errors import QuantityError
from battlebrokers.scenario import dice
from battlebrokers.scenario.nodes import SizePlan
from battlebrokers.units import parse_size_bytes

HEADER_BYTES = 16
LARGEST_BYTES = 268_000_000
"""A little under the largest MQTT packet (268 435 455 bytes), which holds topic and properties as well."""

_NORMAL = re.compile(r"normal\s+(.+?)\s*(?:±|\+-|\+/-)\s*(.+)")
_HINT = 'write it like 30, "180..400", "normal 256KiB ± 64KiB" or [30, 4KiB]'
_SPREADS = 4
_STANDARD = NormalDist()


def size_text(value: object) -> str:
    """A size as given in YAML (a number, a text or a list of choices) as one text."""
    if isinstance(value, list):
        if not value:
            raise QuantityError("a choice of sizes cannot be empty", hint=_HINT)
        return "choice " + ", ".join(str(parse_size_bytes(item)) for item in value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise QuantityError(f"{value!r} is not a size", hint=_HINT)
    return str(value).strip()


def parse_size(value: object) -> SizePlan:
    """Read a fixed or drawn size."""
    text = size_text(value)
    if len(text) > 4000:
        raise QuantityError("this size is too long to be one", hint=_HINT)
    if text.startswith("choice "):
        choices = tuple(parse_size_bytes(item) for item in text.removeprefix("choice ").split(","))
        plan = SizePlan("choice", low=min(choices), high=max(choices), choices=choices)
    elif match := _NORMAL.fullmatch(text):
        mean, spread = parse_size_bytes(match[1]), parse_size_bytes(match[2])
        # A header must stay a header: a payload meant to be larger is never cut below it.
        low = max(mean - _SPREADS * spread, HEADER_BYTES if mean >= HEADER_BYTES else 0)
        plan = SizePlan("normal", low=low, high=mean + _SPREADS * spread, mean=float(mean), spread=float(spread))
    elif ".." in text:
        first, _, last = text.partition("..")
        low, high = parse_size_bytes(first), parse_size_bytes(last)
        if low > high:
            raise QuantityError(f"{text!r} runs backwards", hint=f'write "{last.strip()}..{first.strip()}"')
        plan = SizePlan("uniform", low=low, high=high)
    else:
        size = parse_size_bytes(value if not isinstance(value, list) else text)
        plan = SizePlan("fixed", low=size, high=size)
    if plan.high > LARGEST_BYTES:
        raise QuantityError(f"{text!r} reaches {plan.high} bytes", hint=f"MQTT messages end at {LARGEST_BYTES} bytes")
    return plan


def draw_size(plan: SizePlan, seed: int, seq: int) -> int:
    """The size of one message."""
    match plan.kind:
        case "uniform":
            return plan.low + dice.below(seed, seq, plan.high - plan.low + 1)
        case "normal":
            # Half a step keeps the quantile away from 0, where it has no value.
            quantile = dice.unit(seed, seq) + 2.0**-54
            size = round(plan.mean + plan.spread * _STANDARD.inv_cdf(quantile))
            return min(max(size, plan.low), plan.high)
        case "choice":
            return plan.choices[dice.below(seed, seq, len(plan.choices))]
        case _:
            return plan.low


def mean_size(plan: SizePlan) -> float:
    """The size to expect on average."""
    match plan.kind:
        case "uniform":
            return (plan.low + plan.high) / 2
        case "normal":
            return plan.mean
        case "choice":
            return sum(plan.choices) / len(plan.choices)
        case _:
            return float(plan.low)
