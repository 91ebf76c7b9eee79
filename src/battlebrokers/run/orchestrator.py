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
from typing import Any, TypeVar

import psutil

from battlebrokers.clock import SECOND_NS, Anchor
from battlebrokers.contenders.broker_url import is_url
from battlebrokers.contenders.lifecycle import RunningContender
from battlebrokers.contenders.spec import Profile
from battlebrokers.devices.controller import Registered
from battlebrokers.errors import BattleError, ContenderError, EnvironmentNotReady, InputError
from battlebrokers.leftovers import living_descendants
from battlebrokers.processes import boot_id
from battlebrokers.record.capture_tool import Limits
from battlebrokers.record.segments import write_rows
from battlebrokers.run.background import Background, NoBackground
from battlebrokers.run.capturing import Capturing
from battlebrokers.run.channel import (
    ANSWER_WITHIN_S,
    START_WITHIN_S,
    Channel,
    end,
    spawn,
    stopped_answering,
    why_it_left,
)
from battlebrokers.run.fitness import protocols_of, refuse_what_cannot_be_honoured, settled_for
from battlebrokers.run.glimpse import Glimpse
from battlebrokers.run.host import free_bytes, raise_open_files_limit
from battlebrokers.run.hosting import death_notice, gone_elsewhere, sampler_of, start_patiently
from battlebrokers.run.logbook import Logbook, cannot_be_written, first_entry, no_room_to_start
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
from battlebrokers.run.reserve import Reserve
from battlebrokers.run.team_size import suggest_processes
from battlebrokers.run.tick import tick_ns
from battlebrokers.scenario.plan import Plan, build_plan
from battlebrokers.scenario.reader import LoadedScenario
from battlebrokers.silence import Silence
from battlebrokers.tables import CLOCKS
from battlebrokers.tables.manifest import BattleFacts, State
from battlebrokers.tables.run_folder import RunFolder, new_run_folder

_Message = TypeVar("_Message")

_LEAD_NS = 300_000_000
"""From the order to go until the load starts: enough for the order to reach every worker."""
_PROBES = 16
_PROBES_MISSED = 5
_GET_READY_NS = 5 * SECOND_NS
_FINISH_WITHIN_NS = 300 * SECOND_NS
"""After the longest drain: for disconnecting everybody and writing what is in memory."""
_WATCH_S = 0.2
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

    `watch` sees how it goes. `background` may get ready before anybody connects, for a few seconds at most, and is held
    until the drain is over. `say` hears what a user must know although the run goes on: what could not be captured.
    """

    def __init__(
        self,
        request: RunRequest,
        watch: Callable[[Glimpse], None] = lambda _: None,
        background: Background | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._request = request
        self._say = say
        self._watch = watch
        self._background = background or NoBackground()
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
        self._silence = Silence(START_WITHIN_S)
        self._engines: list[psutil.Process] = []
        self._getting_ready = 0.0
        self._unwritable: EnvironmentNotReady | None = None
        self._reserve: Reserve | None = None
        self.folder: RunFolder | None = None

    @property
    def has_begun(self) -> bool:
        """Whether the broker is up: before that there is nothing to keep."""
        return self._contender is not None

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
            # A run that is killed while its broker starts is listed all the same.
            entry = first_entry(self.folder.run_id, request, self._plan, self._anchor.wall_ns)
            self._logbook = Logbook(self.folder, self._timetable, entry, self._needs().disk_bytes)
            self._logbook.write()
            contender = await start_patiently(
                request.broker, request.profile, place / "contender", capturing, lambda: self._told_to_stop
            )
        except BaseException as error:
            if capturing is not None:
                capturing.discard()
            shutil.rmtree(place, ignore_errors=True)
            full = no_room_to_start(error, request.runs.absolute(), self._needs().disk_bytes)
            if full is not None:
                raise full from error
            raise
        self._contender = contender
        for warning in contender.warnings:
            self._say(warning)
        try:
            self._logbook.contender_came(contender)
            self._reserve = Reserve(place, self._needs().last_bytes)
            if capturing is not None:
                entry.captures = capturing.facts
            self._logbook.write()
            await self._register(contender)
            await self._battle(contender, place)
        except BattleError as error:
            self._end_early("broker-failed" if isinstance(error, ContenderError) else "failed", error.message)
            raise
        except OSError as error:
            told = self._cannot_be_written(error.strerror or str(error))
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
            shutil.rmtree(place / "contender", ignore_errors=True)
            if self._reserve is not None:
                self._reserve.release()  # on a full disk, the room the last entry needs
            if self._logbook is not None:
                self._logbook.close(self._state, self._detail, self._anchor.now_ns())
        return self.folder

    def interrupt(self) -> None:
        """The user wants it to end: stop the load, keep and finish what was measured."""
        self._end_early("interrupted", "the user interrupted the run")

    @property
    def has_measured(self) -> bool:
        """Whether the load has begun, so that there is something to keep."""
        return 0 < self._timetable.load_start_ns <= self._anchor.now_ns()

    def abandon(self) -> None:
        """This process ends at once, all others have: the last entry, and no temporary files. From any thread."""
        if self.folder is None:
            return
        place = self.folder.path
        if self._logbook is None or not self.has_begun:
            shutil.rmtree(place, ignore_errors=True)
            return
        shutil.rmtree(place / "contender", ignore_errors=True)
        for half in place.rglob(".*.tmp"):
            half.unlink(missing_ok=True)
        detail = self._detail or "the user interrupted the run"
        self._logbook.close("interrupted", f"{detail}, and ended it at once", self._anchor.now_ns())

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
            self._background.resume()
            sampler.stop()
            watching.cancel()
            channel.end_orders()
            await end(process, self._silence, self._engines)
            await channel.close()
            await listening
        if self._unwritable is not None:
            raise self._unwritable

    async def _conduct(self, channel: Channel, place: Path, worker_pid: int) -> None:
        assert self._hello is not None
        assert self._prepared is not None
        assert self._finished is not None
        assert self._logbook is not None
        hello = await self._hello
        await self._hold_background()
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
        if processes > 1:
            self._engines = living_descendants(worker_pid)
        if prepared.errors and self._state == "running":
            self._end_early("broker-failed", f"{self._logbook.manifest.contender.name}: {'; '.join(prepared.errors)}")
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
        if finished.write_error:
            self._stop_writing(self._cannot_be_written(finished.write_error))

    async def _hold_background(self) -> None:
        """Let the analysis get ready for a moment, before anybody connects; then it must not disturb any more."""
        began_ns = self._anchor.now_ns()
        while not self._background.ready and not self._told_to_stop:
            waited_ns = self._anchor.now_ns() - began_ns
            if waited_ns >= _GET_READY_NS:
                break
            self._getting_ready = max(waited_ns, 1) / _GET_READY_NS
            self._look()
            await asyncio.sleep(_WATCH_S / 4)
        self._getting_ready = 0.0
        await asyncio.to_thread(self._background.pause)

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
            self._silence.heard()
            if isinstance(message, Progress):
                self._progress = message
                self._look()
                if message.write_error:
                    self._stop_writing(self._cannot_be_written(message.write_error))
            elif isinstance(message, ProbeAnswer):
                self._answers.put_nowait((message, self._anchor.now_ns()))
            elif isinstance(message, Hello):
                self._silence.limit_s = ANSWER_WITHIN_S
                _answer(self._hello, message)
            elif isinstance(message, Prepared):
                _answer(self._prepared, message)
            elif isinstance(message, Finished):
                _answer(self._finished, message)
            elif isinstance(message, Failed):
                kind = _FAILURES.get(message.exit_code, BattleError)
                hint = f"{message.hint} {_kept(place)}".strip()
                self._give_up(kind(f"a worker failed: {message.message}", hint=hint))
        if not self._finished.done():
            self._give_up(await why_it_left(worker, "the worker process", _kept(place)))

    def _give_up(self, error: BattleError) -> None:
        for future in (self._hello, self._prepared, self._finished):
            if future is not None and not future.done():
                future.set_exception(error)
                future.exception()  # those nobody waits for any more must not complain

    async def _keep_watch(self, contender: RunningContender) -> None:
        """Notice whatever ends a run early, and phase changes; both are written down at once."""
        known = ""
        try:
            while True:
                await asyncio.sleep(_WATCH_S)
                phase, _ = self._timetable.now_in(self._anchor.now_ns())
                if self._timetable.connect_start_ns and phase != known:
                    known = self._phase = phase
                    self._note_phase()
                self._look()
                if not contender.alive():
                    self._end_early("broker-failed", death_notice(contender))
                self._look_for_room()
                self._look_for_life()
        except BattleError as error:
            self._give_up(error)

    def _note_phase(self) -> None:
        if self._logbook is not None:
            try:
                self._logbook.write()
            except EnvironmentNotReady as error:
                self._stop_writing(error)

    def _look_for_life(self) -> None:
        assert self.folder is not None
        end_ns = self._timetable.load_end_ns
        longest_ns = self._plan.phases.longest_drain_ns + _FINISH_WITHIN_NS
        if self._silence.over():
            self._give_up(stopped_answering("the worker process", self._silence.limit_s, _kept(self.folder.path)))
        elif end_ns and self._anchor.now_ns() > end_ns + longest_ns:
            raise EnvironmentNotReady(
                f"the worker process does not come to its end {longest_ns // SECOND_NS} s after the load",
                hint=_kept(self.folder.path),
            )

    def _look_for_room(self) -> None:
        """End the load while there is still room for what is in memory."""
        assert self.folder is not None
        if self._unwritable is None and self._timetable.connect_start_ns and not self._timetable.end_ns:
            free = free_bytes(self.folder.path)
            if free is not None and free < self._needs().last_bytes:
                self._stop_writing(self._cannot_be_written("the disk is full"))

    def _stop_writing(self, error: EnvironmentNotReady) -> None:
        """End the load at once and keep what was recorded: what is in memory finds room in the reserve."""
        self._end_early("failed", error.message)
        if self._reserve is not None:
            self._reserve.release()
        self._unwritable = self._unwritable or error

    def _cannot_be_written(self, why: str) -> EnvironmentNotReady:
        assert self.folder is not None
        return cannot_be_written(self.folder.path, why, self._needs().disk_bytes)

    def _look(self) -> None:
        share = 0.0
        nodes = self._plan.device_count + self._plan.client_count
        if self._timetable.connect_start_ns:
            self._phase, share = self._timetable.now_in(self._anchor.now_ns())
            if self._phase == "connect":
                share = self._progress.connected / max(1, nodes)
        if self._getting_ready:
            self._watch(Glimpse("analysis", self._getting_ready, nodes, self._progress, _GET_READY_NS / SECOND_NS))
            return
        longest_s = self._plan.phases.longest_drain_ns / SECOND_NS if self._phase == "drain" else 0.0
        self._watch(Glimpse(self._phase, share, nodes, self._progress, longest_s))

    def _look_at_registration(self, done: int, of: int) -> None:
        assert self._registering is not None
        self._watch(Glimpse(self._registering.phase, done / max(1, of), of, Progress(connected=done)))

    async def _probe_clock(self, channel: Channel, hello: Hello) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        same = hello.boot_id == boot_id()
        missed = 0
        for _ in range(_PROBES):
            if missed >= _PROBES_MISSED:
                break
            channel.send(Probe(self._anchor.now_ns()))
            try:
                answer, t4_ns = await asyncio.wait_for(self._answers.get(), 1.0)
            except TimeoutError:
                missed += 1
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
        events_per_s = plan.messages_per_s + plan.deliveries_per_s
        return Needs(
            connections=plan.device_count + plan.client_count,
            events=int(seconds * events_per_s),
            events_per_s=events_per_s,
            broker_here=not is_url(self._request.broker),
        )


def _answer(future: asyncio.Future[_Message], message: _Message) -> None:
    if not future.done():  # it may have been given up meanwhile
        future.set_result(message)


def _kept(place: Path) -> str:
    return f"`bb analyze {place}` tells what was measured until then; recorded/logs there may tell more."
