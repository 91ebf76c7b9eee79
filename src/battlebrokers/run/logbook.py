"""The logbook: a run's manifest from its first line to its last. Kept by the orchestrator; computes nothing.

It is written anew at every change, so that a run that is killed leaves a true one behind.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from battlebrokers.clock import SECOND_NS
from battlebrokers.contenders.broker_url import is_url, parse_broker_url
from battlebrokers.contenders.running import RunningContender
from battlebrokers.errors import ContenderError, EnvironmentNotReady
from battlebrokers.processes import own_identity
from battlebrokers.record.cgroup import own_group
from battlebrokers.record.wire import safe_file_name
from battlebrokers.run.fitness import lowered_qos, protocols_of
from battlebrokers.run.host import free_bytes, host_facts
from battlebrokers.run.messages import Finished, Hello
from battlebrokers.run.phases import Timetable
from battlebrokers.scenario.plan import Plan, build_plan
from battlebrokers.secrets import masked_document
from battlebrokers.tables.manifest import (
    ContenderFacts,
    Manifest,
    PairingFacts,
    ScenarioFacts,
    ServiceFacts,
    State,
    WorkerFacts,
)
from battlebrokers.tables.run_folder import RunFolder, write_atomically
from battlebrokers.units import format_size

if TYPE_CHECKING:
    from battlebrokers.run.orchestrator import RunRequest

_LOG_BYTES = 1 << 20
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Logbook:
    """One run's manifest, and the contender's logs beside it."""

    def __init__(self, folder: RunFolder, timetable: Timetable, manifest: Manifest, needed_bytes: int = 0) -> None:
        self.manifest = manifest
        self._folder = folder
        self._timetable = timetable
        self._needed_bytes = needed_bytes

    def contender_came(self, contender: RunningContender) -> None:
        """The contender is ready: from now on something can be measured."""
        self.manifest.contender = _contender_facts(contender)
        if contender.unseen:
            self.manifest.settings["broker_not_sampled"] = contender.unseen
        self.manifest.state = "running"

    def worker_came(self, hello: Hello, pid: int, processes: int, tick_ns: int) -> None:
        """A worker is there; what it counted about itself comes at the end."""
        self.manifest.workers = [WorkerFacts("worker-0", hello.host, hello.boot_id, pid, processes, tick_ns=tick_ns)]
        self.manifest.settings["processes"] = processes

    def worker_finished(self, finished: Finished) -> None:
        """The worker's evidence is complete."""
        self.manifest.workers = [
            msgspec.structs.replace(worker, counters=finished.counters) for worker in self.manifest.workers
        ]
        if finished.failure:
            self.manifest.settings["recorder_failure"] = finished.failure

    def write(self) -> None:
        """Write down where the run is."""
        self.manifest.phases = self._timetable.phases()
        try:
            self._folder.write_manifest(self.manifest)
        except OSError as error:
            raise cannot_be_written(self._folder.path, error.strerror or str(error), self._needed_bytes) from error

    def close(self, state: State, detail: str, now_ns: int) -> None:
        """The last entry: how it ended. A run that never came to its end has broken off."""
        if not self._timetable.end_ns:
            self._timetable.stopped(now_ns)
            self._timetable.ended(now_ns)
            if state == "running":
                state, detail = "failed", detail or "the run broke off"
        self.manifest.state = "finished" if state == "running" else state
        self.manifest.state_detail = detail
        self.manifest.finished_ns = now_ns
        self.write()

    def keep_logs(self, contender: RunningContender) -> None:
        """Keep the end of each of the contender's logs; on a full disk the manifest matters more."""
        with contextlib.suppress(OSError):
            for name, log in contender.named_logs().items():
                if log.exists():
                    with log.open("rb") as source:
                        source.seek(max(0, log.stat().st_size - _LOG_BYTES))
                        self._keep(name, source.read())
            self._mask_our_own()
            for service, text in contender.printed.items():
                self._keep(f"{safe_file_name(service)}-container.log", text[-_LOG_BYTES:])

    def _keep(self, name: str, text: bytes) -> None:
        self._folder.logs.mkdir(parents=True, exist_ok=True)
        (self._folder.logs / name).write_bytes(_masked(text))

    def _mask_our_own(self) -> None:
        """What workers and capture programs wrote while the run was going."""
        for log in self._folder.logs.glob("*.log"):
            text = log.read_bytes()
            if text and (shown := _masked(text)) != text:
                write_atomically(log, shown)


def _masked(text: bytes) -> bytes:
    """A log without secrets; bytes that are no text stay as they are."""
    return masked_document(text.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def first_entry(run_id: str, request: RunRequest, plan: Plan, started_ns: int) -> Manifest:
    """What is known of a run before its contender is started."""
    loaded = request.loaded
    return Manifest(
        run=run_id,
        state="starting",
        started_ns=started_ns,
        scenario=ScenarioFacts(
            name=loaded.scenario.name,
            about=loaded.scenario.about,
            source=loaded.source,
            text=loaded.text,
            resolved=loaded.scenario.model_dump(mode="json"),
            overrides=list(loaded.overrides),
            scale=loaded.scale,
            expect=list(loaded.scenario.expect),
            title=loaded.title,
        ),
        seed=request.seed,
        # Of the plan as written: what a contender is spoken to in does not make it another one.
        plan_sha256=build_plan(loaded.scenario, request.seed).sha256,
        contender=ContenderFacts(name=_place(request.broker), version="", profile=request.profile, endpoints={}),
        host=host_facts(),
        versions={
            "battlebrokers": version("battlebrokers"),
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "pyarrow", "pyspark", "uvloop")},
        },
        tags=dict(request.tags),
        battle=request.battle,
        settings={
            "devices": plan.device_count,
            "clients": plan.client_count,
            "protocols": protocols_of(plan.scenario),
            "lowered_qos": lowered_qos(loaded.scenario, plan.scenario),
            "drain_s": plan.phases.drain_ns / SECOND_NS,
            "quiet_s": plan.phases.quiet_ns / SECOND_NS,
        },
        process=own_identity(),
    )


def _place(broker: str) -> str:
    """A contender's name, or where a URL leads, without the user and password in it."""
    return parse_broker_url(broker).place if is_url(broker) else broker


def _contender_facts(contender: RunningContender) -> ContenderFacts:
    return ContenderFacts(
        name=contender.name,
        version=contender.version,
        profile=contender.profile,
        endpoints=dict(contender.endpoints),
        config_sha256=contender.config_sha256,
        config_text=contender.config_text,
        services=[ServiceFacts(name, pids, _group(contender, name, pids)) for name, pids in contender.services],
        pairing=PairingFacts(**contender.pairing.model_dump()) if contender.pairing is not None else None,
    )


def _group(contender: RunningContender, service: str, pids: list[int]) -> str:
    if named := contender.group_of(service):
        return named
    found = own_group(pids[0]) if pids else None
    return str(found) if found is not None else ""


def no_room_to_start(error: BaseException, runs: Path, needed_bytes: int) -> EnvironmentNotReady | None:
    """What to tell when a broker did not start because a disk is full; None when that was not the reason."""
    reason = error.__cause__ if isinstance(error, EnvironmentNotReady) else error
    if isinstance(reason, OSError) and reason.errno in _NO_ROOM:
        why = os.strerror(reason.errno)
    elif isinstance(reason, ContenderError) and any(os.strerror(each) in reason.message for each in _NO_ROOM):
        why = reason.message
    else:
        return None
    told = cannot_be_written(runs, f"the broker did not start: {why}", needed_bytes)
    return EnvironmentNotReady(told.message, hint="free some disk space, or choose another place with --runs.")


def cannot_be_written(place: Path, why: str, needed_bytes: int = 0) -> EnvironmentNotReady:
    """What to tell when the evidence of a run finds no room: where, how much there is, and how much it takes."""
    free = free_bytes(place)
    room = "" if free is None else f"; {format_size(free)} are free there"
    need = f", and the evidence of this load takes about {format_size(needed_bytes)}" if needed_bytes else ""
    return EnvironmentNotReady(
        f"the evidence cannot be written in {place}: {why}{room}{need}",
        hint=f"free some disk space, or choose another place with --runs; `bb analyze {place}` tells what was kept.",
    )
