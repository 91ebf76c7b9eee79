"""Processes at the far end of a channel: why they left, and that none is waited for longer than it shows life."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys

import psutil
import pytest

from battlebrokers.errors import BattleError, EnvironmentNotReady, ExitCode
from battlebrokers.run.channel import Channel, end, stopped_answering, why_it_left
from battlebrokers.run.messages import Go, Stop
from battlebrokers.silence import Silence
from support.waiting import eventually

SLEEP = "import time; time.sleep(600)"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}])"


async def started(script: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(sys.executable, "-c", script)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
async def test_a_killed_process_is_the_machines_doing_and_not_our_bug(number: int) -> None:
    process = await started(SLEEP)
    process.send_signal(number)
    error = await why_it_left(process, "the worker process", "see there")
    assert (type(error), error.exit_code) == (EnvironmentNotReady, ExitCode.ENVIRONMENT)
    assert f"the worker process was killed by signal {number:d} ({signal.Signals(number).name})" in error.message
    assert error.hint.startswith("see there")
    assert ("memory" in error.hint) is (number == signal.SIGKILL)


async def test_a_process_that_ends_by_itself_too_early_is_our_bug() -> None:
    error = await why_it_left(await started("raise SystemExit(3)"), "the worker process", "")
    assert (type(error), "ended with status 3" in error.message) == (BattleError, True)


async def test_a_stopped_process_is_killed_and_its_children_with_it() -> None:
    process = await started(PARENT)
    parent = psutil.Process(process.pid)
    await eventually(parent.children, what="the child")
    children = parent.children()
    for each in (parent, *children):
        each.suspend()
    # The child could not end by itself: give it no ten seconds here.
    await asyncio.wait_for(end(process, Silence(0.3)), 60)
    assert process.returncode == -signal.SIGKILL
    assert not psutil.wait_procs(children, timeout=60)[1]


async def test_a_process_that_ends_in_time_is_not_killed() -> None:
    process = await started("import time; time.sleep(0.3)")
    await end(process, Silence(60.0))
    assert process.returncode == 0


async def test_closing_does_not_wait_for_who_reads_nothing_any_more() -> None:
    ours, theirs = socket.socketpair()
    channel = await Channel.over(ours)
    for _ in range(200):
        channel.send(Stop("x" * 10_000))
    await asyncio.wait_for(channel.close(), 60)
    theirs.close()


async def test_after_the_last_order_the_far_side_can_still_speak() -> None:
    ours, theirs = socket.socketpair()
    near, far = await Channel.over(ours), await Channel.over(theirs)
    near.send(Go(1))
    near.end_orders()
    assert [message async for message in far.messages()] == [Go(1)]
    far.send(Stop("done"))
    await far.close()
    assert [message async for message in near.messages()] == [Stop("done")]
    await near.close()


def test_who_gives_no_sign_of_life_is_told_of_in_words() -> None:
    error = stopped_answering("the worker process", 20.0, "")
    assert error.message == "the worker process stopped answering: no sign of life for 20 s"
    assert error.exit_code == ExitCode.ENVIRONMENT
