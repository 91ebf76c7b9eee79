"""A broker that floods: what it sends is recorded up to a limit, told, and analysed in time."""

from __future__ import annotations

import asyncio

import pytest

from battlebrokers.tables.message_header import HEADER, VERSION
from support.hostile_broker import HostileBroker, publish_head, send
from support.runs import bb, write_scenario

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCENARIO = """
name: flooded
fleets: {air: {devices: 1, topic: air, payload: {random_bytes: 64}, every: 100ms, qos: 0}}
clients: {app: {count: 1, subscribe: [air], qos: 0}}
phases: {measure: 5s, drain: 2s, quiet: 1s}
"""
BLOCKS, HALF_A_BLOCK = 150, 10_000


async def test_a_flood_of_repeated_and_foreign_messages_is_told_and_analysed_in_time(tmp_path):
    payload = HEADER.pack(VERSION << 24 | 999, 7, 1)
    foreign = publish_head(len(payload)) + payload

    async def flood(writer: asyncio.StreamWriter, published: bytes) -> None:
        block = (published + foreign) * HALF_A_BLOCK
        for _ in range(BLOCKS):
            await send(writer, block)

    write_scenario(tmp_path, SCENARIO)
    async with HostileBroker(flood, once_published=True).serving() as port:
        arguments = ("run", "scenario.yaml", "--broker", f"mqtt://127.0.0.1:{port}", "--json", "--quiet")
        result = await asyncio.to_thread(bb, *arguments, cwd=tmp_path, timeout=270)
    assert result.code == 6, result.err[-2000:]
    told = result.json()
    sent = 2 * HALF_A_BLOCK * BLOCKS
    assert told["messages"]["unrecorded"] > sent - 1_200_000
    (reason,) = [reason for reason in told["reasons"] if "several times more than this scenario can cause" in reason]
    assert "only counted" in reason
    assert told["verdict"] == "VOID"
