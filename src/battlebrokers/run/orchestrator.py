"""The orchestrator: one scenario against one contender, from an empty folder to complete evidence.

Called by `bb run` and `bb battle`. It starts the contender and a worker, keeps the timetable, samples resources and
writes the manifest. It computes no figure: that is the pipeline's, which it never meets.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from battlebrokers.clock import SECOND_NS, Anchor
from battlebrokers.contenders.broker_url import is_url
from battlebrokers.contenders.lifecycle import RunningContender
from battlebrokers.contenders.spec import Profile
from battlebrokers.devices.controller import Registered
from battlebrokers.errors import BattleError, ContenderError, EnvironmentNotReady, InputError
from battlebrokers.record.capture_tool import Limits
from battlebrokers.record.segments import write_rows
from battlebrokers.run.capturing import Capturing
from battlebrokers.run.channel import Channel, end, spawn, why_it_left
from battlebrokers.run.fitness import protocols_of, refuse_what_cannot_be_honoured, settled_for
from battlebrokers.run.glimpse import Glimpse
from battlebrokers.run.host import boot_id, raise_open_files_limit
from battlebrokers.run.hosting import death_notice, gone_elsewhere, sampler_of, start_patiently
from battlebrokers.run.logbook import Logbook, cannot_be_written, first_entry
from battlebrokers.run.machine import gather
from battlebrokers.run.messages import (
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
from battlebrokers.run.observing import Accounts, write_observed
from battlebrokers.run.phases import Timetable
from battlebrokers.run.preflight import Needs, preflight, require
from battlebrokers.run.registering import Registering
from battlebrokers.run.team_size import suggest_processes
from battlebrokers.run.tick import tick_ns
from battlebrokers.scenario.plan import Plan, build_plan
from battlebrokers.scenario.reader import LoadedScenario
from battlebrokers.tables import CLOCKS
from battlebrokers.tables.manifest import BattleFacts, State
from battlebrokers.tables.run_folder import RunFolder, new_run_folder

_LEAD_NS = 300_000_000
"""From the order to go until the load starts: enough for the order to reach every worker."""
_PROBES = 16
_QUIET_WITHIN_NS = 45 * SECOND_NS
_WATCH_S = 0.2
_HELLO_TIMEOUT_S = 60.0
_FAILURES: dict[int, type[BattleError]] = {
    kind.exit_code: kind for kind in (InputError, EnvironmentNotReady, ContenderError)
}


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What to run, against whom, and where to put it."""

    loaded: LoadedScenario
    broker: str
    seed: int
    runs: Path
    profile: Profile = "tuned"
    processes: int = 0
    """Engine processes; 0 = as many as the load and the cores suggest."""
    tags: dict[str, str] = field(default_factory=dict)
    battle: BattleFacts | None = None
    keep_events: bool = True
    capture: Limits | None = None
    """How much to capture of each service's wire; None is nothing."""
    accounts: Accounts | None = None
    """Who else is asked about resources after the run."""


class Orchestrator:
    """Runs one request; `interrupt` may be called at any time from the same loop.

    `watch` sees how it goes. `quiet` is asked before the load starts: as long as it says no, somebody on this machine
    (the waking analyst) would disturb the measurement, and the load waits for it, within reason. `say` hears what a
    user must know although the run goes on: what could not be captured.
    """

    def __init__(
        self,
        request: RunRequest,
        watch: Callable[[Glimpse], None] = lambda _: None,
        quiet: Callable[[], bool] = lambda: True,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._request = request
        self._say = say
        self._watch = watch
        self._quiet = quiet
        self._anchor = Anchor.take()
        self._scenario = settled_for(request.loaded.scenario, request.broker)
        self._plan: Plan = build_plan(self._scenario, request.seed)
        self._timetable = Timetable(self._plan.phases)
        self._progress = Progress()
        self._phase = "start"
        self._state: State = "running"
        self._detail = ""
        self._channel: Channel | None = None
        self._prepared: asyncio.Future[Prepared] | None = None
        self._finished: asyncio.Future[Finished] | None = None
        self._answers: asyncio.Queue[tuple[ProbeAnswer, int]] = asyncio.Queue()
        self._hello: asyncio.Future[Hello] | None = None
        self._logbook: Logbook | None = None
        self._contender: RunningContender | None = None
        self._registering: Registering | None = None
        self._registered = Registered()
        self._told_to_stop = False
        self.folder: RunFolder | None = None

    async def run(self) -> RunFolder:
        """Run it; the folder's manifest tells how it ended. Raises only when there is nothing to analyse."""
        request = self._request
        refuse_what_cannot_be_honoured(self._scenario, request.broker, request.processes)
        raise_open_files_limit()
        require(preflight(gather(request.runs, programs=False), self._needs()))
        name = request.loaded.scenario.name
        begun = datetime.fromtimestamp(self._anchor.wall_ns / SECOND_NS, UTC)
        self.folder = new_run_folder(request.runs.absolute(), name, request.broker, begun)
        # Client ids carry the run's id, so that two runs never take each other's sessions.
        self._plan = build_plan(self._scenario, request.seed, self.folder.run_id)
        place = self.folder.path
        self._look()
        capturing = self._captures(self.folder)
        try:
            contender = await start_patiently(
                request.broker, request.profile, place / "contender", capturing, lambda: self._told_to_stop
            )
        except BaseException:
            if capturing is not None:
                capturing.discard()
            shutil.rmtree(place, ignore_errors=True)
            raise
        self._contender = contender
        try:
            entry = first_entry(self.folder.run_id, request, self._plan, contender, self._anchor.wall_ns)
            self._logbook = Logbook(self.folder, self._timetable, entry)
            if capturing is not None:
                entry.captures = capturing.facts
            self._logbook.write()
            await self._register(contender)
            await self._battle(contender, place)
        except BattleError as error:
            self._end_early("broker-failed" if isinstance(error, ContenderError) else "failed", error.message)
            raise
        except OSError as error:
            told = cannot_be_written(place, error)
            self._end_early("failed", told.message)
            raise told from error
        finally:
            await self._unregister(place)
            await asyncio.to_thread(contender.stop)
            captured = [] if capturing is None else await asyncio.to_thread(capturing.stop)
            await asyncio.to_thread(self._ask_others, contender, place)
            if self._logbook is not None:
                self._logbook.manifest.captures = captured
                self._logbook.keep_logs(contender)
            shutil.rmtree(place / "contender", ignore_errors=True)  # on a full disk, the room the last entry needs
            if self._logbook is not None:
                self._logbook.close(self._state, self._detail, self._anchor.now_ns())
        return self.folder

    def interrupt(self) -> None:
        """The user wants it to end: stop the load, keep and finish what was measured."""
        self._end_early("interrupted", "the user interrupted the run")

    async def _register(self, contender: RunningContender) -> None:
        self._registering = Registering(contender, self._plan, self._anchor.reader(), self._look_at_registration)
        if self._told_to_stop:
            self._registering.stop()
        self._registered = await self._registering.register()

    async def _unregister(self, place: Path) -> None:
        if self._registering is not None:
            failed = 0
            with contextlib.suppress(OSError):  # no room to write it down: the broker has to be stopped all the same
                failed = await self._registering.remove(place)
            if failed:
                what = "the clean-up took too long" if failed < 0 else f"{failed} removals failed"
                self._say(f"{what}; what was registered may still be there (see `operations`)")

    async def _battle(self, contender: RunningContender, place: Path) -> None:
        loop = asyncio.get_running_loop()
        self._hello, self._prepared, self._finished = loop.create_future(), loop.create_future(), loop.create_future()
        process, channel = await spawn("worker-0", place / "recorded" / "logs" / "worker-0.log")
        self._channel = channel
        listening = loop.create_task(self._listen(channel, process, place))
        watching = loop.create_task(self._keep_watch(contender))
        sampler = sampler_of(contender, process.pid, place, self._anchor.reader(), self._request.capture)
        sampler.start()
        try:
            await self._conduct(channel, place, process.pid)
        finally:
            sampler.stop()
            watching.cancel()
            await channel.close()
            await end(process)
            await listening

    async def _conduct(self, channel: Channel, place: Path, worker_pid: int) -> None:
        assert self._hello is not None
        assert self._prepared is not None
        assert self._finished is not None
        assert self._logbook is not None
        hello = await self._welcome(self._hello)
        processes = self._request.processes or suggest_processes(self._plan, hello.cores)
        tick = tick_ns(self._plan, processes)
        self._logbook.worker_came(hello, worker_pid, processes, tick)
        self._timetable.connecting(self._anchor.now_ns())
        self._logbook.write()
        assert self._contender is not None
        username, password = self._contender.credentials
        channel.send(
            Prepare(
                run=self._logbook.manifest.run,
                worker="worker-0",
                plan=self._plan.to_message(),
                share=0,
                of=1,
                endpoints=dict(self._contender.endpoints),
                evidence=str(place),
                boot_id=boot_id(),
                anchor_monotonic_ns=self._anchor.monotonic_ns,
                anchor_wall_ns=self._anchor.wall_ns,
                processes=processes,
                tick_ns=tick,
                keep_events=self._request.keep_events,
                username=username,
                password=password.reveal() if password is not None else None,
                scripts=dict(self._contender.scripts),
                known_by_all=self._registered.by_all,
                known=self._registered.nodes,
                known_of_topics=self._registered.topics,
            )
        )
        if self._told_to_stop:
            channel.send(Stop(self._detail))
        prepared = await self._prepared
        if prepared.errors and self._state == "running":
            self._end_early("broker-failed", f"{self._logbook.manifest.contender.name}: {'; '.join(prepared.errors)}")
        await self._wait_for_quiet()
        probes = await self._probe_clock(channel, hello)
        load_start_ns = self._anchor.now_ns() + _LEAD_NS
        self._timetable.loading(load_start_ns)
        if self._told_to_stop:
            self._timetable.stopped(load_start_ns)
        channel.send(Go(load_start_ns))
        self._logbook.write()
        finished = await self._finished
        gone = await asyncio.to_thread(gone_elsewhere, self._contender, set(protocols_of(self._scenario).values()))
        if gone and self._state == "running":
            self._state, self._detail = "broker-failed", gone
        probes += await self._probe_clock(channel, hello)
        write_rows(place, CLOCKS, "orchestrator", probes)
        if finished.load_end_ns:
            self._timetable.stopped(finished.load_end_ns)
        self._timetable.ended(finished.drain_end_ns)
        self._logbook.worker_finished(finished)

    async def _welcome(self, hello: asyncio.Future[Hello]) -> Hello:
        try:
            return await asyncio.wait_for(hello, _HELLO_TIMEOUT_S)
        except TimeoutError:
            raise EnvironmentNotReady(
                f"a worker process did not come up within {_HELLO_TIMEOUT_S:.0f} s",
                hint="`bb doctor` tells how busy this machine is; recorded/logs/worker-0.log may tell more.",
            ) from None

    async def _wait_for_quiet(self) -> None:
        until_ns = self._anchor.now_ns() + _QUIET_WITHIN_NS
        while not self._quiet() and not self._told_to_stop and self._anchor.now_ns() < until_ns:  # noqa: ASYNC110
            await asyncio.sleep(_WATCH_S)

    def _end_early(self, state: State, detail: str) -> None:
        if self._state != "running":
            return
        self._state, self._detail = state, detail
        self._told_to_stop = True
        self._timetable.stopped(self._anchor.now_ns())
        if self._registering is not None:
            self._registering.stop()
        if self._channel is not None:
            self._channel.send(Stop(detail))

    async def _listen(self, channel: Channel, worker: asyncio.subprocess.Process, place: Path) -> None:
        assert self._hello is not None
        assert self._prepared is not None
        assert self._finished is not None
        async for message in channel.messages():
            if isinstance(message, Progress):
                self._progress = message
                self._look()
            elif isinstance(message, ProbeAnswer):
                self._answers.put_nowait((message, self._anchor.now_ns()))
            elif isinstance(message, Hello):
                self._hello.set_result(message)
            elif isinstance(message, Prepared):
                self._prepared.set_result(message)
            elif isinstance(message, Finished):
                self._finished.set_result(message)
            elif isinstance(message, Failed):
                kind = _FAILURES.get(message.exit_code, BattleError)
                self._give_up(kind(f"a worker failed: {message.message}", hint=message.hint))
        if not self._finished.done():
            self._give_up(await why_it_left(worker, place))

    def _give_up(self, error: BattleError) -> None:
        for future in (self._hello, self._prepared, self._finished):
            if future is not None and not future.done():
                future.set_exception(error)
                future.exception()  # those nobody waits for any more must not complain

    async def _keep_watch(self, contender: RunningContender) -> None:
        """Notice a dead contender and phase changes; both are written down at once."""
        known = ""
        while True:
            await asyncio.sleep(_WATCH_S)
            phase, _ = self._timetable.now_in(self._anchor.now_ns())
            if phase != known:
                known = phase
                self._phase = phase
                if self._logbook is not None:
                    self._logbook.write()
            self._look()
            if not contender.alive():
                self._end_early("broker-failed", death_notice(contender))

    def _look(self) -> None:
        share = 0.0
        nodes = self._plan.device_count + self._plan.client_count
        if self._timetable.connect_start_ns:
            self._phase, share = self._timetable.now_in(self._anchor.now_ns())
            if self._phase == "connect":
                share = self._progress.connected / max(1, nodes)
        longest_s = self._plan.phases.longest_drain_ns / SECOND_NS if self._phase == "drain" else 0.0
        self._watch(Glimpse(self._phase, share, nodes, self._progress, longest_s))

    def _look_at_registration(self, done: int, of: int) -> None:
        assert self._registering is not None
        self._watch(Glimpse(self._registering.phase, done / max(1, of), of, Progress(connected=done)))

    async def _probe_clock(self, channel: Channel, hello: Hello) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        same = hello.boot_id == boot_id()
        for _ in range(_PROBES):
            channel.send(Probe(self._anchor.now_ns()))
            try:
                answer, t4_ns = await asyncio.wait_for(self._answers.get(), 1.0)
            except TimeoutError:
                continue
            rows.append(("worker-0", same, answer.t1_ns, answer.t2_ns, answer.t3_ns, t4_ns))
        return rows

    def _captures(self, folder: RunFolder) -> Capturing | None:
        limits = self._request.capture
        if limits is None:
            return None
        return Capturing(
            folder.captures, folder.logs, limits, self._anchor.reader(), self._say, files_under="recorded/captures/"
        )

    def _ask_others(self, contender: RunningContender, place: Path) -> None:
        times = self._timetable
        if self._request.accounts is not None and times.end_ns:
            between_ns = times.connect_start_ns, times.end_ns
            write_observed(self._request.accounts, contender.described, place, between_ns, self._say)

    def _needs(self) -> Needs:
        plan = self._plan
        seconds = plan.phases.load_ns / SECOND_NS
        return Needs(
            connections=plan.device_count + plan.client_count,
            events=int(seconds * (plan.messages_per_s + plan.deliveries_per_s)),
            broker_here=not is_url(self._request.broker),
        )
