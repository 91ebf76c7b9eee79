from __future__ import annotations

import asyncio
import errno
import socket

import psutil
import pytest

from battlebrokers.clock import Anchor
from battlebrokers.errors import ExitCode
from battlebrokers.processes import boot_id
from battlebrokers.run.channel import Channel
from battlebrokers.run.linking import source_address
from battlebrokers.run.messages import (
    Alive,
    Failed,
    Finished,
    Go,
    Hello,
    Prepare,
    Prepared,
    Probe,
    ProbeAnswer,
    Progress,
    Stop,
)
from battlebrokers.run.worker import merged_finished, merged_prepared, merged_progress, serve
from battlebrokers.scenario.plan import build_plan
from battlebrokers.scenario.reader import read_scenario


async def pair() -> tuple[Channel, Channel]:
    ours, theirs = socket.socketpair()
    return await Channel.over(ours), await Channel.over(theirs)


async def test_messages_cross_the_boundary_whole_and_in_order():
    ours, theirs = await pair()
    ours.send(Go(5))
    ours.send(Stop("enough"))
    await ours.close()
    assert [message async for message in theirs.messages()] == [Go(5), Stop("enough")]


@pytest.mark.parametrize(
    "nonsense", [b"", b"\x00", b"\x00\x00\x00\x04abcd", b"\xff\xff\xff\xffxx", b"\x00\x00\x00\x09short"]
)
async def test_nonsense_ends_the_conversation_without_an_exception(nonsense):
    ours, theirs = socket.socketpair()
    channel = await Channel.over(ours)
    theirs.sendall(nonsense)
    theirs.close()
    assert [message async for message in channel.messages()] == []


async def test_a_worker_says_hello_answers_probes_and_ends_with_its_channel():
    ours, theirs = await pair()
    task = asyncio.create_task(serve(theirs, engine=False))
    messages = ours.messages()
    hello = await anext(messages)
    assert hello.pid > 0
    ours.send(Probe(7))
    answer = await anext(messages)
    assert isinstance(answer, ProbeAnswer)
    assert answer.t1_ns == 7
    assert answer.t2_ns <= answer.t3_ns
    await ours.close()
    await asyncio.wait_for(task, 60)


def test_progress_of_several_processes_adds_up():
    merged = merged_progress([Progress(1, 2, 3, 4, 5.0, 6.0), Progress(10, 20, 30, 40, 1.0, 9.0)])
    assert merged == Progress(11, 22, 33, 44, 5.0, 9.0)


def test_one_process_without_a_connection_is_no_failure_as_long_as_another_has_some():
    good, bad = Prepared(1, 1, 0, []), Prepared(0, 0, 2, ["nobody could connect"])
    assert merged_prepared([good, bad]) == Prepared(1, 1, 2, [])
    assert merged_prepared([bad, bad]).errors == ["nobody could connect"]


def test_counters_add_up_and_failures_are_joined():
    merged = merged_finished([Finished(5, {"sent": 1}, "disk"), Finished(9, {"sent": 2, "acked": 3})])
    assert merged == Finished(9, {"sent": 3, "acked": 3}, "disk")


def test_many_connections_to_loopback_come_from_several_addresses():
    assert source_address("127.0.0.1", 5, 1000) is None
    assert source_address("10.0.0.1", 5, 100_000) is None
    assert source_address("127.0.0.1", 0, 100_000) == "127.0.0.2"
    assert source_address("127.0.0.1", 99_999, 100_000) == "127.0.0.6"


LONG = """
name: long
fleets: {sensor: {devices: 4, topic: "long/{device}", payload: {random_bytes: 32}, every: 1s}}
phases: {measure: 1h}
"""


def order_for_two(evidence, port: int) -> Prepare:
    """An hour of load for two engine processes, at a port where nobody listens."""
    plan = build_plan(read_scenario(LONG, "long").scenario, 1, "abcde")
    here = Anchor.take()
    return Prepare(
        run="abcde", worker="worker-0", plan=plan.to_message(), share=0, of=1,
        endpoints={"tcp": f"mqtt://127.0.0.1:{port}"}, evidence=str(evidence), boot_id=boot_id(),
        anchor_monotonic_ns=here.monotonic_ns, anchor_wall_ns=here.wall_ns, processes=2,
    )  # fmt: skip


async def first(kind: type, channel: Channel):
    async for message in channel.messages():
        assert not isinstance(message, Failed), message
        if isinstance(message, kind):
            return message
    raise AssertionError(f"no {kind.__name__} came")


@pytest.mark.slow
async def test_an_order_to_stop_that_comes_before_a_team_is_there_reaches_all_of_it(tmp_path, free_port):
    ours, theirs = await pair()
    task = asyncio.create_task(serve(theirs, engine=False))
    order = order_for_two(tmp_path, free_port)
    ours.send(order)
    ours.send(Stop("the user interrupted the run"))
    await asyncio.wait_for(first(Prepared, ours), 120)
    ours.send(Go(Anchor(order.anchor_monotonic_ns, order.anchor_wall_ns).now_ns()))
    finished = await asyncio.wait_for(first(Finished, ours), 120)
    assert finished.counters["sent"] == 0
    await ours.close()
    await asyncio.wait_for(task, 60)


@pytest.mark.slow
async def test_a_team_that_waits_for_the_load_ends_when_its_orchestrator_vanishes(tmp_path, free_port):
    ours, theirs = await pair()
    task = asyncio.create_task(serve(theirs, engine=False))
    ours.send(order_for_two(tmp_path, free_port))
    await asyncio.wait_for(first(Prepared, ours), 120)
    members = [child for child in psutil.Process().children() if "--engine" in child.cmdline()]
    assert len(members) == 2
    await ours.close()
    await asyncio.wait_for(task, 60)
    assert not any(member.is_running() and member.status() != psutil.STATUS_ZOMBIE for member in members)


async def test_a_team_that_cannot_be_started_says_so(tmp_path, free_port, monkeypatch):
    async def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr("battlebrokers.run.worker.spawn", refuse)
    ours, theirs = await pair()
    task = asyncio.create_task(serve(theirs, engine=False))
    ours.send(order_for_two(tmp_path, free_port))
    messages = ours.messages()
    assert isinstance(await anext(messages), Hello)
    failed = await asyncio.wait_for(anext(messages), 60)
    assert isinstance(failed, Failed)
    assert "could not be started" in failed.message
    assert failed.exit_code == ExitCode.ENVIRONMENT
    await ours.close()
    await asyncio.wait_for(task, 60)


async def test_a_worker_shows_every_second_that_its_event_loop_runs():
    ours, theirs = await pair()
    task = asyncio.create_task(serve(theirs, engine=False))
    assert await asyncio.wait_for(first(Alive, ours), 60) == Alive()
    await ours.close()
    await asyncio.wait_for(task, 60)


@pytest.mark.slow
async def test_an_engine_process_that_is_stopped_is_told_of_and_killed_and_the_others_end(
    tmp_path, free_port, monkeypatch
):
    monkeypatch.setattr("battlebrokers.run.worker.ANSWER_WITHIN_S", 3.0)
    ours, theirs = await pair()
    task = asyncio.create_task(serve(theirs, engine=False))
    ours.send(order_for_two(tmp_path, free_port))
    await asyncio.wait_for(first(Prepared, ours), 120)
    engines = [each for each in psutil.Process().children() if "worker-0.1" in each.cmdline()]
    engines[0].suspend()
    with pytest.raises(AssertionError, match="engine process 1 stopped answering"):
        await asyncio.wait_for(first(Finished, ours), 120)
    assert not psutil.wait_procs(engines, timeout=60)[1]
    ours.end_orders()
    await asyncio.wait_for(task, 60)
    await ours.close()
    assert not [each for each in psutil.Process().children() if "--engine" in each.cmdline()]


@pytest.mark.slow
async def test_a_killed_engine_process_is_told_of_with_its_signal(tmp_path, free_port):
    ours, theirs = await pair()
    task = asyncio.create_task(serve(theirs, engine=False))
    ours.send(order_for_two(tmp_path, free_port))
    await asyncio.wait_for(first(Prepared, ours), 120)
    next(each for each in psutil.Process().children() if "worker-0.0" in each.cmdline()).kill()
    async for message in ours.messages():
        if isinstance(message, Failed):
            break
    assert message.exit_code == ExitCode.ENVIRONMENT
    assert "engine process 0 was killed by signal 9 (SIGKILL)" in message.message
    await ours.close()
    await asyncio.wait_for(task, 60)
