"""Expectations as written: `delivery_p99 < 50ms`, `lost == 0`, `sent >= 99% of planned`.

Read here, judged in `analysis`. This file is the list of everything that can be expected.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

from battlebrokers.errors import QuantityError
from battlebrokers.scenario.patterns import nearest
from battlebrokers.units import parse_count, parse_duration_ns, parse_percent, parse_rate_per_s

Kind = Literal["duration", "count", "rate", "fraction"]

LATENCIES: Final[dict[str, str]] = {
    "delivery": "planned send to first arrival (another word for response)",
    "response": "planned send to first arrival",
    "service": "actual send to first arrival",
    "publish": "actual send to acknowledgement",
    "lag": "planned to actual send: how late our generator was",
    "last": "planned send to the arrival at the last of all listeners of a message",
    "connect": "asking for a connection to being welcome",
    "subscribe": "asking for a subscription to having it",
}
STATISTICS: Final = ("p50", "p90", "p95", "p99", "p999", "max", "mean")
COUNTS: Final[dict[str, str]] = {
    "planned": "messages the plan wanted",
    "sent": "messages that left a device",
    "acked": "messages the broker acknowledged",
    "unsent": "messages that never left a device",
    "refused": "messages the broker refused",
    "failed": "messages that got no proper answer",
    "unacked": "messages sent whose answer never came",
    "retries": "messages sent again",
    "expected": "deliveries that should have happened",
    "delivered": "deliveries that happened",
    "lost": "deliveries that never happened",
    "overdue": "deliveries outstanding when the drain ended although messages were still arriving",
    "indeterminate": "deliveries that never happened, and nobody can say whether the message was lost",
    "duplicates": "arrivals beyond the first",
    "reordered": "deliveries after a later message",
    "unexpected": "arrivals nobody asked for",
    "wrong_topic": "arrivals on another topic than the message was published on",
    "wills": "arrivals that were last wills of devices or clients",
    "late": "deliveries after the load had ended",
    "connect_failures": "connections that were refused or timed out",
    "subscribe_failures": "subscriptions that were refused or timed out",
}
RATES: Final[dict[str, str]] = {
    "sent_rate": "messages sent per second",
    "delivered_rate": "deliveries per second of the measure phase",
}
METRICS: Final[tuple[str, ...]] = (
    *(f"{latency}_{statistic}" for latency in LATENCIES for statistic in STATISTICS),
    *COUNTS,
    *RATES,
)
"""Every name that can stand on the left."""
BASES: Final = ("planned", "sent", "acked", "expected", "delivered")
"""What a share can be a share of."""

_OPERATORS: Final[dict[str, Callable[[float, float], bool]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_BASE_OF: Final = {
    "sent": "planned",
    "unsent": "planned",
    "refused": "planned",
    "failed": "planned",
    "unacked": "sent",
    "acked": "sent",
    "retries": "sent",
    "sent_rate": "planned",
}
_WHOLES: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("sent", "unsent", "acked", "refused", "failed", "unacked"), ("planned",)),
    **dict.fromkeys(("delivered", "lost", "overdue", "indeterminate", "late", "reordered"), ("expected",)),
}
"""Of what a count is always a part."""
_SENTENCE = re.compile(r"([A-Za-z0-9_.]+)\s*(<=|>=|==|!=|<|>)\s*(\S.*)")
_SHARE = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(%?)\s*(?:of\s+)?([a-z_]*)")


@dataclass(frozen=True, slots=True)
class Expectation:
    """One; `value` is in ns (duration), messages (count), per second (rate), or a share of `relative_to`."""

    text: str
    metric: str
    op: str
    value: float
    kind: Kind
    relative_to: str | None = None

    @property
    def latency(self) -> tuple[str, str] | None:
        """("response", "p99") for `delivery_p99`; None for counts and rates."""
        if self.kind != "duration":
            return None
        name, _, statistic = self.metric.rpartition("_")
        return ("response" if name == "delivery" else name), statistic

    @property
    def holds_always(self) -> bool:
        """Whether no measured value could break it: nothing is below zero, and no part more than the whole."""
        if self.op == ">=" and self.value <= 0:
            return True
        if self.relative_to is None or self.relative_to not in _WHOLES.get(self.metric, ()):
            return False
        return (self.op == "<=" and self.value >= 1) or (self.op == "<" and self.value > 1)

    def holds(self, measured: float, base: float | None = None) -> bool:
        """Whether the measured value meets it; `base` is the value of `relative_to` in the same unit."""
        limit = self.value if self.relative_to is None else self.value * (base or 0.0)
        return _OPERATORS[self.op](measured, limit)


def parse_expectation(value: object) -> Expectation:
    """Read one expectation; raises QuantityError that names the nearest valid metric."""
    if not isinstance(value, str):
        raise QuantityError(f"{value!r} is not an expectation", hint='write it like "delivery_p99 < 50ms"')
    text = " ".join(value.split())
    match = _SENTENCE.fullmatch(text) if len(text) <= 200 else None
    if not match:
        raise QuantityError(
            f"{text[:80]!r} is not an expectation", hint='write it like "delivery_p99 < 50ms" or "lost == 0"'
        )
    metric, op, right = match.groups()
    if metric not in METRICS:
        raise QuantityError(f"{metric!r} is not measured", hint=nearest(metric, METRICS) or "see `bb schema`")
    if metric not in COUNTS and metric not in RATES:
        return Expectation(text, metric, op, float(parse_duration_ns(right)), "duration")
    share = _share(metric, right)
    if share is not None:
        return Expectation(text, metric, op, share[0], "fraction", share[1])
    if metric in RATES:
        return Expectation(text, metric, op, parse_rate_per_s(right), "rate")
    return Expectation(text, metric, op, float(parse_count(right)), "count")


def _share(metric: str, right: str) -> tuple[float, str] | None:
    """The share and what it is a share of, if the right side is one: `99%`, `99% of planned`, `0.99 planned`."""
    match = _SHARE.fullmatch(right)
    if not match or not (match[2] or match[3]):
        return None
    number, percent, base = match.groups()
    if base in ("k", "messages", "message"):
        return None
    base = base or _BASE_OF.get(metric, "expected")
    if base not in BASES:
        raise QuantityError(f"{right!r} is not a share of anything known", hint=nearest(base, BASES))
    if metric.endswith("_failures"):
        raise QuantityError(f"{metric} is a count", hint=f'write it like "{metric} == 0"')
    return (parse_percent(f"{number}%") if percent else float(Fraction(number))), base
