"""Who was never let in: devices and clients that never connected, subscriptions that were never granted. Pure.

Called by `summary`. The ledger owes nothing to somebody who never listened, so without this a broker that turns half
of its audience away would lose nothing and pass. A try that failed and a later one that held is no such thing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from battlebrokers.analysis.columns import text_scalar
from battlebrokers.analysis.facts import Facts, total, where
from battlebrokers.analysis.model import Judged
from battlebrokers.tables.publishes import FAILURES
from battlebrokers.units import format_count

_WHO = ("role", "node")
_WHAT = (*_WHO, "filter", "share")
SUBSCRIBED = "every subscription is granted"
_SHOWN = 2
"""So many reasons or filters are told; who wants all reads `recorded/operations`."""


def judge_admission(texts: list[str], facts: Facts) -> list[Judged]:
    """What no scenario needs to say: all get in. Told only where some never did and no expectation decides."""
    spoken_of = {text.split()[0].rstrip("<>=!") for text in texts if text.split()}
    found = []
    if "connect_failures" not in spoken_of:
        found += _judge(facts.operations, "connect", _WHO, "everybody gets a connection", "never got one")
    if "subscribe_failures" not in spoken_of:
        found += _judge(facts.operations, "subscribe", _WHAT, SUBSCRIBED, "never were")
    if only_connects(facts):
        found += _judge_held(facts)
    return found


def only_connects(facts: Facts) -> bool:
    """Whether the scenario sends nothing: it is judged by its connections and subscriptions."""
    fleets = facts.manifest.scenario.resolved.get("fleets")
    speaks = any(isinstance(fleet, dict) and fleet.get("every") for fleet in fleets.values()) if fleets else False
    return not speaks and not facts.publishing.num_rows


def count_connects(facts: Facts) -> int:
    """How many connects were tried."""
    return total(where(facts.actions, kind="connect"), "n")


def _judge_held(facts: Facts) -> list[Judged]:
    """Connections that are only held: one that breaks is all that can go wrong after it was granted."""
    broken = total(where(facts.actions, kind="lost"), "n")
    if not broken:
        return []
    measured = f"{format_count(broken)} broke, of {format_count(count_connects(facts))} connects"
    text = "every connection is held to the end"
    return [Judged(text=text, ok=False, measured=measured, value=float(broken), source="promise")]


def _judge(operations: pa.Table, kind: str, keys: Sequence[str], promise: str, words: str) -> list[Judged]:
    tries = where(operations, kind=kind)
    held = set(_columns(where(tries, outcome="ok"), keys))
    refused = tries.filter(pc.not_equal(tries["outcome"], text_scalar("ok")))
    never: dict[tuple[Any, ...], tuple[str, int | None]] = {
        key: last
        for key, last in zip(_columns(refused, keys), _columns(refused, ("outcome", "reason")), strict=True)
        if key not in held
    }
    if not never:
        return []
    measured = f"{format_count(len(never))} of {format_count(len(held) + len(never))} {words}"
    filters = [key[keys.index("filter")] for key in never] if "filter" in keys else []
    return [
        Judged(
            text=promise,
            ok=False,
            measured=f"{measured} ({_why(never.values(), filters)})",
            value=float(len(never)),
            source="promise",
        )
    ]


def _columns(rows: pa.Table, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(rows[name].to_pylist() for name in names), strict=True)


def _why(answers: Iterable[tuple[str, int | None]], filters: list[str | None]) -> str:
    """The commonest answers, and the filters if any were asked for: `refused with 128; greenhouse/#`."""
    reasons = Counter(_answer(outcome, reason) for outcome, reason in answers)
    named = Counter(name for name in filters if name)
    return "; ".join(_commonest(counter) for counter in (reasons, named) if counter)


def _answer(outcome: str, reason: int | None) -> str:
    if not reason:
        return outcome
    return FAILURES.get(reason, outcome) if reason < 0 else f"{outcome} with {reason}"


def _commonest(counter: Counter[str]) -> str:
    return ", ".join(text for text, _ in counter.most_common(_SHOWN)) + (" …" if len(counter) > _SHOWN else "")
