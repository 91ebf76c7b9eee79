"""Where losses are: whether they gather at one pair of fleets, one listener, one device or one topic. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from battlebrokers.analysis.columns import sums_by

GATHERED = 0.5
"""A place is worth naming if it holds at least this share of all losses…"""
UNFAIR = 1.5
"""…and so many times more of them than of all deliveries."""


@dataclass(frozen=True, slots=True)
class LossPlace:
    """A place that holds more than its part of the losses."""

    words: str
    filter: str
    lost: int
    share: float


def where_lost(ledger: pa.Table) -> list[LossPlace]:
    """The narrowest places that hold most of the losses, the fullest first; empty if they are spread evenly."""
    lost, expected = (int(pc.sum(ledger[name]).as_py() or 0) for name in ("lost", "expected"))
    if not lost:
        return []
    found = []
    for keys, words in (
        (["client_fleet", "client"], "at client {client} of {client_fleet}"),
        (["fleet", "device"], "from device {device} of {fleet}"),
        (["topic"], "on topic {topic}"),
        (["fleet", "client_fleet", "qos"], "on the way from {fleet} to {client_fleet} at QoS {qos}"),
    ):
        sums = sums_by(ledger, keys, ("lost", "expected"))
        if len(sums) < 2:
            continue
        top = max(sums, key=lambda row: row["lost"])
        share, fair_share = top["lost"] / lost, top["expected"] / max(1, expected)
        if share >= GATHERED and share >= UNFAIR * fair_share:
            rows = " AND ".join(f"{key} = {top[key]!r}" for key in keys)
            found.append(LossPlace(words.format(**top), rows, top["lost"], share))
    return sorted(found, key=lambda place: place.share, reverse=True)
