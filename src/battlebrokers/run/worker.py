"""A worker: takes a plan's share over a channel, gives back evidence. One process, or a team of engine processes.

Started by the orchestrator as `python -m battlebrokers.run.worker --fd N --name NAME`. It never starts brokers and
never analyses.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import signal
import socket
import sys
import traceback
from pathlib import Path

import msgspec
import uvloop

from battlebrokers.clock import Anchor
from battlebrokers.errors import BattleError, ExitCode
from battlebrokers.processes import boot_id
from battlebrokers.run.channel import (
    ALIVE_EVERY_S,
    ANSWER_WITHIN_S,
    START_WITHIN_S,
    Channel,
    end,
    spawn,
    stopped_answering,
    why_it_left,
)
from battlebrokers.run.engine import Engine
from battlebrokers.run.host import raise_open_files_limit
from battlebrokers.run.messages import (
    Alive,
    Control,
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
from battlebrokers.secrets import masked_text
from battlebrokers.silence import Silence


class Solo:
    """The worker's share in this very process."""

    def __init__(self, order: Prepare, anchor: Anchor, channel: Channel) -> None:
        self._channel = channel
        self._engine = Engine(order, anchor, channel.send)
        self._task: asyncio.Task[None] | None = None
        self._finished = False
        self._begin(self._prepare())

    def go(self, order: Go) -> None:
        """Start the load at the agreed instant."""
        self._begin(self._run(order.load_start_ns))

    def stop(self, order: Stop) -> None:  # noqa: ARG002
        """End the load now."""
        self._engine.stop()

    async def wait(self) -> None:
        """Until what is under way has ended and the evidence is complete."""
        if self._task is not None:
            await asyncio.wait([self._task])
        if not self._finished:
            await self._engine.finish()

    def _begin(self, coroutine: object) -> None:
        self._task = asyncio.get_running_loop().create_task(self._guard(coroutine))

    async def _guard(self, coroutine: object) -> None:
        try:
            await coroutine  # type: ignore[misc]
        except BattleError as error:
            self._channel.send(Failed(masked_text(error.message), masked_text(error.hint), int(error.exit_code)))
        except Exception as error:  # noqa: BLE001 - whatever it is, the orchestrator must hear of it
            sys.stderr.write(masked_text(traceback.format_exc()))
            words = masked_text(f"{type(error).__name__}: {error}")
            self._channel.send(Failed(words, "see the worker's log", int(ExitCode.BUG)))

    async def _prepare(self) -> None:
        self._channel.send(await self._engine.prepare())

    async def _run(self, load_start_ns: int) -> None:
        finished = await self._engine.go(load_start_ns)
        self._finished = True
        self._channel.send(finished)


class Team:
    """The worker's share split over several engine processes that are told and asked the same way."""

    def __init__(self, order: Prepare, channel: Channel) -> None:
        self._channel = channel
        self._order = order
        self._members: list[tuple[asyncio.subprocess.Process, Channel]] = []
        self._early: list[Go | Stop] | None = []
        """Orders that came before there was anybody to hear them; None once everybody is there."""
        self._progress = [Progress()] * order.processes
        self._prepared: list[Prepared] = []
        self._finished: list[Finished] = []
        self._listening: list[asyncio.Task[None]] = []
        self._silences = [Silence(START_WITHIN_S) for _ in range(order.processes)]
        self._watching: asyncio.Task[None] | None = None
        self._leaving = False
        self._done: set[int] = set()
        """Members whose evidence is complete."""
        self._gone: set[int] = set()
        self._assembling = asyncio.get_running_loop().create_task(self._assemble())

    def go(self, order: Go) -> None:
        """Start the load everywhere at the agreed instant."""
        self._tell(order)

    def stop(self, order: Stop) -> None:
        """End the load everywhere."""
        self._tell(order)

    async def wait(self) -> None:
        """Until every member has ended; one that still waits for an order to go is told that none will come."""
        await asyncio.wait([self._assembling])
        self._leaving = True
        if self._watching is not None:
            self._watching.cancel()
        for _, channel in self._members:
            channel.end_orders()
        # Side by side: one that hangs costs the others no time.
        await asyncio.gather(*(end(process, self._silences[place]) for place, (process, _) in enumerate(self._members)))
        for _, channel in self._members:
            await channel.close()
        if self._listening:
            await asyncio.wait(self._listening)

    def _tell(self, order: Go | Stop) -> None:
        if self._early is not None:
            self._early.append(order)
            return
        for _, channel in self._members:
            channel.send(order)

    async def _assemble(self) -> None:
        log = Path(self._order.evidence) / "recorded" / "logs"
        try:
            for place in range(self._order.processes):
                name = f"{self._order.worker}.{place}"
                self._members.append(await spawn(name, log / f"{name}.log", engine=True))
        except OSError as error:
            what = f"engine process {len(self._members)} could not be started: {error.strerror or error}"
            self._channel.send(Failed(what, "`bb doctor` tells this machine's limits.", int(ExitCode.ENVIRONMENT)))
            return
        early, self._early = self._early or [], None
        for place, (_, channel) in enumerate(self._members):
            channel.send(
                msgspec.structs.replace(
                    self._order,
                    worker=f"{self._order.worker}.{place}",
                    share=self._order.share + self._order.of * place,
                    of=self._order.of * self._order.processes,
                    processes=1,
                )
            )
            for order in early:
                channel.send(order)
            self._listening.append(asyncio.get_running_loop().create_task(self._listen(place, channel)))
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        """Kill members that hang; the orchestrator hears why, and ends the run."""
        hanging: set[int] = set()
        while True:
            await asyncio.sleep(ALIVE_EVERY_S / 2)
            for place, silence in enumerate(self._silences):
                if place in self._gone or place in hanging or not silence.over():
                    continue
                hanging.add(place)
                error = stopped_answering(f"engine process {place}", silence.limit_s, "")
                self._channel.send(Failed(error.message, error.hint, int(error.exit_code)))
                with contextlib.suppress(ProcessLookupError):
                    self._members[place][0].kill()

    async def _listen(self, place: int, channel: Channel) -> None:
        try:
            await self._hear(place, channel)
        finally:
            self._gone.add(place)

    async def _hear(self, place: int, channel: Channel) -> None:
        async for message in channel.messages():
            self._silences[place].limit_s = ANSWER_WITHIN_S
            self._silences[place].heard()
            if isinstance(message, Progress):
                self._progress[place] = message
                self._channel.send(merged_progress(self._progress))
            elif isinstance(message, Prepared):
                self._prepared.append(message)
                if len(self._prepared) == self._order.processes:
                    self._channel.send(merged_prepared(self._prepared))
            elif isinstance(message, Finished):
                self._finished.append(message)
                if len(self._finished) == self._order.processes:
                    self._channel.send(merged_finished(self._finished))
                self._done.add(place)
                channel.end_orders()
            elif isinstance(message, Failed):
                self._channel.send(message)
        if not self._leaving and place not in self._done:
            error = await why_it_left(self._members[place][0], f"engine process {place}", "Its log may tell more.")
            self._channel.send(Failed(error.message, error.hint, int(error.exit_code)))


def merged_progress(parts: list[Progress]) -> Progress:
    """Counts added, live latencies as the worst of all (a glance for the user, no result)."""
    return Progress(
        connected=sum(p.connected for p in parts),
        sent=sum(p.sent for p in parts),
        acked=sum(p.acked for p in parts),
        received=sum(p.received for p in parts),
        live_p50_ms=max(p.live_p50_ms for p in parts),
        live_p99_ms=max(p.live_p99_ms for p in parts),
        write_error=next((p.write_error for p in parts if p.write_error), ""),
    )


def merged_prepared(parts: list[Prepared]) -> Prepared:
    """All members' readiness as one."""
    nobody = all(part.errors for part in parts)
    return Prepared(
        devices=sum(p.devices for p in parts),
        clients=sum(p.clients for p in parts),
        failed=sum(p.failed for p in parts),
        errors=sorted({error for part in parts for error in part.errors}) if nobody else [],
    )


def merged_finished(parts: list[Finished]) -> Finished:
    """All members' counters added up."""
    counters: dict[str, int] = {}
    for part in parts:
        for name, value in part.counters.items():
            counters[name] = counters.get(name, 0) + value
    failure = "; ".join(part.failure for part in parts if part.failure)
    # Only a load that ended early everywhere ended early.
    silent_ns = [part.load_end_ns for part in parts]
    return Finished(
        max(part.drain_end_ns for part in parts),
        counters,
        failure,
        max(silent_ns) if all(silent_ns) else 0,
        next((part.write_error for part in parts if part.write_error), ""),
    )


async def serve(channel: Channel, *, engine: bool) -> None:
    """Answer the orchestrator until it closes the channel, then end."""
    anchor = Anchor.take()
    if not engine:
        channel.send(Hello(os.getpid(), platform.node(), boot_id(), os.cpu_count() or 1))
    # From this process's event loop: what hangs in it, or is stopped, falls silent.
    beating = asyncio.get_running_loop().create_task(_beat(channel))
    work: Solo | Team | None = None
    async for message in channel.messages():
        if isinstance(message, Prepare):
            if message.boot_id == boot_id():
                anchor = Anchor(message.anchor_monotonic_ns, message.anchor_wall_ns)
            work = Solo(message, anchor, channel) if message.processes == 1 else Team(message, channel)
        else:
            _answer(message, work, anchor, channel)
    if work is not None:
        # The orchestrator is gone or done: end the load if it still runs, keep what was recorded.
        work.stop(Stop("the orchestrator has gone"))
        await work.wait()
    beating.cancel()
    await channel.close()


async def _beat(channel: Channel) -> None:
    while True:
        await asyncio.sleep(ALIVE_EVERY_S)
        channel.send(Alive())


def _answer(message: Control, work: Solo | Team | None, anchor: Anchor, channel: Channel) -> None:
    if isinstance(message, Probe):
        received_ns = anchor.now_ns()
        channel.send(ProbeAnswer(message.t1_ns, received_ns, anchor.now_ns()))
    elif work is not None and isinstance(message, Go):
        work.go(message)
    elif work is not None and isinstance(message, Stop):
        work.stop(message)


def main(arguments: list[str]) -> None:
    """Entry point of a worker process."""
    parser = argparse.ArgumentParser(prog="battlebrokers.run.worker")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--name", default="worker")
    parser.add_argument("--engine", action="store_true")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise_open_files_limit()

    async def converse() -> None:
        channel = await Channel.over(socket.socket(fileno=options.fd))
        await serve(channel, engine=options.engine)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(converse())


if __name__ == "__main__":
    main(sys.argv[1:])
