"""Devices, crowd and stopwatch over the in-memory link: what is planned, sent, held, owed and received."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uvloop

from battlebrokers.clock import SECOND_NS, Anchor
from battlebrokers.devices import crowd as crowd_module
from battlebrokers.devices import device as device_module
from battlebrokers.devices.client import Client
from battlebrokers.devices.crowd import Crowd
from battlebrokers.devices.device import Device
from battlebrokers.devices.stopwatch import Stopwatch
from battlebrokers.pacing.schedule import Schedule
from battlebrokers.protocols.base import Endpoint, Held, LinkOptions, Outgoing
from battlebrokers.protocols.loopback import LoopbackLink
from battlebrokers.record.recorder import Recorder
from battlebrokers.scenario.nodes import (
    AwayPlan,
    ClientPlan,
    ConnectionPlan,
    DevicePlan,
    FilterPlan,
    PacePlan,
    PayloadPlan,
    SizePlan,
)
from battlebrokers.scenario.payloads import PayloadSource
from battlebrokers.tables import DELIVERIES, OPERATIONS, PUBLISHES
from support.waiting import eventually

PLACE = Endpoint("memory", "loopback", 1)
LOAD_NS = SECOND_NS // 4


class MoodyLink(LoopbackLink):
    """A link whose willingness the test decides."""

    __slots__ = ("mood",)

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.mood = Held.NO

    @property
    def held(self) -> Held:
        return self.mood

    def room(self, qos: int) -> int:
        return 0 if self.mood else 65_535


def connection(name: str) -> ConnectionPlan:
    return ConnectionPlan("mqtt", "3.1.1", "tcp", name, None, None, True, 0, 60, 65_535, 65_535, False, None, None)


def device_plan(pace: PacePlan, *, size: int = 64, qos: int = 1, topics: tuple[str, ...] = ("t/0",)) -> DevicePlan:
    payload = PayloadPlan("random_bytes", size=SizePlan("fixed", size, size))
    return DevicePlan(0, "d0", "f", connection("d0"), topics, "round-robin", payload, qos, False, pace, None, 5, None)


class Stage:
    """One client, one device, a recorder and a crowd."""

    def __init__(
        self,
        folder: Path,
        plan: DevicePlan,
        reads_per_s: float = 0,
        tick_ns: int = 0,
        link: type[MoodyLink] = MoodyLink,
    ) -> None:
        anchor = Anchor.take()
        self.folder = folder
        self.recorder = Recorder(folder, "worker-0")
        self.watch = Stopwatch(anchor, self.recorder)
        self.crowd = Crowd(self.watch, anchor.shift_ns, tick_ns)
        self.link = link(PLACE, LinkOptions("d0"), self.watch)
        schedule = Schedule(plan.pace, plan.seed, plan.at_most, LOAD_NS)
        self.device = Device(
            plan, self.link, self.watch, schedule, PayloadSource(plan.payload, plan.seed), self.crowd.rearm
        )
        self.crowd.add(self.device)
        listener = LoopbackLink(PLACE, LinkOptions("c0"), self.watch)
        filters = (FilterPlan("t/#", 1, None),)
        self.client = Client(
            ClientPlan(0, "c0", "g", connection("c0"), filters, -1, reads_per_s, 1, None), listener, self.watch
        )

    async def load(self, during=None) -> int:
        assert await self.client.connect()
        assert await self.device.connect()
        start_ns = self.watch.now_ns()
        self.crowd.start(start_ns)
        if during is not None:
            during()
        await asyncio.sleep(LOAD_NS / SECOND_NS + 0.02)
        self.crowd.stop()
        await asyncio.sleep(0.01)
        while self.device.owed(start_ns + LOAD_NS, 1000):
            pass
        await self.device.stop()
        await self.client.stop()
        self.recorder.finish(self.watch.now_ns())
        return start_ns

    def hold_for_100_ms(self, mood: Held) -> None:
        """Soon the link takes nothing, and then again."""

        def release() -> None:
            self.link.mood = Held.NO
            self.watch.writable(self.link)

        loop = asyncio.get_running_loop()
        loop.call_later(0.05, setattr, self.link, "mood", mood)
        loop.call_later(0.15, release)

    def rows(self, table) -> pa.Table:
        return pq.read_table(self.folder / table.folder)


STEADY = PacePlan("steady", 1_000_000)
TICK_NS = 4_000_000


@pytest.mark.slow
@pytest.mark.parametrize(("size", "topics"), [(64, ("t/0",)), (64, ("t/0", "t/1")), (8, ("t/0",))])
async def test_every_planned_message_is_sent_at_its_planned_time_or_later_and_arrives_once(tmp_path, size, topics):
    stage = Stage(tmp_path, device_plan(STEADY, size=size, topics=topics))
    start_ns = await stage.load()
    sent = stage.rows(PUBLISHES).sort_by("seq").to_pylist()
    assert [row["planned_ns"] - start_ns for row in sent] == [n * 1_000_000 for n in range(250)]
    assert all(row["sent_ns"] >= row["planned_ns"] for row in sent)
    assert {row["outcome"] for row in sent} == {"acked"}
    assert {row["held"] for row in sent} == {"no"}
    assert all(row["wire_bytes"] >= row["payload_bytes"] == size for row in sent)
    assert [row["topic"] for row in sent[:4]] == [topics[n % len(topics)] for n in range(4)]
    arrived = stage.rows(DELIVERIES).to_pylist()
    assert len(arrived) == 250
    if size >= 16:
        assert sorted((row["device"], row["seq"], row["planned_ns"]) for row in arrived) == [
            (0, row["seq"], row["planned_ns"]) for row in sent
        ]
        assert all(row["topic"] is None for row in arrived)
    else:
        assert {(row["device"], row["topic"]) for row in arrived} == {(-1, "t/0")}


async def test_messages_that_wait_for_the_link_keep_their_planned_time_and_say_why(tmp_path):
    stage = Stage(tmp_path, device_plan(STEADY))
    await stage.load(lambda: stage.hold_for_100_ms(Held.WINDOW))
    sent = stage.rows(PUBLISHES).sort_by("seq").to_pylist()
    assert len(sent) == 250
    held = [row for row in sent if row["held"] == "window"]
    assert 50 < len(held) < 200
    assert held[0]["sent_ns"] - held[0]["planned_ns"] > 20_000_000
    assert {row["outcome"] for row in sent} == {"acked"}
    assert sent[-1]["held"] == "no", "once it has caught up it is free again"


async def test_what_never_leaves_is_recorded_as_unsent_with_the_reason(tmp_path):
    stage = Stage(tmp_path, device_plan(STEADY))

    def never() -> None:
        stage.link.mood = Held.SOCKET

    await stage.load(never)
    rows = stage.rows(PUBLISHES).to_pylist()
    assert len(rows) == 250
    unsent = [row for row in rows if row["outcome"] == "unsent"]
    assert len(unsent) >= 240
    assert {(row["held"], row["sent_ns"]) for row in unsent} == {("socket", None)}


async def test_what_never_leaves_is_recorded_on_the_topic_it_was_meant_for(tmp_path):
    stage = Stage(tmp_path, device_plan(STEADY, topics=("t/0", "t/1")))
    await stage.load(lambda: setattr(stage.link, "mood", Held.WINDOW))
    rows = stage.rows(PUBLISHES).sort_by("seq").to_pylist()
    assert [row["topic"] for row in rows] == [f"t/{row['seq'] % 2}" for row in rows]
    assert {(row["held"], row["outcome"]) for row in rows[-200:]} == {("window", "unsent")}


async def test_what_became_due_after_the_release_was_held_by_nobody(tmp_path):
    stage = Stage(tmp_path, device_plan(STEADY))
    released_ns = []

    def release_and_stop() -> None:
        """As if our own process slept from now on."""
        stage.link.mood = Held.NO
        stage.crowd.stop()
        stage.watch.writable(stage.link)
        released_ns.append(stage.watch.now_ns())

    def during() -> None:
        stage.link.mood = Held.SOCKET
        asyncio.get_running_loop().call_later(0.1, release_and_stop)

    await stage.load(during)
    unsent = [row for row in stage.rows(PUBLISHES).to_pylist() if row["outcome"] == "unsent"]
    assert {row["held"] for row in unsent} == {"socket", "no"}
    assert all((row["held"] == "socket") == (row["planned_ns"] <= released_ns[0]) for row in unsent)


async def test_what_never_leaves_because_the_device_is_away_by_plan_says_so(tmp_path):
    plan = replace(device_plan(STEADY), away=AwayPlan(0, 10 * SECOND_NS, 0, True))
    stage = Stage(tmp_path, plan)
    await stage.load(lambda: stage.device.start_absences(stage.watch.now_ns() - SECOND_NS))
    unsent = [row for row in stage.rows(PUBLISHES).to_pylist() if row["outcome"] == "unsent"]
    assert len(unsent) >= 200
    assert {row["held"] for row in unsent} == {"away"}


async def test_a_slow_reader_keeps_to_its_speed(tmp_path):
    stage = Stage(tmp_path, device_plan(STEADY), reads_per_s=200)
    await stage.load()
    arrivals = stage.rows(DELIVERIES).num_rows
    assert 0 < arrivals < 250 * 0.6


async def test_a_slow_reader_rests_for_every_message_of_a_chunk(tmp_path):
    stage = Stage(tmp_path, device_plan(STEADY), reads_per_s=50)
    assert await stage.client.connect()
    began_ns = stage.watch.now_ns()
    for _ in range(20):
        stage.client.heard(1)
    assert not stage.client.link._reading
    await eventually(lambda: stage.client.link._reading)
    assert stage.watch.now_ns() - began_ns >= 20 * SECOND_NS // 50
    await stage.client.stop()
    stage.recorder.finish(stage.watch.now_ns())


async def test_a_slow_reader_whose_connection_broke_while_it_rested_reads_again(tmp_path):
    stage = Stage(tmp_path, device_plan(STEADY), reads_per_s=50)
    assert await stage.client.connect()
    stage.client.heard(5)
    await stage.client.stop()
    await eventually(lambda: stage.client.link._reading)
    stage.recorder.finish(stage.watch.now_ns())


@pytest.mark.parametrize("interval_ns", [1_000_000, 200_000])
async def test_with_a_tick_everything_is_sent_in_order_and_nothing_due_waits_for_a_second_one(tmp_path, interval_ns):
    stage = Stage(tmp_path, device_plan(PacePlan("steady", interval_ns), qos=0), tick_ns=TICK_NS)
    start_ns = await stage.load()
    sent = stage.rows(PUBLISHES).sort_by("seq").to_pylist()
    planned = [row["planned_ns"] - start_ns for row in sent]
    assert planned == list(range(0, LOAD_NS, interval_ns)), "planned times do not know of the tick"
    assert [row["sent_ns"] for row in sent] == sorted(row["sent_ns"] for row in sent)
    moments = sorted({row["sent_ns"] for row in sent})
    before = dict(zip(moments, [start_ns - 1, *moments], strict=False))
    assert all(before[row["sent_ns"]] < row["planned_ns"] <= row["sent_ns"] for row in sent)
    assert stage.rows(DELIVERIES).num_rows == len(sent)
    assert stage.crowd.sleeps > 5
    assert stage.crowd.rings <= (stage.watch.now_ns() - start_ns) / TICK_NS + 1


async def test_a_device_that_owes_more_than_it_may_say_at_once_does_not_wait_for_the_next_tick(tmp_path, monkeypatch):
    monkeypatch.setattr(device_module, "_BATCH_MESSAGES", 16)
    stage = Stage(tmp_path, device_plan(PacePlan("steady", 100_000), qos=0), tick_ns=25_000_000)
    await stage.load()
    assert stage.crowd.sleeps > 1
    assert stage.watch.sent > 16 * LOAD_NS / 25_000_000 * 3


async def test_with_a_tick_a_held_device_goes_on_after_its_release(tmp_path):
    stage = Stage(tmp_path, device_plan(STEADY, qos=0), tick_ns=TICK_NS)
    await stage.load(lambda: stage.hold_for_100_ms(Held.SOCKET))
    sent = stage.rows(PUBLISHES).sort_by("seq").to_pylist()
    assert len(sent) == 250
    assert {row["outcome"] for row in sent} == {"sent"}
    assert 50 < sum(row["held"] == "socket" for row in sent) < 200
    assert sent[-1]["held"] == "no"


def test_what_devices_say_has_left_before_the_process_sleeps(tmp_path, monkeypatch):
    """With the event loop of real runs: one that wrote only after its callbacks would add a tick to every message."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    read: list[int] = []
    stages: list[Stage] = []

    def sleep_and_look(seconds: float) -> None:
        with contextlib.suppress(BlockingIOError):
            read.append(len(theirs.recv(1 << 20)))
        assert sum(read) == stages[0].watch.sent, "as many bytes as messages"
        time.sleep(seconds)

    class WiredLink(MoodyLink):
        __slots__ = ()

        def publish(self, outgoing: Outgoing) -> int:
            transport.write(b"m" * len(outgoing.payloads))
            return super().publish(outgoing)

    async def load() -> None:
        nonlocal transport
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
        stage = Stage(tmp_path, device_plan(STEADY, qos=0), tick_ns=TICK_NS, link=WiredLink)
        stages.append(stage)
        await stage.load()
        transport.abort()

    transport: asyncio.WriteTransport
    monkeypatch.setattr(crowd_module, "sleep", sleep_and_look)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(load())
    theirs.close()
    assert len(read) > 5
    assert stages[0].crowd.sleeps > 5


async def test_operations_are_recorded_in_full(tmp_path):
    stage = Stage(tmp_path, device_plan(STEADY))
    await stage.load()
    kinds = [(row["role"], row["kind"], row["outcome"]) for row in stage.rows(OPERATIONS).to_pylist()]
    assert kinds == [
        ("client", "connect", "ok"),
        ("client", "subscribe", "ok"),
        ("device", "connect", "ok"),
        ("device", "disconnect", "ok"),
        ("client", "disconnect", "ok"),
    ]
