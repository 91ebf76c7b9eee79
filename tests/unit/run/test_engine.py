"""An engine in this process, against a broker that lets nobody in until it is told to."""

from __future__ import annotations

import asyncio
import itertools

import pyarrow.parquet as pq

from battlebrokers.clock import MILLISECOND_NS, Anchor
from battlebrokers.run import engine as engine_module
from battlebrokers.run.engine import Engine
from battlebrokers.run.host import boot_id
from battlebrokers.run.messages import Prepare
from battlebrokers.scenario.plan import build_plan
from battlebrokers.scenario.reader import read_scenario
from battlebrokers.tables import NODES, OPERATIONS
from support.waiting import eventually

THREE = """
name: three
fleets:
  air:
    {devices: 3, topic: "air/{index}", payload: {random_bytes: 64}, every: 1s, qos: 0,
     will: {topic: "gone/{index}", payload: bye}}
phases: {connect: 1000/s, measure: 1s}
"""
CONNECT, DISCONNECT = 0x10, 0xE0


async def test_a_connect_that_waits_for_others_counts_from_its_planned_time_and_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(engine_module, "_CONNECTING_AT_ONCE", 1)
    somebody_waits = asyncio.Event()

    async def hesitate(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (first := await reader.read(1024)) and first[0] != DISCONNECT:
            if first[0] == CONNECT:
                await somebody_waits.wait()
                writer.write(b"\x20\x02\x00\x00")
        writer.close()

    server = await asyncio.start_server(hesitate, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    here = Anchor.take()
    plan = build_plan(read_scenario(THREE, "three").scenario, 1, "abcde")
    engine = Engine(
        Prepare(
            run="abcde", worker="worker-0", plan=plan.to_message(), share=0, of=1,
            endpoints={"tcp": f"mqtt://127.0.0.1:{port}"}, evidence=str(tmp_path), boot_id=boot_id(),
            anchor_monotonic_ns=here.monotonic_ns, anchor_wall_ns=here.wall_ns, processes=1,
        ),
        here,
        lambda _message: None,
    )  # fmt: skip
    preparing = asyncio.create_task(engine.prepare())
    await eventually(lambda: engine._counters()["connects_held"], what="a connect that has to wait")
    somebody_waits.set()
    prepared = await asyncio.wait_for(preparing, 60)
    finished = await asyncio.wait_for(engine.finish(), 60)
    server.close()
    assert prepared.devices == 3
    assert finished.counters["connects_held"] >= 1
    rows = pq.read_table(tmp_path / OPERATIONS.folder).to_pylist()
    connects = sorted((row for row in rows if row["kind"] == "connect"), key=lambda row: row["node"])
    due = [row["started_ns"] for row in connects]
    assert [after - before for before, after in itertools.pairwise(due)] == [MILLISECOND_NS] * 2
    assert due[1] < connects[0]["ended_ns"], "it was due before the first was let in"
    nodes = pq.read_table(tmp_path / NODES.folder).to_pylist()
    assert [row["will_topic"] for row in nodes] == ["gone/1", "gone/2", "gone/3"]
