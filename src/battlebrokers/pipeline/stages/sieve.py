"""Sightings that cannot be followed are held back where they are seen: what is said all the time names no message.

All sightings of one name go to one task. A constant payload would fill its memory only to be thrown away there, so
little more of it is passed on than proves that it names several messages.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from battlebrokers.pipeline.stages.hops import BY_HEADER, BY_ID
from battlebrokers.pipeline.stages.peers import OUTSIDE, Numbers, as_array, codes, numbers

_OFTEN = 16
"""Up to so many sightings of one name at a time are passed on as they are."""
_MOST_REMEMBERED = 1 << 16

Mask = npt.NDArray[np.bool_]


class Sieve:
    """One task's; remembers names that were proved to be ambiguous, unless they are very many."""

    def __init__(self) -> None:
        self._ambiguous: Numbers = np.empty(0, dtype=np.int64)

    def pass_on(self, seen: pa.Table) -> pa.Table:
        """Those of these sightings that may be followed; of names said often only the first and last on each wire."""
        trace, others = numbers(seen["trace"]), numbers(seen["by"]) != BY_HEADER
        kept = np.ones(len(trace), dtype=np.bool_)
        if len(self._ambiguous):
            # Its proof was passed on before.
            kept[others] = ~np.isin(trace[others], self._ambiguous)
        candidates = np.flatnonzero(others & kept)
        often = candidates[_counts(trace[candidates]) > _OFTEN]
        if len(often):
            kept[often] = self._few(seen.take(as_array(often)))
        return seen if kept.all() else seen.filter(pa.array(kept))

    def _few(self, seen: pa.Table) -> Mask:
        """Which of these, all of them of names said often."""
        trace, content = numbers(seen["trace"]), numbers(seen["content"])
        sender, names = codes([seen["sender"]])
        wire = (trace, numbers(seen["stream"]), numbers(seen["epoch"]), sender)
        first, last = _ends(np.lexsort((content, *wire[::-1])), wire)
        # On one wire a payload must not come twice, and an identifier not with different ones.
        twice = (first != last) & ((numbers(seen["by"])[first] != BY_ID) | (content[first] != content[last]))
        proofs = np.zeros(len(trace), dtype=np.bool_)
        proofs[first[twice]] = proofs[last[twice]] = True
        if (OUTSIDE,) in names:
            # What comes from outside twice has two origins.
            outside = np.flatnonzero(sender == names.index((OUTSIDE,)))
            one, other = _ends(outside[np.argsort(trace[outside], kind="stable")], (trace,))
            proofs[one[one != other]] = proofs[other[one != other]] = True
        ambiguous = np.unique(trace[proofs])
        if len(self._ambiguous) + len(ambiguous) <= _MOST_REMEMBERED:
            self._ambiguous = np.union1d(self._ambiguous, ambiguous)
        kept = proofs.copy()
        kept[first] = kept[last] = True
        kept &= proofs | ~np.isin(trace, ambiguous)
        return kept


def _counts(values: Numbers) -> Numbers:
    """How often each of these is among them."""
    if not len(values):
        return values
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    found: Numbers = counts[places]
    return found


def _ends(order: Numbers, columns: tuple[Numbers, ...]) -> tuple[Numbers, Numbers]:
    """The first and the last of each run of equal values, of rows in this order."""
    new = np.ones(len(order), dtype=np.bool_)
    if len(order):
        new[1:] = np.any([column[order][1:] != column[order][:-1] for column in columns], axis=0)
    starts = np.flatnonzero(new)
    return order[starts], order[np.append(starts[1:], len(order))[: len(starts)] - 1]
