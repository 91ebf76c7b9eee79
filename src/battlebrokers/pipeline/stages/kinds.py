"""Messages between named services → `kinds`: how much of what was said, name by name, added up anywhere.

Only the most frequent names (topics, channels, queues, keys) of a task go on from it, so sums stay small.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from battlebrokers.pipeline.stages.peers import Numbers, Peers, as_array, codes, numbers
from battlebrokers.tables import KINDS

KEY = ["sender", "receiver", "protocol", "kind"]
"""What makes a kind."""
_NAME = [*KEY, "name"]
_SUMS = ["n", "bytes", "payload_bytes", "requests", "responses"]
_MOST = 4096
"""Names a task keeps; the others only add to their kind."""
_MOST_MERGED = 32_768
"""Names kept of all tasks together."""
_TOLD = 20
"""Names told of a kind."""
_GROWTH = 1.02
"""Delays of single names are counted in buckets so much apart."""


class KindSum:
    """Sums of a task."""

    def __init__(self) -> None:
        self._kinds: list[pa.Table] = []
        self._names: list[pa.Table] = []
        self._delays: list[pa.Table] = []
        self._followed: list[pa.Table] = []

    def add_messages(
        self, batch: pa.RecordBatch, rows: Numbers, by_client: npt.NDArray[np.bool_], part: Numbers, peers: Peers
    ) -> None:
        """Messages in these rows of the peers; `part` says 0 other, 1 request, 2 response."""
        columns = {name: batch[name] for name in ("protocol", "kind", "name", "bytes", "payload_bytes")}
        columns |= {"requests": as_array(part == 1), "responses": as_array(part == 2)}
        found = _by_name(columns, rows, by_client, peers.counted[rows], peers, _SUMS)
        self._kinds.append(_summed(found, KEY, _SUMS))
        self._names.append(_busiest(found, _MOST))

    def add_exchanges(
        self, batch: pa.RecordBatch, rows: Numbers, by_client: npt.NDArray[np.bool_], peers: Peers
    ) -> None:
        """Exchanges: how long the answers to each name took."""
        took_ns = numbers(pc.subtract(pc.fill_null(batch["answered_ns"], batch["asked_ns"]), batch["asked_ns"]))
        bucket = as_array((np.log(np.maximum(1, took_ns)) / np.log(_GROWTH)).astype(np.int64))
        columns = {"protocol": batch["protocol"], "kind": batch["kind"], "name": batch["name"], "bucket": bucket}
        counted = peers.counted[rows] & pc.is_valid(batch["answered_ns"]).to_numpy(zero_copy_only=False)
        self._delays.append(_by_name(columns, rows, by_client, counted, peers, ["n"], ["bucket"]))

    def add_followed(self, legs: pa.Table) -> None:
        """Legs of followed messages."""
        table = legs.select(_NAME).append_column("n", _ones(legs.num_rows))
        self._followed.append(_busiest(_summed(table, _NAME, ["n"]), _MOST))

    def cut(self) -> None:
        """Before it travels: less of what is not needed."""
        if self._names:
            names = _busiest(_summed(pa.concat_tables(self._names), _NAME, _SUMS), _MOST)
            self._names = [names]
            if self._delays:
                delays = _summed(pa.concat_tables(self._delays), [*_NAME, "bucket"], ["n"])
                self._delays = [_of_names(delays, names)]

    def merge(self, other: KindSum) -> None:
        """That of another task."""
        self._kinds += other._kinds
        self._names += other._names
        self._delays += other._delays
        self._followed += other._followed
        if max(_rows(self._names), _rows(self._followed)) > 2 * _MOST_MERGED:
            self._bound()

    def _bound(self) -> None:
        """However many tasks are merged, no more than this is held."""
        self._kinds = _merged(self._kinds, KEY, _SUMS)
        self._followed = [_busiest(table, _MOST_MERGED) for table in _merged(self._followed, _NAME, ["n"])]
        self._names = [_busiest(table, _MOST_MERGED) for table in _merged(self._names, _NAME, _SUMS)]
        self._delays = _merged(self._delays, [*_NAME, "bucket"], ["n"])
        for names in self._names:
            self._delays = [_of_names(table, names) for table in self._delays]

    def table(self) -> pa.Table:
        """The rows of `kinds`: each kind, followed by its most frequent names."""
        schema = KINDS.arrow_schema()
        if not self._kinds:
            return schema.empty_table()
        names = _summed(pa.concat_tables(self._names), _NAME, _SUMS)
        names = names.filter(pc.not_equal(names["name"], ""))
        known = _numbers_by(names.select(KEY).append_column("n", _ones(names.num_rows)), KEY)
        told = _most_frequent(names, _TOLD)
        followed = _numbers_by(_only(self._followed, told), _NAME)
        delays = _delays_by(_only(self._delays, told))
        rows: list[dict[str, Any]] = []
        of_kind: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        for row in told.to_pylist():
            place = _of(row, _NAME)
            row |= {"names": 1, "followed": followed.get(place, 0), **delays.get(place, {})}
            of_kind.setdefault(place[:-1], []).append(row)
        kinds = _summed(pa.concat_tables(self._kinds), KEY, _SUMS).to_pylist()
        for kind in sorted(kinds, key=lambda row: (-row["n"], _of(row, KEY))):
            key = _of(kind, KEY)
            rows += [{**kind, "name": None, "names": known.get(key, 0), "followed": 0}, *of_kind.get(key, [])]
        return pa.Table.from_pylist(rows, schema=schema)


def _by_name(
    columns: dict[str, Any], rows: Numbers, by_client: npt.NDArray[np.bool_], counted: npt.NDArray[np.bool_],
    peers: Peers, sums: list[str], more: list[str] | None = None,
) -> pa.Table:  # fmt: skip
    """Sums of these columns by kind and name (and `more`), of the rows that count."""
    pair, pairs = peers.pairs(rows, by_client)
    table = pa.table({"pair": as_array(pair), "n": _ones(len(rows)), **columns})
    if not counted.all():
        table = table.filter(pa.array(counted))
    found = _summed(table, ["pair", "protocol", "kind", "name", *(more or [])], sums)
    place = found["pair"]
    ends = {
        name: pa.array([pair[side] for pair in pairs], pa.string()).take(place) for side, name in enumerate(KEY[:2])
    }
    for name, values in ends.items():
        found = found.append_column(name, values)
    return found.select([*_NAME, *(more or []), *sums])


def _summed(table: pa.Table, keys: list[str], sums: list[str]) -> pa.Table:
    found = table.group_by(keys).aggregate([(name, "sum") for name in sums])
    return found.select([*keys, *(f"{name}_sum" for name in sums)]).rename_columns([*keys, *sums])


def _busiest(table: pa.Table, most: int) -> pa.Table:
    if table.num_rows <= most:
        return table
    return table.take(pc.sort_indices(table, [("n", "descending")]).slice(0, most)).combine_chunks()


def _ones(count: int) -> pa.Array:
    return as_array(np.ones(count, dtype=np.int64))


def _of(row: dict[str, Any], keys: list[str]) -> tuple[str, ...]:
    return tuple(row[key] for key in keys)


def _most_frequent(names: pa.Table, most: int) -> pa.Table:
    """The most frequent names of each kind, the most frequent first."""
    ordered = names.sort_by([*((key, "ascending") for key in KEY), ("n", "descending"), ("name", "ascending")])
    kind, _ = codes([ordered[key] for key in KEY])
    starts = np.flatnonzero(np.append(True, kind[1:] != kind[:-1])) if len(kind) else kind
    rank = np.arange(len(kind)) - np.repeat(starts, np.diff(np.append(starts, len(kind))))
    return ordered.filter(pa.array(rank < most))


def _only(tables: list[pa.Table], told: pa.Table) -> pa.Table | None:
    """Rows of these names."""
    return _of_names(pa.concat_tables(tables), told) if tables else None


def _of_names(table: pa.Table, names: pa.Table) -> pa.Table:
    found = table.join(names.select(_NAME), _NAME, join_type="left semi")
    # A join's columns lie in buffers much larger than they are, and would travel with them.
    return found.take(as_array(np.arange(found.num_rows)))


def _merged(tables: list[pa.Table], keys: list[str], sums: list[str]) -> list[pa.Table]:
    return [_summed(pa.concat_tables(tables), keys, sums)] if tables else []


def _rows(tables: list[pa.Table]) -> int:
    return sum(table.num_rows for table in tables)


def _numbers_by(table: pa.Table | None, keys: list[str]) -> dict[tuple[str, ...], int]:
    if table is None:
        return {}
    return {_of(row, keys): row["n"] for row in _summed(table, keys, ["n"]).to_pylist()}


def _delays_by(table: pa.Table | None) -> dict[tuple[str, ...], dict[str, int]]:
    """Median and 99th percentile of each name's delays."""
    if table is None:
        return {}
    ordered = [(key, "ascending") for key in (*_NAME, "bucket")]
    buckets: dict[tuple[str, ...], list[tuple[int, int]]] = {}
    for row in _summed(table, [*_NAME, "bucket"], ["n"]).sort_by(ordered).to_pylist():
        buckets.setdefault(_of(row, _NAME), []).append((row["bucket"], row["n"]))
    found = {}
    for key, counts in buckets.items():
        ends = np.cumsum([n for _, n in counts])
        places = [int(np.searchsorted(ends, np.ceil(share * ends[-1]))) for share in (0.5, 0.99)]
        p50_ns, p99_ns = (round(_GROWTH ** (counts[place][0] + 0.5)) for place in places)
        found[key] = {"p50_ns": p50_ns, "p99_ns": p99_ns}
    return found
