"""How well messages are followed through services that wrap them: precision and recall on a trace that is known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from battlebrokers.dissect.payload_ids import header_id, payload_id
from battlebrokers.pipeline.stages.hops import hops
from battlebrokers.pipeline.stages.peers import peers_of
from battlebrokers.pipeline.stages.sums import Sums
from battlebrokers.pipeline.stages.wires import add_up
from battlebrokers.tables import MESSAGES, STREAMS, Table
from support.labelled_trace import NOW_NS, Pair, Trace, judge, labelled_trace, pairs_of, same_payload

SEEDS = (1, 2, 3)


@pytest.fixture(scope="module", params=SEEDS)
def trace(request: pytest.FixtureRequest) -> Trace:
    return labelled_trace(seed=request.param)


def followed(trace: Trace) -> dict[str, set[Pair]]:
    """Rows in, pairs out, per way of matching: the one place that knows which code does it."""

    def batch(table: Table, given: Iterable[dict[str, Any]]) -> pa.RecordBatch:
        absent = {c.name: None if c.nullable else {"string": "", "bool": False}.get(c.kind, 0) for c in table.columns}
        return pa.RecordBatch.from_pylist([absent | row for row in given], schema=table.arrow_schema())

    streams = [
        {
            "stream": stream,
            "client_service": client,
            "server_service": server,
            "server": "10.0.0.9",
            "server_port": 1,
            "messages": len(trace.rows),
        }
        for stream, (client, server) in trace.connections.items()
    ]
    peers = peers_of([batch(STREAMS, streams)], np.empty(0, dtype=np.int64))
    (seen,) = add_up(peers, [], [batch(MESSAGES, trace.rows)], Sums())
    groups: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for row in hops(seen).select(["matched_by", "trace", "stream", "number"]).to_pylist():
        groups[row["matched_by"], row["trace"]].append((row["stream"], row["number"]))
    ways = {way for way, _ in groups}
    found = {way: pairs_of(keys for (found, _), keys in groups.items() if found == way) for way in ways}
    together: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for (_, trace_id), keys in groups.items():
        together[trace_id] += keys
    return found | {"any": pairs_of(together.values())}


def by_id(trace: Trace) -> set[Pair]:
    """Rows with the same identifier; one that is said twice on a wire with different payloads names no message."""
    groups: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for key, payload in trace.payloads.items():
        if (number := payload_id(payload, NOW_NS)) is not None:
            groups[number].append(key)
    return pairs_of(
        keys
        for keys in groups.values()
        if len({(key[0], trace.payloads[key]) for key in keys}) == len({stream for stream, _ in keys})
    )


def nameless(trace: Trace) -> set[tuple[int, int]]:
    """Rows with neither our header nor an identifier."""
    return {(row["stream"], row["number"]) for row in trace.rows if row["device"] is None and row["identity"] is None}


def header_rows(trace: Trace) -> set[Pair]:
    ours = {(row["stream"], row["number"]) for row in trace.rows if row["device"] is not None}
    return {pair for pair in trace.true_pairs if pair <= ours}


def test_headers_and_fingerprints_link_what_they_can_and_nothing_else(trace: Trace) -> None:
    found = followed(trace)
    headers = judge(found["header"], trace.true_pairs, header_rows(trace))
    assert (headers.precision, headers.recall) == (1.0, 1.0)
    without = {pair for pair in same_payload(trace) if pair <= nameless(trace)}
    fingerprints = judge(found["fingerprint"], trace.true_pairs, without)
    assert (fingerprints.precision, fingerprints.recall) == (1.0, 1.0)


def test_the_same_words_on_connections_of_their_own_are_different_messages() -> None:
    trace = labelled_trace(one_shot=True)
    found = followed(trace)
    origins: dict[bytes, set[int]] = defaultdict(set)
    for key, payload in trace.payloads.items():
        if key[0] % 10 == 1:
            origins[payload].add(key[0])
    once = {key for key, payload in trace.payloads.items() if len(origins[payload]) <= 1}
    findable = {pair for pair in same_payload(trace) if pair <= once & nameless(trace)}
    fingerprints = judge(found["fingerprint"], trace.true_pairs, findable)
    assert (fingerprints.precision, fingerprints.recall) == (1.0, 1.0)


def test_without_identifiers_what_services_wrap_is_lost_from_sight(trace: Trace) -> None:
    blind = replace(trace, rows=[row | {"identity": None} for row in trace.rows])
    identified = trace.pairs["identified"] | trace.pairs["encoded"]
    assert judge(followed(blind)["any"], trace.true_pairs, identified).recall < 0.35


def test_all_ways_together_follow_what_can_be_followed_and_nothing_else(trace: Trace) -> None:
    found = followed(trace)
    findable = trace.true_pairs - trace.pairs["repeated"] - trace.pairs["owned"]
    everything = judge(found["any"], trace.true_pairs, findable)
    assert everything.precision > 0.99
    assert everything.recall > 0.99
    carrying = trace.pairs["identified"] | trace.pairs["encoded"]
    by_identity = judge(found["id"], trace.true_pairs, carrying)
    assert (by_identity.precision, by_identity.recall) == (1.0, 1.0)


def test_identifiers_link_every_wrapped_message_and_nothing_else(trace: Trace) -> None:
    carrying = trace.pairs["header"] | trace.pairs["identified"] | trace.pairs["encoded"]
    found = judge(by_id(trace), trace.true_pairs, carrying)
    assert (found.precision, found.recall) == (1.0, 1.0)


def test_a_header_in_a_row_and_one_in_a_payload_are_the_same_number(trace: Trace) -> None:
    ours = [row for row in trace.rows if row["device"] is not None]
    assert len(ours) > 100
    for row in ours:
        assert payload_id(trace.payloads[row["stream"], row["number"]], NOW_NS) == header_id(row["device"], row["seq"])


def test_what_repeats_or_names_a_device_is_not_linked_by_id(trace: Trace) -> None:
    blurred = {key for key, family in trace.family.items() if family in ("repeated", "owned", "plain")}
    assert not any(pair & blurred for pair in by_id(trace))


def test_the_trace_is_hard_enough(trace: Trace) -> None:
    """Many are under way at once, some are lost, and half of all payloads change on their way."""
    rows = sorted(trace.rows, key=lambda row: row["first_ns"])
    assert {row["stream"] for row in rows[20:60]} == {1, 2, 3, 4}
    per_stream = [sum(row["stream"] == stream for row in rows) for stream in (1, 4)]
    assert per_stream[0] > per_stream[1] > 300
    assert len(same_payload(trace)) < 0.5 * len(trace.true_pairs)
