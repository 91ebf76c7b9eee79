"""What was said, kind by kind: Redis `PUBLISH` to a channel, AMQP deliveries from a queue, … between which services.

Read from `kinds`, with delays of whole kinds from `responses` and those followed from `passages`: small tables all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from battlebrokers.analysis.delays import Asked
from battlebrokers.analysis.passages import Passage
from battlebrokers.analysis.stored import is_stored, whole
from battlebrokers.tables import KINDS
from battlebrokers.tables.run_folder import RunFolder

_TOLD_NAMES = 3
_MOST_KINDS = 2_000

Key = tuple[str, str, str, str]
"""Sender, receiver, protocol, kind."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """Messages of one kind, or those of one name among them."""

    name: str = ""
    """Topic, channel, queue, key, …; empty: whatever the name."""
    n: int = 0
    bytes: int = 0
    payload_bytes: int = 0
    followed: int = 0
    """Those that were followed from service to service."""
    p50_ns: int | None = None
    """Median time to the answer, if it is a request."""
    p99_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of message from one service to another."""

    sender: str
    receiver: str
    protocol: str
    kind: str
    part: str
    """`request`, `response` or `other`."""
    all: Spoken
    names: tuple[Spoken, ...]
    """The most frequent names, the busiest first; empty if they have none."""
    more_names: int
    """Names beyond those, up to some thousands."""


def read_kinds(folder: RunFolder, asked: Sequence[Asked], passages: Sequence[Passage]) -> list[Kind]:
    """All kinds, the most frequent first; `asked` are the delays by kind of request, `passages` the followed ones."""
    if not is_stored(folder, KINDS):
        return []
    kinds: dict[Key, dict[str, Any]] = {}
    names: dict[Key, list[Spoken]] = {}
    for row in whole(folder, KINDS).to_pylist():
        if row["name"] is None:
            kinds[_key(row)] = row
        else:
            names.setdefault(_key(row), []).append(_spoken(row, row["followed"], row["p50_ns"], row["p99_ns"]))
    delays = {
        (one.asker, one.answerer, one.protocol, one.kind): one.delay
        for peer in asked
        for one in peer.kinds
        if one.delay is not None
    }
    followed = {(one.sender, one.receiver, one.protocol, one.kind): one.n for one in passages}
    found: list[Kind] = []
    for key in sorted(kinds, key=lambda key: (-kinds[key]["n"], key))[:_MOST_KINDS]:
        row, delay = kinds[key], delays.get(key)
        spoken = _spoken(row, followed.get(key, 0), delay.p50_ns if delay else None, delay.p99_ns if delay else None)
        part = "request" if row["requests"] else "response" if row["responses"] else "other"
        told = sorted(names.get(key, []), key=lambda one: (-one.n, one.name))[:_TOLD_NAMES]
        found.append(Kind(*key, part, spoken, tuple(told), max(0, row["names"] - len(told))))
    return found


def _key(row: dict[str, Any]) -> Key:
    return row["sender"], row["receiver"], row["protocol"], row["kind"]


def _spoken(row: dict[str, Any], followed: int, p50_ns: int | None, p99_ns: int | None) -> Spoken:
    return Spoken(row["name"] or "", row["n"], row["bytes"], row["payload_bytes"], followed, p50_ns, p99_ns)
