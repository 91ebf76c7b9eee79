"""An engine in this process, against a broker that answers CONNECT when and as the test wants."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from battlebrokers.clock import MILLISECOND_NS, Anchor
from battlebrokers.processes import boot_id
from battlebrokers.run import engine as engine_module
from battlebrokers.run.engine import Engine
from battlebrokers.run.messages import Finished, Prepare
from battlebrokers.scenario.plan import build_plan
from battlebrokers.scenario.reader import read_scenario
from battlebrokers.tables import NODES, OPERATIONS, Table
from support.waiting import eventually

THREE = """
name: three
fleets:
  air:
    {devices: 3, topic: "air/{index}", payload: {random_bytes: 64}, every: 1s, qos: 0,
     will: {topic: "gone/{index}", payload: bye}}
phases: {connect: 1000/s, measure: 1s}
"""
LASTING = """
name: lasting
version: 5
fleets:
  air: {devices: 1, topic: air, payload: {random_bytes: 64}, every: 1s, SESSION}
phases: {measure: 1s}
"""
CONNECT, DISCONNECT = 0x10, 0xE0
WELCOME = b"\x20\x02\x00\x00"


async def connected(
    folder: Path,
    scenario: str,
    welcome: Callable[[], Awaitable[bytes]],
    meanwhile: Callable[[Engine], Awaitable[None]] | None = None,
) -> Finished:
    """Everybody connects, and leaves again; `welcome` makes the broker's answers to CONNECT."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (came := await reader.read(1024)) and came[0] != DISCONNECT:
            if came[0] == CONNECT:
                writer.write(await welcome())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    here = Anchor.take()
    plan = build_plan(read_scenario(scenario, "test").scenario, 1, "abcde")
    engine = Engine(
        Prepare(
            run="abcde", worker="worker-0", plan=plan.to_message(), share=0, of=1,
            endpoints={"tcp": f"mqtt://127.0.0.1:{port}"}, evidence=str(folder), boot_id=boot_id(),
            anchor_monotonic_ns=here.monotonic_ns, anchor_wall_ns=here.wall_ns, processes=1,
        ),
        here,
        lambda _message: None,
    )  # fmt: skip
    preparing = asyncio.create_task(engine.prepare())
    if meanwhile is not None:
        await meanwhile(engine)
    prepared = await asyncio.wait_for(preparing, 60)
    finished = await asyncio.wait_for(engine.finish(), 60)
    server.close()
    assert prepared.devices == plan.device_count
    return finished


def recorded(folder: Path, table: Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder / table.folder).to_pylist()
    return sorted(rows, key=lambda row: row["node"])


async def test_a_connect_that_waits_for_others_counts_from_its_planned_time_and_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(engine_module, "_CONNECTING_AT_ONCE", 1)
    somebody_waits = asyncio.Event()

    async def hesitate() -> bytes:
        await somebody_waits.wait()
        return WELCOME

    async def until_somebody_waits(engine: Engine) -> None:
        await eventually(lambda: engine._counters()["connects_held"], what="a connect that has to wait")
        somebody_waits.set()

    finished = await connected(tmp_path, THREE, hesitate, until_somebody_waits)
    assert finished.counters["connects_held"] >= 1
    connects = [row for row in recorded(tmp_path, OPERATIONS) if row["kind"] == "connect"]
    due = [row["started_ns"] for row in connects]
    assert [after - before for before, after in pairwise(due)] == [MILLISECOND_NS] * 2
    assert due[1] < connects[0]["ended_ns"], "it was due before the first was let in"


async def test_acknowledgements_of_nothing_are_counted_for_the_manifest(tmp_path):
    async def with_a_stray_one() -> bytes:
        return WELCOME + b"\x40\x02\x00\x09"

    finished = await connected(tmp_path, THREE, with_a_stray_one)
    assert finished.counters["stray_acknowledgements"] == 3


async def test_where_last_wills_go_is_recorded(tmp_path):
    async def at_once() -> bytes:
        return WELCOME

    await connected(tmp_path, THREE, at_once)
    assert [row["will_topic"] for row in recorded(tmp_path, NODES)] == ["gone/1", "gone/2", "gone/3"]


@pytest.mark.parametrize(
    ("session", "granted_s", "told"),
    [
        ("session: persistent", None, (True, 3600)),
        ("session: persistent, session_expiry: 5s", None, (True, 5)),
        ("session: persistent, session_expiry: 5s", 2, (True, 2)),
        ("session: persistent, session_expiry: 5s", 0, (False, None)),
        ("session: persistent, session_expiry: 5s", 2**32 - 1, (True, None)),
        ("session: persistent, session_expiry: 0s", None, (False, None)),
        ("session: clean, session_expiry: 5s", None, (False, None)),
        ("session: clean", 60, (False, None)),
        ("version: 3.1.1, session: persistent", None, (True, None)),
    ],
)
async def test_how_long_a_session_lasts_is_recorded_as_the_broker_decides(tmp_path, session, granted_s, told):
    async def welcome() -> bytes:
        if "3.1.1" in session:
            return WELCOME
        properties = b"" if granted_s is None else b"\x11" + granted_s.to_bytes(4, "big")
        body = b"\x00\x00" + bytes([len(properties)]) + properties
        return b"\x20" + bytes([len(body)]) + body

    await connected(tmp_path, LASTING.replace("SESSION", session), welcome)
    operations = recorded(tmp_path, OPERATIONS)
    assert [row["kind"] for row in operations] == ["connect", "disconnect"]
    assert {(row["persistent"], row["session_expiry_s"]) for row in operations} == {told}
