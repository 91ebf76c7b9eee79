"""Twins: rows of `streams` that show a conversation another row shows too, because both ends were captured.

Called once all streams are known, so that nothing is counted twice. Pure; work grows with the rows that share their
endpoints with a row of another wire. Never pairs rows of one wire: those are different uses of the same ports.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

CLOCK_SLACK_NS = 1_000_000_000
"""So far apart may the clocks of two machines be; Linux does not use a client's port again sooner."""
_ONE_CLOCK_SLACK_NS = 1_000_000
"""A loopback address means one machine, so both captures have the same clock."""
_LIKE, _LIKE_BYTES, _LIKE_PACKETS = 0.25, 4096, 4
"""Payload differs by what was lost between both ends or is not in a capture; packets also by offloading."""
_SEEN_LESS = 0.05
"""A row that shows less payload than its twin by more than this was not captured from beginning to end."""
_NEIGHBOURS = 8
"""Each row is compared with so many that begin after it, however often a port was reused."""

COLUMNS = (
    "stream", "epoch", "file", "service", "transport", "client", "client_port", "server", "server_port",
    "server_service", "first_ns", "last_ns", "packets", "client_bytes", "server_bytes", "gap_bytes",
)  # fmt: skip
"""Of `streams`: all that is looked at."""
SCHEMA = pa.schema(
    [
        pa.field("stream", pa.int64(), nullable=False),
        pa.field("epoch", pa.int32(), nullable=False),
        pa.field("twin_of_stream", pa.int64(), nullable=False),
        pa.field("twin_of_epoch", pa.int32(), nullable=False),
    ]
)
"""What `twins` returns: a row to leave out, and the kept one that shows the same."""

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows that may have a twin, sorted by endpoints and then by time."""

    place: Numbers
    """Where they stand in the table."""
    group: Numbers
    """The same number for the same transport and endpoints."""
    stream: Numbers
    """Tells wires apart: rows of the same endpoints on one wire have the same."""
    file: Numbers
    first_ns: Numbers
    last_ns: Numbers
    payload: Numbers
    """What was said, whether it is in the capture or not."""
    packets: Numbers
    slack_ns: Numbers


@dataclass(frozen=True, slots=True)
class _Edges:
    """Pairs of rows (places in `_Rows`) that may be the same."""

    one: Numbers
    other: Numbers

    def where(self, mask: Mask) -> _Edges:
        return _Edges(self.one[mask], self.other[mask])


def twins(streams: pa.Table, clock_slack_ns: int = CLOCK_SLACK_NS) -> pa.Table:
    """Which rows of `streams` to leave out, and which kept row each of them repeats; see SCHEMA."""
    rows = _candidates(streams, clock_slack_ns)
    edges = _alike(rows, _neighbours(rows))
    if not len(edges.one):
        return SCHEMA.empty_table()
    members, cluster = _clusters(rows, edges)
    left_out, kept = _choices(streams, rows, members, cluster)
    epoch = _numbers(streams, "epoch")
    stream = _numbers(streams, "stream")
    order = np.lexsort((epoch[left_out], stream[left_out]))
    left_out, kept = left_out[order], kept[order]
    columns = (stream[left_out], epoch[left_out], stream[kept], epoch[kept])
    return pa.table(
        [pa.array(values, type=field.type) for values, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def _numbers(table: pa.Table, name: str) -> Numbers:
    values: Numbers = table.column(name).to_numpy().astype(np.int64)
    return values


def _candidates(streams: pa.Table, clock_slack_ns: int) -> _Rows:
    """Rows whose endpoints were seen on several wires."""
    count = len(streams)
    ends = pa.chunked_array([*streams.column("client").chunks, *streams.column("server").chunks], type=pa.string())
    encoded = ends.combine_chunks().dictionary_encode()
    address = encoded.indices.to_numpy().astype(np.int64)
    local = np.array([_is_loopback(word) for word in encoded.dictionary.to_pylist()], dtype=np.bool_)
    ports = np.concatenate((_numbers(streams, "client_port"), _numbers(streams, "server_port")))
    endpoint = address << 16 | ports & 0xFFFF
    # Unordered: who captured only the middle of a conversation may take the server for the client.
    low, high = np.minimum(endpoint[:count], endpoint[count:]), np.maximum(endpoint[:count], endpoint[count:])
    udp = pc.equal(streams.column("transport"), "udp").to_numpy().astype(np.int64)
    stream, first_ns = _numbers(streams, "stream"), _numbers(streams, "first_ns")
    order = np.lexsort((stream, udp, high, low))
    same = (np.diff(low[order]) == 0) & (np.diff(high[order]) == 0) & (np.diff(udp[order]) == 0)
    group = np.cumsum(np.concatenate(([0], ~same))) if count else np.empty(0, dtype=np.int64)
    other_wire = np.flatnonzero(same & (np.diff(stream[order]) != 0))
    shared = np.zeros(int(group[-1]) + 1 if count else 0, dtype=np.bool_)
    shared[group[other_wire]] = True
    place, group = order[shared[group]], group[shared[group]]
    by_time = np.lexsort((_numbers(streams, "epoch")[place], stream[place], first_ns[place], group))
    place, group = place[by_time], group[by_time]
    payload = _numbers(streams, "client_bytes") + _numbers(streams, "server_bytes") + _numbers(streams, "gap_bytes")
    on_one_machine = local[address[:count]] & local[address[count:]]
    slack = np.where(on_one_machine, min(_ONE_CLOCK_SLACK_NS, clock_slack_ns), clock_slack_ns)
    return _Rows(
        place, group, stream[place], _numbers(streams, "file")[place], first_ns[place],
        _numbers(streams, "last_ns")[place], payload[place], _numbers(streams, "packets")[place], slack[place],
    )  # fmt: skip


def _is_loopback(address: str | None) -> bool:
    return address is not None and (address.startswith("127.") or address == "::1")


def _neighbours(rows: _Rows) -> _Edges:
    """Pairs of the same endpoints on different wires, near each other in time."""
    one: list[Numbers] = []
    other: list[Numbers] = []
    for lag in range(1, min(_NEIGHBOURS, len(rows.place) - 1) + 1):
        fits = (rows.group[lag:] == rows.group[:-lag]) & (rows.stream[lag:] != rows.stream[:-lag])
        earlier = np.flatnonzero(fits)
        one.append(earlier)
        other.append(earlier + lag)
    nothing: Numbers = np.empty(0, dtype=np.int64)
    return _Edges(np.concatenate([nothing, *one]), np.concatenate([nothing, *other]))


def _alike(rows: _Rows, edges: _Edges) -> _Edges:
    """Those at the same time, with as much said as can be expected of one conversation."""
    one, other = edges.one, edges.other
    slack = rows.slack_ns[one]
    lasted = np.stack((rows.last_ns[one] - rows.first_ns[one], rows.last_ns[other] - rows.first_ns[other]))
    common = np.minimum(rows.last_ns[one], rows.last_ns[other]) - np.maximum(rows.first_ns[one], rows.first_ns[other])
    together = common + slack >= lasted.min(axis=0) // 2
    # A capture that began late or ended early shows less; one as long as the other shows as much.
    as_long = np.abs(lasted[0] - lasted[1]) <= np.minimum(slack, lasted.max(axis=0) // 10) + _ONE_CLOCK_SLACK_NS
    first_longer = lasted[0] >= lasted[1]
    alike = together
    for counted, least in ((rows.payload, _LIKE_BYTES), (rows.packets, _LIKE_PACKETS)):
        longer = np.where(first_longer, counted[one], counted[other])
        shorter = np.where(first_longer, counted[other], counted[one])
        margin = _LIKE * np.maximum(longer, shorter) + least
        fits = (shorter - longer <= margin) & (~as_long | (longer - shorter <= margin))
        if counted is rows.packets:
            # One machine sees what another receives as fifty packets as one: they tell only where nothing was said.
            fits |= (rows.payload[one] > 0) & (rows.payload[other] > 0)
        alike &= fits
    return edges.where(alike)


def _clusters(rows: _Rows, edges: _Edges) -> tuple[Numbers, Numbers]:
    """Rows that are one conversation, as rows and the number of their cluster; no cluster has two of one wire."""
    degree = np.bincount(np.concatenate((edges.one, edges.other)), minlength=len(rows.place))
    alone = (degree[edges.one] == 1) & (degree[edges.other] == 1)
    simple = edges.where(alone)
    members = [np.stack((simple.one, simple.other), axis=1).ravel()]
    numbers = [np.repeat(np.arange(len(simple.one)), 2)]
    merged = _merged(rows, edges, ~alone)
    if merged:
        members.append(np.array([row for cluster in merged for row in cluster], dtype=np.int64))
        sizes = [len(cluster) for cluster in merged]
        numbers.append(np.repeat(np.arange(len(merged)) + len(simple.one), sizes))
    return np.concatenate(members), np.concatenate(numbers)


def _merged(rows: _Rows, edges: _Edges, unclear: Mask) -> list[list[int]]:
    """Where several rows could be the same, the likeliest pairs come first."""
    if not unclear.any():
        return []
    cost_ns = _apart_ns(rows, edges)[unclear]
    chosen = edges.where(unclear)
    unlike = rows.payload[chosen.one] != rows.payload[chosen.other]
    order = np.lexsort((chosen.other, chosen.one, cost_ns, unlike))
    home: dict[int, list[int]] = {}
    streams = rows.stream
    for one, other in zip(chosen.one[order].tolist(), chosen.other[order].tolist(), strict=True):
        mine, theirs = home.setdefault(one, [one]), home.setdefault(other, [other])
        if mine is theirs or {int(streams[row]) for row in mine} & {int(streams[row]) for row in theirs}:
            continue
        mine += theirs
        for row in theirs:
            home[row] = mine
    return [cluster for row, cluster in home.items() if len(cluster) > 1 and cluster[0] == row]


def _apart_ns(rows: _Rows, edges: _Edges) -> Numbers:
    """How far from each other both begin, the difference of their clocks subtracted where it can be told."""
    files = int(rows.file.max()) + 1
    between = rows.first_ns[edges.other] - rows.first_ns[edges.one]
    forward = rows.file[edges.one] <= rows.file[edges.other]
    between = np.where(forward, between, -between)
    low = np.minimum(rows.file[edges.one], rows.file[edges.other])
    pair = low * files + np.maximum(rows.file[edges.one], rows.file[edges.other])
    telling = np.flatnonzero(_same_turn(rows, edges))
    shift = np.zeros(len(between), dtype=np.int64)
    if len(telling):
        order = telling[np.lexsort((between[telling], pair[telling]))]
        pairs, start, count = np.unique(pair[order], return_index=True, return_counts=True)
        median = between[order][start + count // 2]
        at = np.minimum(np.searchsorted(pairs, pair), len(pairs) - 1)
        shift = np.where(pairs[at] == pair, median[at], 0)
    apart: Numbers = np.abs(between - shift)
    return apart


def _same_turn(rows: _Rows, edges: _Edges) -> Mask:
    """Pairs that are the n-th use of their ports on both wires, where both wires saw as many uses."""
    order = np.lexsort((rows.first_ns, rows.stream, rows.group))
    begins = np.concatenate(([True], (np.diff(rows.stream[order]) != 0) | (np.diff(rows.group[order]) != 0)))
    starts = np.flatnonzero(begins)
    wire = np.cumsum(begins) - 1
    uses = np.diff(np.append(starts, len(order)))
    turn, of = np.empty_like(order), np.empty_like(order)
    turn[order] = np.arange(len(order)) - starts[wire]
    of[order] = uses[wire]
    same: Mask = (turn[edges.one] == turn[edges.other]) & (of[edges.one] == of[edges.other])
    return same


def _choices(streams: pa.Table, rows: _Rows, members: Numbers, cluster: Numbers) -> tuple[Numbers, Numbers]:
    """Rows to leave out and the ones kept for them, as places in the table."""
    place = rows.place[members]
    payload = rows.payload[members]
    most = np.zeros(int(cluster.max()) + 1, dtype=np.int64)
    np.maximum.at(most, cluster, payload)
    unseen = most[cluster] - payload
    missing = _numbers(streams, "gap_bytes")[place] + np.where(unseen > _SEEN_LESS * most[cluster], unseen, 0)
    at_server = pc.fill_null(pc.equal(streams.column("service"), streams.column("server_service")), False)
    elsewhere = ~at_server.to_numpy().astype(np.bool_)[place]
    order = np.lexsort((rows.stream[members], rows.file[members], elsewhere, missing, cluster))
    place, cluster = place[order], cluster[order]
    first = np.concatenate(([True], np.diff(cluster) != 0))
    kept = place[first][np.cumsum(first) - 1]
    return place[~first], kept[~first]
