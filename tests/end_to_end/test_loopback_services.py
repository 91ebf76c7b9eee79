"""Services of one contender on one loopback address, captured: who called whom is known by more than their ports."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from battlebrokers.analysis.traces import Traces
from battlebrokers.analysis.wire import read_wire
from battlebrokers.pipeline.client import Analyst
from battlebrokers.record.capture_tool import Limits
from battlebrokers.tables import FOLLOWED, HOPS, SERVICE_PEERS, STREAMS, Table
from battlebrokers.tables.run_folder import RunFolder
from support.packets import require_capturing
from support.runs import run_for_real, write_scenario

pytestmark = [pytest.mark.broker, pytest.mark.root, pytest.mark.slow, pytest.mark.spark]

TALK = """
name: talk
fleets:
  sensor: {devices: 3, topic: "talk/{device}", payload: {random_bytes: 64}, every: 20/s, qos: 1}
clients:
  listener: {count: 1, subscribe: ["talk/#"], qos: 1}
phases: {measure: 1s, drain: 5s, quiet: 1s}
"""
AEDES, REDIS, OUTSIDE = "aedes-redis", "redis", "outside"


def rows_of(folder: RunFolder, table: Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(folder.table(table)).to_pylist()
    return found


def test_a_message_goes_from_aedes_to_redis_and_back_and_begins_once(
    tmp_path: Path, require_broker, analyst: Analyst
) -> None:
    require_capturing()
    require_broker(AEDES)
    folder = run_for_real(write_scenario(tmp_path, TALK), AEDES, tmp_path / "runs", capture=Limits())
    analyst.analyze(folder.path)
    # We ourselves looked whether it is up, and said nothing.
    to_redis = [row for row in rows_of(folder, STREAMS) if row["server_service"] == REDIS and row["messages"]]
    assert {row["client_service"] for row in to_redis} == {AEDES}
    legs: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows_of(folder, HOPS):
        legs[row["trace"]].append(row)
    assert len(legs) == 60
    for found in legs.values():
        ways = Counter((row["sender"], row["receiver"]) for row in found)
        assert {way: ways[way] for way in ((OUTSIDE, AEDES), (AEDES, REDIS), (AEDES, OUTSIDE))} == dict.fromkeys(
            ((OUTSIDE, AEDES), (AEDES, REDIS), (AEDES, OUTSIDE)), 1
        )
        assert ways[REDIS, AEDES] >= 1
        assert len(ways) == 4
        assert sum(row["parent"] is None for row in found) == 1, "one origin"
    wire = read_wire(folder)
    assert wire is not None
    assert REDIS not in {flow.receiver for flow in wire.traffic.flows if flow.sender == OUTSIDE}
    peers = {(row["service"], row["peer"]): row for row in rows_of(folder, SERVICE_PEERS)}
    asked = peers[REDIS, AEDES]
    assert asked["requests"] >= 60
    assert asked["response_p50_ns"] > 0
    assert asked["cpu_mean_percent"] is not None
    assert asked["rss_max_bytes"] > 1_000_000
    assert {(row["first_seen"], row["arrived"]) for row in rows_of(folder, FOLLOWED)} == {(OUTSIDE, True)}
    assert Traces(folder).named("0:0")[0].way()[1].receiver == REDIS
