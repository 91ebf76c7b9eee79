from __future__ import annotations

import asyncio
import socket

import pytest

from battlebrokers.run.channel import Channel
from battlebrokers.run.linking import source_address
from battlebrokers.run.messages import Finished, Go, Prepared, Probe, ProbeAnswer, Progress, Stop
from battlebrokers.run.worker import merged_finished, merged_prepared, merged_progress, serve


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
    await asyncio.wait_for(task, 10)


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
