"""Legs of followed messages → `passages`: how they went from service to service, added up anywhere."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from battlebrokers.pipeline.stages.kinds import KEY
from battlebrokers.pipeline.stages.peers import codes, numbers
from battlebrokers.pipeline.stages.responses import Took
from battlebrokers.tables import PASSAGES

_QUANTILES = {"p50_ns": 0.5, "p95_ns": 0.95}


class PassageSum:
    """Sums of a task."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, ...], Took] = {}
        """How long the sender of each kind kept them; `unanswered` are those that began there."""

    def add(self, legs: pa.Table) -> None:
        """All legs of some messages, each message's together and in their order."""
        if not legs.num_rows:
            return
        code, words = codes([legs[name] for name in KEY])
        order = np.argsort(code, kind="stable")
        inside = legs["inside_ns"].combine_chunks()
        began = pc.is_null(inside).to_numpy(zero_copy_only=False)[order]
        inside_ns = numbers(pc.fill_null(inside, 0))[order]
        starts = np.flatnonzero(np.append(True, np.diff(code[order]) != 0))
        for start, end in pairwise([*starts.tolist(), len(order)]):
            took = self._kept.setdefault(words[int(code[order[start]])], Took())
            took.n += end - start
            took.unanswered += int(np.count_nonzero(began[start:end]))
            took.time(inside_ns[start:end][~began[start:end]])

    def thin(self) -> None:
        """Before it travels."""
        for took in self._kept.values():
            took.thin()

    def merge(self, other: PassageSum) -> None:
        """That of another task."""
        for key, took in other._kept.items():
            self._kept.setdefault(key, Took()).merge(took)

    def table(self) -> pa.Table:
        """The rows of `passages`, the most frequent first."""
        rows: list[dict[str, Any]] = []
        for key, took in sorted(self._kept.items(), key=lambda one: (-one[1].n, one[0])):
            times = {f"inside_{name}": value for name, value in took.quantiles(_QUANTILES).items()}
            rows.append({**dict(zip(KEY, key, strict=True)), "n": took.n, **times})
        return pa.Table.from_pylist(rows, schema=PASSAGES.arrow_schema())

    def senders(self) -> set[str]:
        """Whoever sent anything on."""
        return {key[0] for key in self._kept}
