"""A broker that sends what nobody can expect: huge announcements and floods cost little memory, and are told."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from battlebrokers.run.intake import largest_incoming_bytes, most_arrivals
from battlebrokers.scenario.plan import Plan, build_plan
from battlebrokers.scenario.reader import read_scenario
from battlebrokers.tables import DELIVERIES
from battlebrokers.tables.message_header import HEADER, VERSION
from support.hostile_broker import HostileBroker, Hostility, publish_head, send, varint

SCENARIO = """
name: hostile
fleets: {{air: {{devices: 1, topic: air, payload: {{random_bytes: {size}}}, every: 100ms, qos: 0}}}}
clients: {{app: {{count: {clients}, subscribe: [air], qos: {qos}, version: "{version}"}}}}
phases: {{measure: 1s, drain: 2s, quiet: 1s}}
"""
TESTS = Path(__file__).parents[2]


def plan_of(**values: Any) -> Plan:
    text = SCENARIO.format(**{"size": 64, "clients": 1, "qos": 0, "version": "3.1.1"} | values)
    return build_plan(read_scenario(text, "test").scenario, 1)


async def against(hostility: Hostility, folder: Path, **values: Any) -> tuple[dict[str, Any], list[bytes]]:
    """What an engine process counted, and what it answered."""
    values = {"size": 64, "clients": 1, "qos": 0, "version": "3.1.1"} | values
    scenario = folder / "scenario.yaml"
    scenario.write_text(SCENARIO.format(**values))
    broker = HostileBroker(hostility, values["version"])
    async with broker.serving() as port:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "support.engine_child", str(scenario), str(port), str(folder),
            stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(TESTS)},
        )  # fmt: skip
        try:
            out, _ = await asyncio.wait_for(child.communicate(), 120)
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
    assert child.returncode == 0
    return json.loads(out), broker.answers


async def test_huge_messages_to_each_of_many_connections_are_skipped_counted_and_cost_little_memory(tmp_path):
    piece, pieces = bytes(1 << 20), 40

    async def huge(writer: asyncio.StreamWriter, _: bytes) -> None:
        await send(writer, publish_head(pieces << 20))
        for _ in range(pieces):
            await send(writer, piece)
        await send(writer, publish_head(5) + b"after")

    told, _ = await against(huge, tmp_path, clients=21)
    assert told["counters"]["oversized"] == 21
    assert told["counters"]["malformed"] == 0
    assert told["counters"]["received"] == 21, "what comes behind them arrives"
    assert told["grown_bytes"] < 200 << 20, "21 times 40 MiB were sent"


@pytest.mark.parametrize(("qos", "answer"), [(1, b"\x40\x00\x07"), (2, b"\x50\x00\x07")])
@pytest.mark.parametrize("version", ["3.1.1", "5"])
async def test_a_huge_message_that_wants_an_answer_gets_it_however_its_bytes_are_cut(tmp_path, qos, answer, version):
    async def huge(writer: asyncio.StreamWriter, _: bytes) -> None:
        head = publish_head(4 << 20, qos, version)
        for place in range(len(head)):
            await send(writer, head[place : place + 1])
            await asyncio.sleep(0)
        await send(writer, bytes(4 << 20))
        await send(writer, publish_head(5, 0, version) + b"after")

    told, answers = await against(huge, tmp_path, qos=qos, version=version)
    assert answers == [answer]
    assert (told["counters"]["oversized"], told["counters"]["received"]) == (1, 1)


async def test_a_flood_is_recorded_up_to_a_limit_and_counted_beyond(tmp_path):
    limit = most_arrivals(plan_of())
    # Of a device this run does not have, with a header as ours: what another run's messages look like.
    payload = HEADER.pack(VERSION << 24 | 999, 7, 1)
    message = publish_head(len(payload)) + payload
    block, blocks = message * 10_000, 1 + (limit + 300_000) // 10_000

    async def flood(writer: asyncio.StreamWriter, _: bytes) -> None:
        for _ in range(blocks):
            await send(writer, block)

    told, _ = await against(flood, tmp_path)
    counters = told["counters"]
    recorded = sum(pq.read_metadata(file).num_rows for file in (tmp_path / DELIVERIES.folder).glob("*.parquet"))
    assert counters["received"] == blocks * 10_000
    assert limit <= recorded <= limit + 100_000
    assert recorded + counters["arrivals_not_recorded"] + counters["recorder_overflow"] == counters["received"]
    assert counters["arrivals_not_recorded"] > 100_000
    assert told["grown_bytes"] < 400 << 20


async def test_a_flood_of_made_up_topics_does_not_grow_without_bound(tmp_path):
    async def flood(writer: asyncio.StreamWriter, _: bytes) -> None:
        for number in range(6_000):
            topic = f"{number:05d}".encode() + b"x" * 60_000
            await send(writer, b"\x30" + varint(2 + len(topic)) + len(topic).to_bytes(2, "big") + topic)

    told, _ = await against(flood, tmp_path)
    assert told["counters"]["received"] == 6_000
    assert told["counters"]["arrivals_not_recorded"] > 4_000
    assert told["grown_bytes"] < 600 << 20, "360 MB of names were sent, and kept they cost several times that"


def test_what_one_connection_takes_in_follows_from_the_plan_and_how_many_there_are():
    few = largest_incoming_bytes(plan_of(), 21, scripted=False)
    assert few < 2 << 20
    assert 10_000 * largest_incoming_bytes(plan_of(), 10_000, scripted=False) < 600 << 20
    assert largest_incoming_bytes(plan_of(size="1MiB"), 21, scripted=False) > 4 << 20
    assert largest_incoming_bytes(plan_of(), 21, scripted=True) > few


def test_how_much_is_recorded_follows_from_the_plan():
    assert most_arrivals(plan_of(clients=100)) > most_arrivals(plan_of()) > 1_000_000
