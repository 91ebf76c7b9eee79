"""The first signal ends gracefully, the second at once, whatever the process is doing; nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from support.waiting import until

PRELUDE = """
    import asyncio, os, subprocess, sys, threading, time
    from pathlib import Path
    from battlebrokers import leftovers, signals
    from battlebrokers.scratch import Scratch
    here = Path(sys.argv[1])
    signals.listen()
    def say(words):
        print(words, flush=True)
"""
STUBBORN = "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; time.sleep(600)"
EVERY = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]

Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    begun: list[subprocess.Popen[str]] = []

    def start(script: str) -> subprocess.Popen[str]:
        text = textwrap.dedent(PRELUDE) + textwrap.dedent(script)
        process = subprocess.Popen(
            [sys.executable, "-c", text, str(tmp_path)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )  # fmt: skip
        begun.append(process)
        return process

    yield start
    for process in begun:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("number", EVERY)
def test_the_first_signal_raises_keyboard_interrupt_whichever_it_is(start: Start, number: int) -> None:
    process = start("""
        try:
            say("up")
            time.sleep(600)
        except KeyboardInterrupt:
            say("graceful")
    """)
    assert line(process) == "up"
    process.send_signal(number)
    assert (line(process), process.wait(60)) == ("graceful", 0)


@pytest.mark.parametrize("number", EVERY)
def test_the_second_ends_a_process_that_hangs_while_it_cleans_up_and_says_what_is_kept(
    start: Start, tmp_path: Path, number: int
) -> None:
    process = start(f"""
        scratch = Scratch("bb-some-")
        child = subprocess.Popen([sys.executable, "-c", {STUBBORN!r}], start_new_session=True)
        with signals.keeping(lambda: "all of it is kept in runs/x"):
            try:
                say(child.pid)
                time.sleep(600)
            except KeyboardInterrupt:
                say("cleaning up")
                threading.Event().wait(600)
    """)
    child = psutil.Process(int(line(process)))
    assert list(tmp_path.glob("bb-some-*"))
    process.send_signal(number)
    assert line(process) == "cleaning up"
    until(lambda: process.send_signal(number) or process.poll() is not None, what="its end")
    assert process.returncode == 130
    assert process.stderr is not None
    assert "ended at once: all of it is kept in runs/x" in process.stderr.read()
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, what="the child's end")
    assert not list(tmp_path.glob("bb-some-*"))


def test_the_second_ends_a_process_whose_main_thread_never_looks_at_signals(start: Start) -> None:
    # As a call into C that never comes back: no handler of Python's runs in it.
    process = start("""
        import signal
        signal.pthread_sigmask(signal.SIG_BLOCK, signals.NUMBERS)
        with signals.reacting(lambda: None):
            say("up")
            time.sleep(600)
    """)
    assert line(process) == "up"
    process.send_signal(signal.SIGTERM)
    until(lambda: process.send_signal(signal.SIGINT) or process.poll() is not None, what="its end")
    assert process.returncode == 130
    assert process.stderr is not None
    assert "nothing was measured" in process.stderr.read()


def test_removals_happen_in_their_order_and_a_slow_one_holds_up_nobody(start: Start, tmp_path: Path) -> None:
    process = start("""
        def note(words):
            with (here / "order").open("a") as file:
                file.write(words + " ")
        leftovers.register(leftovers.Order.FILES, lambda _: note("files"))
        leftovers.register(leftovers.Order.NETWORKS, lambda _: note("networks"))
        leftovers.register(leftovers.Order.PROCESSES, lambda _: note("processes"))
        leftovers.register(leftovers.Order.PROCESSES, lambda _: time.sleep(600))
        leftovers.register(leftovers.Order.NETWORKS, lambda _: 1 / 0)
        leftovers.register(leftovers.Order.FILES, lambda _: note("forgotten"))()
        with signals.reacting(lambda: say("first")):
            say("up")
            time.sleep(600)
    """)
    assert line(process) == "up"
    process.send_signal(signal.SIGINT)
    assert line(process) == "first"
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert (tmp_path / "order").read_text().split() == ["processes", "networks", "files"]


def test_grandchildren_whose_parent_is_killed_first_are_found_and_killed_too(start: Start) -> None:
    process = start(f"""
        script = "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', sys.argv[1]]); "
        script += "print(p.pid, flush=True); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", script, {STUBBORN!r}], stdout=subprocess.PIPE, text=True)
        with signals.reacting(lambda: say("first")):
            say(child.stdout.readline().strip())
            time.sleep(600)
    """)
    grandchild = psutil.Process(int(line(process)))
    process.send_signal(signal.SIGTERM)
    assert line(process) == "first"
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    until(lambda: not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE, what="its end")


def test_a_coroutine_is_cancelled_by_the_first_and_cleans_up_before_the_interrupt_is_raised(start: Start) -> None:
    process = start("""
        async def work():
            try:
                say("up")
                await asyncio.sleep(600)
            finally:
                await asyncio.sleep(0)
                say("cleaned up")
        try:
            signals.run(work())
        except KeyboardInterrupt:
            say("interrupted")
    """)
    assert line(process) == "up"
    process.send_signal(signal.SIGHUP)
    assert [line(process), line(process)] == ["cleaned up", "interrupted"]
    assert process.wait(60) == 0


def test_one_request_that_is_sent_twice_in_a_row_is_one(start: Start) -> None:
    # `timeout` signals its child and then its whole group.
    process = start("""
        with signals.reacting(lambda: say("first")):
            say("up")
            time.sleep(1)
            say("graceful")
    """)
    assert line(process) == "up"
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    assert [line(process), line(process)] == ["first", "graceful"]
    assert process.wait(60) == 0


def test_a_hangup_that_was_ignored_at_the_start_stays_ignored(start: Start) -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = start("""
            say("up")
            time.sleep(0.2)
            say("still there")
        """)
    finally:
        signal.signal(signal.SIGHUP, previous)
    assert line(process) == "up"
    process.send_signal(signal.SIGHUP)
    assert (line(process), process.wait(60)) == ("still there", 0)
